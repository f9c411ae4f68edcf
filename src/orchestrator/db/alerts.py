"""Calls to people: an alert is queued in the caller's own commit, once for whatever it is about (law 7)."""

from orchestrator.db import mail
from orchestrator.db.database import Tx
from orchestrator.domain.ids import TaskId, WorkItem
from orchestrator.domain.task import Task


def call(
    tx: Tx, text: str, *about: object, task_id: TaskId | None = None, work_item: WorkItem | None = None
) -> bool:
    """Queue an alert; False where one about the same thing was queued before.

    ``about`` makes it the same one, in whatever life of the service: what it is, and which of those.
    """
    return mail.send(tx, "alert", _stable(about), {"text": text, "work_item": work_item}, task_id=task_id)


def call_and_comment(tx: Tx, task: Task, text: str, *about: object) -> None:
    """An alert about a task that its ticket shows, too."""
    call(tx, text, *about, task_id=task.id, work_item=task.work_item)
    mail.send(tx, "tracker.comment", f"comment:{_stable(about)}", {"text": text}, task_id=task.id)


def called(tx: Tx, *about: object) -> bool:
    """Whether an alert about this was ever queued."""
    return mail.known(tx, _stable(about))


def _stable(about: tuple[object, ...]) -> str:
    return ":".join(("alert", *map(str, about)))
