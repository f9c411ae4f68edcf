"""The tracker as the product needs it. What a tracker calls things stays in its own adapter."""

from typing import Protocol

from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task


class Tracker(Protocol):
    """One tracker project. Called from the outbox only: at least once, in order per task, with a stable id."""

    name: str

    def show_stage(self, task: Task, stage: Stage, message_id: str) -> None:
        """Make the ticket show where its task stands; reads before it writes, so that a repeat changes nothing."""
        ...

    def comment(self, task: Task, text: str, message_id: str) -> None:
        """Leave a comment once per ``message_id``."""
        ...
