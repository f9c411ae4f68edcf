"""Says that this process lives: one write per process, not per lease (DESIGN §5)."""

from orchestrator.ownership.registration import Registration


class Heartbeat:
    """The pulse of one process. A beat that fails is tried again after the ordinary interval: there is no time for
    pauses that grow."""

    name = "heartbeat"

    def __init__(self, registration: Registration, *, interval_s: float) -> None:
        self.interval_s = interval_s
        self._registration = registration

    def run_once(self) -> dict[str, int]:
        """One beat."""
        return {"beats": int(self._registration.beat())}
