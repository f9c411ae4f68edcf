"""The tracker as the product needs it. What a tracker calls things stays in its own adapter."""

from typing import Protocol

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task


class TrackerAway(OutsideError):
    """The tracker takes nothing for so many seconds: it is away, or asks for patience. Nothing is lost by waiting, and
    no attempt is. ``unknown``: what was asked for may take place all the same."""

    def __init__(self, message: str, *, after_s: float, hint: str = "", unknown: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.after_s = after_s
        self.unknown = unknown


class Tracker(Protocol):
    """One tracker project. Called from the outbox only: at least once, in order per task, with a stable id."""

    name: str

    def show_stage(
        self, task: Task, stage: Stage, message_id: str, *, reason: str = "", said_at: str = ""
    ) -> None:
        """Make the ticket show where its task stands; reads before it writes, so that a repeat changes nothing.

        ``reason`` is why the task came there; ``said_at`` when, as a stamp of ours: what a person has done to the
        ticket later than that stays.

        :raises TrackerAway: it is not its time yet.
        :raises OutsideError: it was not done, or nobody knows; will be repeated.
        """
        ...

    def comment(self, task: Task, text: str, message_id: str) -> None:
        """Leave a comment once per ``message_id``.

        :raises TrackerAway: it is not its time yet.
        :raises OutsideError: it was not done, or nobody knows; will be repeated.
        """
        ...
