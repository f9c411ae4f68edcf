"""What trackers and forges have sent: stored once, bound to what was on show, open until somebody has dealt with it.

A delivery is a row of ``inbox`` with one of ``deliveries`` beside it. It is no signal of its own: a handler makes a
person's word of it, or wakes a task, in the commit that closes it (law 7).
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import TaskId
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task

PAGE = 500
MAX_ATTEMPTS = 5  # then a delivery is parked and holds nobody any more
ERROR_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """What has arrived. ``payload`` is JSON in ASCII; ``delivery_id`` is the sender's, None where it gave none."""

    source: str
    kind: str
    dedup_key: str
    delivery_id: str | None
    payload: str


@dataclass(frozen=True, slots=True)
class OpenDelivery:
    """A line of the list of what is open. ``due``: it may be looked at now."""

    inbox_id: int
    task_id: TaskId | None
    deferrals: int
    due: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """An open delivery, with the task it is about and what that showed when the delivery came. ``said`` is what its
    handler has made of the payload beforehand."""

    inbox_id: int
    source: str
    kind: str
    payload: object
    attempts: int
    task_id: TaskId | None
    stage: Stage | None
    round: int | None
    subject: str | None
    said: object = None


@dataclass(frozen=True, slots=True)
class Move:
    """A ticket was moved to a state, by whom; ids of the tracker's."""

    value: str | None
    actor: str | None


@dataclass(frozen=True, slots=True)
class Counts:
    """How much lies in the inbox; ``oldest`` is when the oldest came that is not parked."""

    open: int
    deferred: int
    parked: int
    oldest: str | None


def store(tx: Tx, new: NewDelivery, task: Task | None, subject: str | None) -> int | None:
    """Store a delivery, bound to what the task shows now; None where it is a repeat, by its id or its content."""
    row = tx.one(
        "inbox.store",
        source=new.source,
        kind=new.kind,
        dedup_key=new.dedup_key,
        delivery_id=new.delivery_id,
        payload=new.payload,
        **_binding(task, subject),
    )
    if row is None:
        return None
    tx.execute("inbox.store_delivery", inbox_id=row["id"], source=new.source, delivery_id=new.delivery_id)
    return int(row["id"])


def task_of_repeat(tx: Tx, new: NewDelivery) -> TaskId | None:
    """The task of the delivery that this one repeats."""
    row = _stored_as(tx, new)
    return TaskId(row["task_id"]) if row and row["task_id"] is not None else None


def open_page(tx: Tx, *, after: int = 0, limit: int = PAGE) -> list[OpenDelivery]:
    """What is open and not parked, oldest first, one page."""
    return [
        OpenDelivery(row["id"], row["task_id"], row["deferrals"], bool(row["due"]))
        for row in tx.all("inbox.open_page", after=after, limit=limit)
    ]


def open_delivery(tx: Tx, inbox_id: int) -> Delivery | None:
    """One delivery, None where it is closed or parked."""
    row = tx.one("inbox.open_delivery", inbox_id=inbox_id)
    return _delivery(row) if row else None


def still_open(tx: Tx, read: Delivery) -> Delivery | None:
    """A delivery that was read before, as it stands now; None where it has been closed or parked meanwhile. Nobody else
    closes it until this transaction has ended. The payload is not read again: it never changes."""
    row = tx.one("inbox.still_open", inbox_id=read.inbox_id)
    return replace(read, **_standing(row)) if row else None


def unpark_repeated(tx: Tx, new: NewDelivery) -> bool:
    """Have a parked delivery looked at once more, for its sender has sent it again; False where it is not parked."""
    row = _stored_as(tx, new)
    return row is not None and tx.execute("inbox.unpark", inbox_id=row["id"]) == 1


def unpark_all(tx: Tx) -> int:
    """Have everything that is parked looked at once more; how much it is."""
    return tx.execute("inbox.unpark", inbox_id=None)


def bind(tx: Tx, inbox_id: int, task: Task, subject: str | None) -> None:
    """Bind a delivery whose task was not known when it came; one that is bound stays so."""
    tx.execute("inbox.bind", inbox_id=inbox_id, **_binding(task, subject))


def defer(tx: Tx, inbox_id: int, delay_s: float) -> None:
    """Somebody owns the task: look again later. Costs no attempt."""
    tx.execute("inbox.defer", inbox_id=inbox_id, delay_s=delay_s)


def failed(tx: Tx, inbox_id: int, error: str, delay_s: float) -> bool:
    """It could not be dealt with: later again, or parked after :data:`MAX_ATTEMPTS`; True where it is parked."""
    row = tx.one(
        "inbox.failed",
        inbox_id=inbox_id,
        error=error[:ERROR_LIMIT],
        delay_s=delay_s,
        max_attempts=MAX_ATTEMPTS,
    )
    return row is not None and row["parked_at"] is not None


def overdue(tx: Tx, older_s: float) -> int:
    """How much has been open for longer, parked ones apart."""
    row = tx.one("inbox.overdue", older_s=older_s)
    return int(row["overdue"]) if row else 0


def hasten(tx: Tx, older_s: float) -> None:
    """Make what has been open for longer due at once."""
    tx.execute("inbox.hasten", older_s=older_s)


def counts(tx: Tx) -> Counts:
    """How much lies there."""
    row = tx.one("inbox.counts")
    return (
        Counts(row["open"], row["deferred"], row["parked"], row["oldest"]) if row else Counts(0, 0, 0, None)
    )


def newest(tx: Tx) -> int:
    """The number of the last one that came, 0 where none has."""
    row = tx.one("inbox.newest")
    return int(row["id"]) if row is not None and row["id"] is not None else 0


def has_come(tx: Tx, source: str, words: str, *, after: int) -> bool:
    """Whether one came from a sender, after the one of this number, that holds these words: letters and digits."""
    return tx.one("inbox.has_come", source=source, words=words, after=after) is not None


def moves_since(tx: Tx, delivery: Delivery, said_at: str) -> list[Move]:
    """The moves of the ticket that are known to have been made after ``said_at``, in whatever order we were told."""
    rows = tx.all(
        "inbox.moves_since",
        inbox_id=delivery.inbox_id,
        task_id=delivery.task_id,
        source=delivery.source,
        kind=delivery.kind,
        said_at=said_at,
    )
    return [Move(row["value"], row["actor"]) for row in rows]


def _stored_as(tx: Tx, new: NewDelivery) -> Row | None:
    return tx.one("inbox.stored_as", dedup_key=new.dedup_key, source=new.source, delivery_id=new.delivery_id)


def _binding(task: Task | None, subject: str | None) -> dict[str, object]:
    if task is None:
        return {"task_id": None, "stage": None, "round": None, "subject": None}
    return {"task_id": task.id, "stage": task.stage, "round": task.round, "subject": subject}


def _delivery(row: Row) -> Delivery:
    return Delivery(
        inbox_id=row["id"],
        source=row["source"],
        kind=row["kind"],
        payload=json.loads(row["payload"]),
        **_standing(row),
    )


def _standing(row: Row) -> dict[str, Any]:
    """What of a delivery may change while it is open."""
    return {
        "attempts": row["attempts"],
        "task_id": TaskId(row["task_id"]) if row["task_id"] is not None else None,
        "stage": Stage(row["stage"]) if row["stage"] else None,
        "round": row["round"],
        "subject": row["subject"],
    }
