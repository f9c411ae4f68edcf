"""Drives effects: intent, probe, act, probe, settle; or revoke, probe, settle (laws 3 and 4).

The only way to act on the outside world. What must hold: the intent is durable before the act; only a probe settles;
giving up is durable before it is sent and revokes at the authority; a stale owner stores nothing, and one whose own
term has ended sends nothing. On any failure the effect stays unsettled and is handed to the task's next owner.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from orchestrator.db import effects, events, leases
from orchestrator.db.database import Database, Tx
from orchestrator.domain.effect import (
    Applied,
    Cause,
    Effect,
    EffectName,
    EffectState,
    GivingUp,
    Intent,
    NotApplied,
    Probe,
    Underway,
    Unknown,
)
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.lease import Lease
from orchestrator.domain.task import Task
from orchestrator.observability.redactor import Redactor
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.ownership.term import Term
from orchestrator.runtime.waypoints import Waypoints

log = structlog.get_logger(__name__)

READABLE = "the authority can be read again"

MOVED = {
    EffectState.INTENDED: EventType.EFFECT_INTENDED,
    EffectState.REVOKING: EventType.EFFECT_REVOKING,
    EffectState.IN_DOUBT: EventType.EFFECT_IN_DOUBT,
}


@dataclass(frozen=True, slots=True)
class Proof:
    """An outcome that a probe has shown; to be settled in a commit under the same lease."""

    intent: Intent
    state: EffectState  # APPLIED or REVOKED
    fact: Mapping[str, object]
    reason: str = ""
    along: Callable[[Tx], None] | None = (
        None  # of the commit that settles it: the answer to whoever asked for it
    )


@dataclass(frozen=True, slots=True)
class Open:
    """No outcome yet: not applied and worth another try, under way, or not readable."""

    intent: Intent
    reason: str
    in_doubt: bool


class Ledger:
    """Acts through the effects it was given."""

    def __init__(
        self,
        database: Database,
        kinds: Mapping[EffectName, Effect],
        *,
        term: Term,
        waypoints: Waypoints,
        redactor: Redactor | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """``redactor`` takes secrets out of what an authority says, before it is stored or told."""
        self._database = database
        self._kinds = kinds
        self._term = term
        self._waypoints = waypoints
        self._redactor = redactor or Redactor()
        self._telemetry = telemetry or Telemetry()

    def drive(
        self, lease: Lease, task: Task, intent: Intent, *, turned: GivingUp | None = None
    ) -> Proof | Open:
        """Bring an intent as close to its outcome as it goes now; settles nothing itself.

        ``turned`` is a decision from outside the effect (a waiting cancel) to give up instead of acting; an act that
        has taken place stays applied all the same.
        """
        if intent.state is EffectState.REVOKING:
            return self._revoke(lease, task, intent)
        effect = self._kinds[intent.name]
        seen = self._probe(effect, intent, "first")
        if isinstance(seen, NotApplied):
            try:
                why = turned or _by_facts(effect.turned(intent, None))
            except OutsideError as error:
                return self._doubt(lease, task, intent, str(error))
            if why is not None:
                return self.give_up(lease, task, intent, why)
            return self._act(lease, task, effect, intent)
        return self._conclude(lease, task, intent, seen)

    def give_up(
        self, lease: Lease, task: Task, intent: Intent, why: GivingUp, *, anew: bool = False
    ) -> Proof | Open:
        """Decide durably not to act, then revoke at the authority and look once more (law 4). ``anew``: for this
        reason, though it is being given up for another."""
        if anew or intent.state is not EffectState.REVOKING:
            intent = self._move(lease, task, intent, EffectState.REVOKING, why.reason, why.cause)
        return self._revoke(lease, task, intent)

    def give_up_at_once(self, tx: Tx, lease: Lease, task: Task, intent: Intent, why: GivingUp) -> Intent:
        """In the commit that intends it: an effect that is only ever to be revoked."""
        return _moved(tx, lease, task, intent, EffectState.REVOKING, why.reason, why.cause)

    def settle(self, tx: Tx, lease: Lease, task: Task, proof: Proof) -> None:
        """Record a proven outcome in the caller's commit, with its event.

        :raises LostRace: the lease is no longer the newest.
        """
        effects.settle(tx, lease, proof.intent, proof.state, proof.fact, proof.reason)
        data = {"state": proof.state, "fact": proof.fact, "reason": proof.reason}
        _tell(tx, EventType.EFFECT_SETTLED, lease, task, proof.intent, data)
        if proof.along is not None:
            proof.along(tx)

    def look(self, intent: Intent) -> Probe:
        """What the authority shows now. Changes nothing."""
        return self._probe(self._kinds[intent.name], intent, "asked")

    def said(self, intent: Intent) -> Mapping[str, object] | None:
        """The fact of an act of which only a person says that it took place; None where a word is not enough."""
        return self._kinds[intent.name].said(intent)

    def _act(self, lease: Lease, task: Task, effect: Effect, intent: Intent) -> Proof | Open:
        if intent.state is EffectState.IN_DOUBT:
            intent = self._move(lease, task, intent, EffectState.INTENDED, READABLE)
        with self._database.read() as tx:
            leases.check(tx, lease)
        self._term.check(
            lease
        )  # the last look before the act; the authority's own fence covers the rest (law 5)
        self._reach("before_act", intent, lease)
        failure: OutsideError | None = None
        self._telemetry.count(Metric.EFFECTS_ACTED, intent.name)
        try:
            effect.act(intent)
        except OutsideError as error:  # a refusal is no outcome: only the probe below is
            failure = error
        self._reach("after_act", intent, lease)
        seen = self._probe(effect, intent, "second")
        if not isinstance(seen, NotApplied):
            return self._conclude(lease, task, intent, seen)
        try:
            turned = _by_facts(effect.turned(intent, failure))
        except OutsideError as error:
            return self._doubt(lease, task, intent, str(error))
        if turned is not None:
            return self.give_up(lease, task, intent, turned)
        why = (
            self._redactor.text(str(failure))
            if failure
            else "it was sent, but the authority does not show it yet"
        )
        log.warning("effect not applied yet", effect=intent.name.value, task=task.work_item, reason=why)
        return Open(intent, why, in_doubt=False)

    def _revoke(self, lease: Lease, task: Task, intent: Intent) -> Proof | Open:
        """Finish a giving-up, one's own or an earlier owner's, for the reason that was stored with it."""
        effect = self._kinds[intent.name]
        self._term.check(lease)
        self._reach("before_revoke", intent, lease)
        try:
            effect.revoke(intent)
        except OutsideError as error:
            why = self._redactor.text(str(error))
            return Open(intent, f"giving up is decided, but it could not be revoked: {why}", in_doubt=True)
        self._reach("after_revoke", intent, lease)
        seen = self._probe(effect, intent, "after_revoke")
        if isinstance(seen, NotApplied):
            return Proof(intent, EffectState.REVOKED, seen.fact, intent.reason)
        if isinstance(seen, Applied):
            return Proof(
                intent, EffectState.APPLIED, seen.fact, "it had taken place before it could be revoked"
            )
        return Open(intent, self._redactor.text(seen.reason), in_doubt=isinstance(seen, Unknown))

    def _conclude(self, lease: Lease, task: Task, intent: Intent, seen: Probe) -> Proof | Open:
        if isinstance(seen, Applied):
            return Proof(intent, EffectState.APPLIED, seen.fact)
        if isinstance(seen, Underway):
            if intent.state is EffectState.IN_DOUBT:
                intent = self._move(lease, task, intent, EffectState.INTENDED, READABLE)
            return Open(intent, seen.reason, in_doubt=False)
        return self._doubt(lease, task, intent, seen.reason if isinstance(seen, Unknown) else "not applied")

    def _doubt(self, lease: Lease, task: Task, intent: Intent, reason: str) -> Open:
        """Hold: never guess. The state is stored once; probing again is the reconciler's."""
        reason = self._redactor.text(reason)
        if intent.state is EffectState.INTENDED:
            intent = self._move(lease, task, intent, EffectState.IN_DOUBT, reason)
        log.warning("effect in doubt", effect=intent.name.value, task=task.work_item, reason=reason)
        return Open(intent, reason, in_doubt=True)

    def _move(
        self,
        lease: Lease,
        task: Task,
        intent: Intent,
        state: EffectState,
        reason: str,
        cause: Cause | None = None,
    ) -> Intent:
        """Another unsettled state, durably and with its event; the intent as it then stands."""
        with self._database.write() as tx:
            return _moved(tx, lease, task, intent, state, reason, cause)

    def _probe(self, effect: Effect, intent: Intent, which: str) -> Probe:
        self._waypoints.reach(f"{intent.name.value}.before_probe", task=intent.task_id, which=which)
        seen = effect.probe(intent)
        self._waypoints.reach(f"{intent.name.value}.after_probe", task=intent.task_id, which=which)
        return seen

    def _reach(self, point: str, intent: Intent, lease: Lease) -> None:
        self._waypoints.reach(f"{intent.name.value}.{point}", task=intent.task_id, epoch=lease.epoch)


def _moved(
    tx: Tx,
    lease: Lease,
    task: Task,
    intent: Intent,
    state: EffectState,
    reason: str,
    cause: Cause | None = None,
) -> Intent:
    effects.move(tx, lease, intent, state, reason, cause)
    data = {"reason": reason, "cause": cause} if cause is not None else {"reason": reason}
    _tell(tx, MOVED[state], lease, task, intent, data)
    return replace(intent, state=state, reason=reason, cause=cause)


def _by_facts(reason: str | None) -> GivingUp | None:
    return GivingUp(Cause.FACTS, reason) if reason is not None else None


def _tell(
    tx: Tx, type: EventType, lease: Lease, task: Task, intent: Intent, data: Mapping[str, object]
) -> None:
    said = {"effect": intent.name, "key": intent.key, "sequence": intent.sequence, **data}
    events.append(tx, type, lease.owner, task=task, epoch=lease.epoch, data=said)
