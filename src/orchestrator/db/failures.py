"""What keeps failing outside: for people to see, never for deciding. One row a task; gone once the task has gone on."""

from dataclasses import dataclass

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import EffectId, TaskId


@dataclass(frozen=True, slots=True)
class OutsideFailure:
    """Why a task's present step, or effect, has not succeeded yet."""

    effect_id: EffectId | None
    reason: str
    attempts: int
    since: str
    last_at: str


def note(tx: Tx, task_id: TaskId, reason: str) -> None:
    """One more attempt has failed; another effect's than before begins to count anew.

    Whose it is the ledger says: nothing else is done before the oldest unsettled effect (law 3).
    """
    tx.execute("failures.note", task_id=task_id, reason=reason)


def of_task(tx: Tx, task_id: TaskId) -> OutsideFailure | None:
    """What keeps failing for a task, None where nothing does."""
    row = tx.one("failures.of_task", task_id=task_id)
    return _failure(row) if row else None


def forget(tx: Tx, task_id: TaskId) -> None:
    """The task has gone on."""
    tx.execute("failures.forget", task_id=task_id)


def _failure(row: Row) -> OutsideFailure:
    return OutsideFailure(
        effect_id=EffectId(row["effect_id"]) if row["effect_id"] is not None else None,
        reason=row["reason"],
        attempts=row["attempts"],
        since=row["since"],
        last_at=row["last_at"],
    )
