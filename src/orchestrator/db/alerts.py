"""Calls to people: an alert is queued in the caller's own commit, once for whatever it is about (law 7)."""

from collections.abc import Mapping

from orchestrator.db import mail
from orchestrator.db.database import Tx
from orchestrator.domain.ids import TaskId, WorkItem
from orchestrator.domain.task import Task

PARKED = "parked"


def call(
    tx: Tx, text: str, *about: object, task_id: TaskId | None = None, work_item: WorkItem | None = None
) -> bool:
    """Queue an alert for every channel; False where one about the same thing was queued before.

    ``about`` makes it the same one, in whatever life of the service: what it is, and which of those.
    """
    stable = _stable(about)
    if not mail.send(tx, "alert", stable, {"text": text, "work_item": work_item}, task_id=task_id):
        return False
    mail.copy_to_channels(tx, stable)
    return True


def call_and_comment(tx: Tx, task: Task, text: str, *about: object) -> None:
    """An alert about a task that its ticket shows, too."""
    call(tx, text, *about, task_id=task.id, work_item=task.work_item)
    mail.send(tx, "tracker.comment", f"comment:{_stable(about)}", {"text": text}, task_id=task.id)


def parked(tx: Tx, message: mail.OutgoingMessage, reason: str, work_item: str | None) -> bool:
    """Tell a person, once, of a message that was given up, with what it said.

    Not where it told of another one itself: with the channel of alerts down that would never end. It is no message of
    its task's: it must not wait behind those that fail.
    """
    if message.stable_id.startswith(f"{_stable((PARKED,))}:"):
        return False
    payload: object = message.payload  # the schema asks for JSON, not for an object
    said = payload.get("text") if isinstance(payload, Mapping) else None
    kind = f"{message.kind} for {message.copy_for}" if message.copy_for else message.kind
    tried = f"{message.attempts + 1} times" if message.attempts else "once"
    text = f"A message ({kind}, outbox {message.outbox_id}) was tried {tried} and is parked: {reason}"
    about = WorkItem(work_item) if work_item else None
    return call(tx, text + (f" It said: {said}" if said else ""), PARKED, message.outbox_id, work_item=about)


def called(tx: Tx, *about: object) -> bool:
    """Whether an alert about this was ever queued."""
    return mail.known(tx, _stable(about))


def _stable(about: tuple[object, ...]) -> str:
    return ":".join(("alert", *map(str, about)))
