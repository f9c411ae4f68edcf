"""What cannot be done now, because: one answer for slots, starts and a person's "go on"."""

from orchestrator.domain.task import Hold


class NotNow(Exception):
    """Leaves a write block without a trace; the reason becomes a hold, an answer, or another look later."""

    def __init__(self, reason: str, hold: Hold = Hold.BLOCKED) -> None:
        """``hold`` is what the task is held with, where it is."""
        super().__init__(reason)
        self.reason = reason
        self.hold = hold
