"""Stores what is about to be done, and what became of it, in the caller's own commit under the task's lease (law 3)."""

from collections.abc import Sequence

from orchestrator.db import effects, events, leases
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectState, Intent
from orchestrator.domain.event import EventType
from orchestrator.effects.ledger import Proof
from orchestrator.stage_engine.plans import Plan
from orchestrator.stage_engine.situation import Situation, Tools


class Intents:
    """Writes the ledger for the engine."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def intend(self, tx: Tx, at: Situation, plan: Plan) -> Intent:
        """Store the plan. What was revoked in this round is revoked for ever: another try has a key of its own, and
        what is bound to M is handed back as it stands."""
        round, key, times = at.task.round, plan.key, 1
        while (known := effects.find(tx, at.task.id, plan.name, key, round)) is not None:
            if known.state is not EffectState.REVOKED or plan.of_m:
                return known
            times += 1
            key = f"{plan.key}#{times}"
        intent = effects.intend(
            tx,
            at.lease,
            plan.name,
            key,
            round,
            token=plan.token,
            judged=plan.judged,
            sequence=plan.sequence,
        )
        data: dict[str, object] = {"effect": plan.name, "key": key, "sequence": intent.sequence}
        events.append(
            tx, EventType.EFFECT_INTENDED, at.lease.owner, task=at.task, epoch=at.lease.epoch, data=data
        )
        return intent

    def settle(self, tx: Tx, at: Situation, proofs: Sequence[Proof]) -> None:
        """Record proven outcomes."""
        leases.check(tx, at.lease)
        for proof in proofs:
            self._tools.ledger.settle(tx, at.lease, at.task, proof)
