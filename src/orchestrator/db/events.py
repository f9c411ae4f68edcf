"""Events: every durable change has one (law 11). Only ever appended."""

import json
from collections.abc import Mapping

from orchestrator.db.database import Row, Tx
from orchestrator.domain.event import Event, EventType
from orchestrator.domain.ids import EventId, TaskId, TransitionId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task

PAGE = 500


def append(
    tx: Tx,
    type: EventType,
    actor: Actor | str,
    *,
    task: Task | None = None,
    to_stage: Stage | None = None,
    epoch: int | None = None,
    transition_id: TransitionId | None = None,
    data: Mapping[str, object] | None = None,
) -> None:
    """Add an event to a task's story, or to the service's own."""
    tx.execute(
        "events.append",
        task_id=task.id if task else None,
        type=type,
        actor=str(actor),
        stage=task.stage if task else None,
        to_stage=to_stage,
        round=task.round if task else None,
        epoch=epoch if epoch is not None or task is None else task.epoch,
        transition_id=transition_id,
        data=json.dumps(data or {}, ensure_ascii=False, sort_keys=True, default=str),
    )


def of_task(tx: Tx, task_id: TaskId, *, after: int = 0, limit: int = PAGE) -> list[Event]:
    """A task's story from ``after`` on, in order, one page."""
    return [_event(row) for row in tx.all("events.of_task", task_id=task_id, after=after, limit=limit)]


def drifts(tx: Tx, task_id: TaskId) -> list[Event]:
    """What was told of drift from what a task last brought somewhere, in order."""
    return [_event(row) for row in tx.all("events.drifts", task_id=task_id)]


def transition_happened(tx: Tx, transition_id: TransitionId) -> bool:
    """Whether the commit with this id took place: decides after a lost answer to COMMIT (law 2)."""
    return tx.one("events.by_transition", transition_id=transition_id) is not None


def lesson(tx: Tx, kind: str, text: str, *, task_id: TaskId | None, source: str = "auto") -> None:
    """Write into the journal of lessons (S-18)."""
    tx.execute("events.lesson", task_id=task_id, source=source, kind=kind, text=text)


def _event(row: Row) -> Event:
    return Event(
        id=EventId(row["id"]),
        task_id=row["task_id"],
        type=EventType(row["type"]),
        actor=row["actor"],
        stage=Stage(row["stage"]) if row["stage"] else None,
        to_stage=Stage(row["to_stage"]) if row["to_stage"] else None,
        round=row["round"],
        epoch=row["epoch"],
        data=json.loads(row["data"]),
        at=row["at"],
    )
