"""Effects at the desk: which are not settled, why, and for how long (DESIGN §7, operator)."""

from dataclasses import dataclass

from orchestrator.db import effects, tasks
from orchestrator.db.database import Database, Row
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.ids import EffectId
from orchestrator.runtime.clock import Clock, parse_stamp

NEWEST_EFFECT = 2**62  # above every id


@dataclass(frozen=True, slots=True)
class EffectOnShow:
    """An effect as people see it."""

    id: EffectId
    task: str
    name: EffectName
    key: str
    round: int
    state: EffectState
    since: str  # when it was intended
    age_s: int
    settled_at: str | None
    reason: str  # what failed outside last; else of its last move: why in doubt, why given up
    attempts: int | None  # failed in a row, None where none has
    failing_since: str | None


class EffectDesk:
    """Shows effects."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def effects(
        self,
        *,
        work_item: str | None = None,
        everything: bool = False,
        before: int = NEWEST_EFFECT,
        limit: int = 100,
    ) -> list[EffectOnShow]:
        """Effects that are not settled, or with ``everything`` all, of one task or of all; newest first.

        :raises NotFound: there is no such task.
        """
        with self._database.read() as tx:
            task_id = tasks.by_work_item(tx, work_item).id if work_item is not None else None
            rows = effects.on_show(tx, task_id, everything=everything, before=before, limit=limit)
        return [self._shown(row) for row in rows]

    def _shown(self, row: Row) -> EffectOnShow:
        age = self._clock.utc() - parse_stamp(row["intent_at"])
        return EffectOnShow(
            id=EffectId(row["id"]),
            task=row["work_item"],
            name=EffectName(row["name"]),
            key=row["key"],
            round=row["round"],
            state=EffectState(row["state"]),
            since=row["intent_at"],
            age_s=max(0, int(age.total_seconds())),
            settled_at=row["settled_at"],
            reason=row["failure"] or row["reason"] or "",
            attempts=row["attempts"],
            failing_since=row["failing_since"],
        )
