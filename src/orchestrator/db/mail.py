"""Messages in and out. In: committed before acknowledged, deduplicated. Out: written in the transition's own commit."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import TaskId, WorkItem
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal, Task

MAX_ATTEMPTS = 12  # after that a message is parked and no longer holds the others of its task


@dataclass(frozen=True, slots=True)
class WaitingSignal:
    """A person's word that has not been dealt with."""

    inbox_id: int
    task_id: TaskId
    signal: Signal


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One row of the outbox."""

    outbox_id: int
    stable_id: str
    task_id: TaskId | None
    kind: str
    payload: Mapping[str, object]
    attempts: int
    said_at: str
    copy_for: str | None = None  # the further channel that this copy of an alert is for

    @property
    def channel(self) -> str:
        """``alert`` or ``tracker``, or the channel of a copy."""
        return self.copy_for or self.kind.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Unsent:
    """What has become of a message that could not be sent, and whom it is about."""

    parked: bool
    work_item: WorkItem | None


@dataclass(frozen=True, slots=True)
class Lying:
    """How much lies in the outbox: what waits to be sent, since when the oldest of it does, and what was given up."""

    waiting: int
    parked: int
    oldest: str | None


def receive(tx: Tx, task: Task, signal: Signal, *, source: str, dedup_key: str) -> int | None:
    """Store a person's word, bound to what was on show (law 7); None where this very message is already stored."""
    row = tx.one(
        "mail.receive",
        source=source,
        dedup_key=dedup_key,
        kind=signal.kind,
        task_id=task.id,
        stage=signal.stage,
        round=signal.round,
        subject=signal.subject,
        person=signal.person,
        payload=json.dumps({"reason": signal.reason, **(signal.data or {})}, ensure_ascii=False),
    )
    return int(row["id"]) if row else None


def waiting_signals(tx: Tx, task_id: TaskId) -> list[WaitingSignal]:
    """What people have said of a task and nobody has dealt with, in order."""
    return [_signal(row) for row in tx.all("mail.waiting_signals", task_id=task_id)]


def tasks_with_signals(tx: Tx) -> list[TaskId]:
    """Tasks with unhandled signals: the reconciler's net under lost wake-ups."""
    return [TaskId(row["task_id"]) for row in tx.all("mail.tasks_with_signals")]


def handled(tx: Tx, inbox_id: int, outcome: str) -> bool:
    """Close a signal with what came of it."""
    return tx.execute("mail.handled", inbox_id=inbox_id, outcome=outcome) == 1


def outcome_of(tx: Tx, inbox_id: int) -> str | None:
    """What came of a signal, None while it waits."""
    row = tx.one("mail.signal", inbox_id=inbox_id)
    return row["outcome"] if row else None


def belongs(tx: Tx, inbox_id: int, task_id: TaskId) -> bool:
    """Whether there is such a signal, about this task."""
    row = tx.one("mail.signal", inbox_id=inbox_id)
    return row is not None and row["task_id"] == task_id


def approve(tx: Tx, task: Task, kind: str, subject: str, person: str) -> None:
    """Record an approval of exactly this subject in this stage and round."""
    tx.execute(
        "mail.approve",
        task_id=task.id,
        kind=kind,
        stage=task.stage,
        round=task.round,
        subject=subject,
        person=person,
    )


def approved(tx: Tx, task: Task, kind: str, subject: str) -> str | None:
    """Who approved exactly this subject in the task's stage and round."""
    row = tx.one(
        "mail.approval", task_id=task.id, kind=kind, stage=task.stage, round=task.round, subject=subject
    )
    return row["person"] if row else None


def send(tx: Tx, kind: str, stable_id: str, payload: Mapping[str, object], *, task_id: TaskId | None) -> bool:
    """Queue a message in the caller's own commit; the same id is sent once (False: it was queued before).

    After an accepted restore all are named anew: the time that is lost has sent others by the same numbers.
    """
    queued = tx.execute(
        "mail.send",
        stable_id=stable_id,
        task_id=task_id,
        kind=kind,
        payload=json.dumps(payload, ensure_ascii=False, default=str),
    )
    return queued == 1


def copy_to_channels(tx: Tx, stable_id: str) -> None:
    """Give each further channel a copy of an alert, in the commit that queues the alert. A copy belongs to no task, so
    that it waits for nothing else and nothing waits for it."""
    tx.execute("mail.copy_to_channels", stable_id=stable_id)


def set_channels(tx: Tx, names: Collection[str]) -> None:
    """From now on alerts are copied to these; what is queued already stays as it is."""
    for row in tx.all("mail.channels"):
        if row["name"] not in names:
            tx.execute("mail.remove_channel", name=row["name"])
    for name in sorted(names):
        tx.execute("mail.add_channel", name=name)


def known(tx: Tx, stable_id: str) -> bool:
    """Whether this very message has been queued, be it sent or not."""
    return tx.one("mail.known", stable_id=stable_id) is not None


def due(
    tx: Tx, *, channel: str | None = None, tracker: str | None = None, limit: int = 50
) -> list[OutgoingMessage]:
    """What may be sent now: the oldest unsent message of each task; of a further channel its copies of alerts, of a
    tracker elsewhere what its tickets are told."""
    return [
        OutgoingMessage(
            row["id"],
            row["stable_id"],
            row["task_id"],
            row["kind"],
            json.loads(row["payload"]),
            row["attempts"],
            row["created_at"],
            row["channel"],
        )
        for row in tx.all("mail.due", channel=channel, tracker=tracker, limit=limit)
    ]


def claim(tx: Tx, message: OutgoingMessage, for_s: float) -> bool:
    """Keep other services from sending it meanwhile; False where one of them does. Whoever dies with it in hand keeps
    it for so long."""
    return tx.execute("mail.claim", outbox_id=message.outbox_id, for_s=for_s) == 1


def put_off(tx: Tx, message: OutgoingMessage, delay_s: float) -> None:
    """Not now: later again, at no cost of an attempt."""
    tx.execute("mail.put_off", outbox_id=message.outbox_id, delay_s=delay_s)


def sent(tx: Tx, message: OutgoingMessage) -> None:
    """A message has left."""
    tx.execute("mail.sent", outbox_id=message.outbox_id)


def failed(tx: Tx, message: OutgoingMessage, error: str, delay_s: float, *, for_good: bool = False) -> Unsent:
    """A message could not be sent: later, or parked after :data:`MAX_ATTEMPTS`, at once where it is ``for_good``."""
    row = tx.one(
        "mail.failed",
        outbox_id=message.outbox_id,
        error=error,
        delay_s=delay_s,
        max_attempts=1 if for_good else MAX_ATTEMPTS,
    )
    return Unsent(row["parked_at"] is not None, row["work_item"]) if row else Unsent(False, None)


def lying(tx: Tx) -> Lying:
    """What has not been sent."""
    row = tx.one("mail.lying")
    return Lying(row["waiting"], row["parked"], row["oldest"]) if row else Lying(0, 0, None)


def _signal(row: Row) -> WaitingSignal:
    payload = json.loads(row["payload"])
    return WaitingSignal(
        inbox_id=row["id"],
        task_id=TaskId(row["task_id"]),
        signal=Signal(
            kind=row["kind"],
            stage=Stage(row["stage"]),
            round=row["round"],
            subject=row["subject"],
            person=row["person"],
            reason=payload.get("reason", ""),
            data=payload,
        ),
    )
