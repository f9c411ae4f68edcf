"""Effects at the desk: which are not settled and why; and a person's word on one of them (DESIGN §7, operator)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.db import effects, events, tasks
from orchestrator.db.database import Database, Row, Tx
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.records import Claimant, Ending, RecordLost
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import NotFound, RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import EffectId, TaskId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal
from orchestrator.effects.deploy import start_of
from orchestrator.operations.deciding import Receipt, store_signal
from orchestrator.runtime.clock import Clock, parse_stamp
from orchestrator.runtime.entropy import Entropy
from orchestrator.stage_engine.resolutions import Resolution
from orchestrator.stage_engine.signals import RESOLVE

NEWEST_EFFECT = 2**62  # above every id
WOKEN = 1000  # open tasks that a declared end may concern; the timers find the others


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
    """Shows effects, and takes what a person says of them."""

    def __init__(
        self,
        database: Database,
        *,
        deployer: Deployer,
        clock: Clock,
        entropy: Entropy,
        wake: Callable[[Iterable[TaskId]], None],
    ) -> None:
        self._database = database
        self._deployer = deployer
        self._clock = clock
        self._entropy = entropy
        self._wake = wake

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

    def resolve_effect(
        self,
        effect_id: int,
        resolution: Resolution,
        *,
        person: str,
        reason: str,
        state: EffectState | None = None,
    ) -> Receipt:
        """Say what became of an effect; the engine asks the authority first, and applies or refuses it. ``ENDED``, of a
        deploy's command, is answered at once.

        ``state`` is the one that the person saw; by default the one that it is in now.

        :raises NotFound: there is no such effect.
        :raises RequestRefused: it is settled, no reason is given, it is not in the state that the person saw, or its
            command is seen to be at work.
        :raises AuthorityUnreachable: an end could not be recorded.
        """
        if not reason.strip():
            raise RequestRefused(
                "A word on an effect needs a reason; nothing was changed.", hint="Say how you know."
            )
        if resolution is Resolution.ENDED:
            return self._declare_ended(EffectId(effect_id), person=person[:200], reason=reason.strip()[:2000])
        with self._database.write() as tx:
            task = tasks.held_still(tx, _known(tx, EffectId(effect_id)).task_id)
            intent = _known(tx, EffectId(effect_id))  # as whoever had the task before has left it
            if intent.state.settled:
                raise RequestRefused(
                    f"Effect {effect_id} is settled: {intent.state}. Nothing was changed.",
                    hint="`orch effect list` shows what is not settled.",
                )
            if state not in (None, intent.state):
                raise RequestRefused(
                    f"Effect {effect_id} is {intent.state}, not {state}; nothing was changed.",
                    hint=f"Look at it again (`orch effect list --task {task.work_item}`).",
                )
            data = {"resolution": resolution.value, "state": intent.state.value}
            signal = Signal(
                RESOLVE, task.stage, task.round, str(effect_id), person[:200], reason.strip()[:2000], data
            )
            inbox_id = store_signal(tx, task, signal, self._entropy)
        self._wake([task.id])
        return Receipt(inbox_id, task, RESOLVE)

    def _declare_ended(self, effect_id: EffectId, *, person: str, reason: str) -> Receipt:
        """Take a person's word that a deploy's command has ended, where nobody can find that out: until then nothing is
        started in its place. No task is moved and no effect settled by it; how it ended stays unknown."""
        with self._database.read() as tx:
            intent = _known(tx, effect_id)
            task = tasks.get(tx, intent.task_id)
        if intent.name not in (EffectName.DEPLOY_INIT, EffectName.DEPLOY_UNDO):
            raise RequestRefused(f"Effect {effect_id} is no deploy: it has no command that could end.")
        if intent.state is not EffectState.APPLIED and not self._undo_has_begun(intent):
            raise RequestRefused(
                f"Effect {effect_id} is {intent.state}: whether it took place at all is not settled.",
                hint="Say that first: applied, not-applied or retry.",
            )
        record = self._deployer.declare_ended(start_of(intent), f"{person}: {reason}")
        if record.ending is not Ending.DECLARED:
            raise RequestRefused(f"Its command has ended, and that is known: {record.ending} at {record.at}.")
        with self._database.write() as tx:
            said = {"signal": RESOLVE, "person": person, "reason": reason, "subject": str(effect_id)}
            outcome = f"applied: its command counts as ended ({record.detail})"
            data = {**said, "resolution": Resolution.ENDED.value, "outcome": outcome}
            events.append(tx, EventType.SIGNAL_APPLIED, Actor.OPERATOR, task=task, data=data)
            open_tasks = tasks.list_open(tx, limit=WOKEN)
        self._wake([each.id for each in open_tasks if each.stage in (Stage.DEPLOY_STAGING, Stage.DEPLOY)])
        return Receipt(0, task, RESOLVE, outcome)

    def _undo_has_begun(self, intent: Intent) -> bool:
        """An undo is settled at its end: it may have begun before."""
        if intent.name is not EffectName.DEPLOY_UNDO:
            return False
        try:
            claim = self._deployer.started(start_of(intent))
        except RecordLost:
            return False  # that has to be said first
        return claim is not None and claim.by is Claimant.CHILD

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


def _known(tx: Tx, effect_id: EffectId) -> Intent:
    intent = effects.get(tx, effect_id)
    if intent is None:
        raise NotFound(f"There is no effect {effect_id}.", hint="`orch effect list` shows them.")
    return intent
