"""Says that this process lives: one write per process, not per lease (DESIGN §5)."""

from collections.abc import Callable

import structlog

from orchestrator.domain.errors import DatabaseReplaced, OrchestratorError, StrangeFolder
from orchestrator.ownership.registration import Registration

log = structlog.get_logger(__name__)


class Heartbeat:
    """The pulse of one process. A beat that fails is tried again after the ordinary interval: there is no time for
    pauses that grow."""

    name = "heartbeat"

    def __init__(
        self, registration: Registration, *, ends: Callable[[OrchestratorError], None], interval_s: float
    ) -> None:
        """``ends`` has the process end, because of what it is told."""
        self.interval_s = interval_s
        self._registration = registration
        self._ends = ends
        self._beside: Callable[[], None] | None = None

    def beside(self, look: Callable[[], None]) -> None:
        """Have ``look`` called after each beat; it must be cheap and raise nothing."""
        self._beside = look

    def run_once(self) -> dict[str, int]:
        """One beat."""
        try:
            beats = int(self._registration.beat())
        except (DatabaseReplaced, StrangeFolder) as why:
            log.error("this process ends", reason=str(why))
            self._ends(why)
            return {"beats": 0}
        if self._beside is not None:
            self._beside()
        return {"beats": beats}
