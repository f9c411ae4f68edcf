"""What a source of webhooks has to be able to do."""

from dataclasses import dataclass
from typing import Protocol

from orchestrator.db.database import Tx
from orchestrator.db.inbox import Delivery
from orchestrator.domain.ids import TaskId
from orchestrator.domain.task import Task
from orchestrator.webhooks.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Handled:
    """What came of a delivery, and which tasks should be looked at for its sake."""

    outcome: str
    wake: tuple[TaskId, ...] = ()


class WebhookHandler(Protocol):
    """One source: ``plane``, ``gitea``, ``github``."""

    source: str
    envelope: Envelope

    def task_of(self, tx: Tx, kind: str, payload: object) -> Task | None:
        """The one task that a delivery is about; None where there is none, or more. Raises nothing for odd payloads."""
        ...

    def read(self, kind: str, payload: object) -> object:
        """What takes long to read in a payload, made while no writer waits; :meth:`handle` finds it as
        ``delivery.said``. None where there is nothing of the kind. Raises nothing for odd payloads."""
        ...

    def handle(self, tx: Tx, delivery: Delivery, task: Task | None) -> Handled:
        """Deal with it inside the commit that closes it: store a person's word, tell a task's story, never a stage.

        Called while nobody owns the task; may be called again until its commit has taken place.

        :raises MalformedDelivery: it does not say what its kind has to say.
        """
        ...
