"""What follows once main shows a merge: the ratchet and stage *deploy*, or a freeze where it is not what was tested."""

from collections.abc import Callable, Mapping

from orchestrator.db import effects, evidence, slots
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.ids import Sha
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold, Holding
from orchestrator.effects import judged
from orchestrator.effects.ledger import Proof
from orchestrator.effects.merge import why_not_as_tested
from orchestrator.gates.coverage_gate import measured_percent
from orchestrator.rules.transitions import EdgeKind
from orchestrator.stage_engine import serial_gate
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.plans import candidate_check
from orchestrator.stage_engine.situation import Outcome, Situation, Tools


class Merged:
    """Follows a merge up."""

    def __init__(self, tools: Tools, moves: Moves) -> None:
        self._tools = tools
        self._moves = moves

    def settled(self, at: Situation, proof: Proof) -> Outcome:
        """One commit settles merge_pr, writes the ratchet, frees staging and sets stage *deploy*."""

        def settle(tx: Tx) -> Intent:
            self._tools.ledger.settle(tx, at.lease, at.task, proof)
            return proof.intent

        tested, reason = judged.candidate(proof.intent), f"merged as {proof.fact['merged']}"
        return self.follow(at, EdgeKind.ADVANCE, tested, proof.fact, settle, reason=reason)

    def follow(
        self,
        at: Situation,
        kind: EdgeKind,
        tested: Candidate,
        fact: Mapping[str, object],
        settle: Callable[[Tx], Intent],
        *,
        reason: str,
        frozen_for: str | None = None,
        hold: Holding | None = None,
    ) -> Outcome:
        """Set stage *deploy* in the commit in which ``settle`` settles merge_pr, whose ``fact`` is what main shows.

        Where main shows anything but what was ``tested`` the same commit freezes the repository and calls a person:
        nothing is started, and the ratchet is that of the round whose candidate landed, or none. ``frozen_for`` is
        another reason to freeze it.
        """
        objection = why_not_as_tested(tested, fact)
        if objection is not None:
            reason = f"{reason}, but not as tested; nothing more is deployed, and the repository is frozen: {objection}"
            frozen_for, hold = objection, Holding(Hold.ESCALATED, reason)

        def write(tx: Tx) -> None:
            self._ratchet(tx, at, settle(tx), fact)
            if frozen_for is not None:
                serial_gate.freeze(tx, at.task, at.lease.owner, frozen_for)
                serial_gate.keep_for_the_freeze(tx, at.task, at.lease.owner)
                slots.keep_for_freeze(tx, at.task.repo)
            elif hold is not None:  # nobody waits for a person with the slots in hand
                serial_gate.give_back(tx, at.task, at.lease.owner)

        return self._moves.move(at, Stage.DEPLOY, kind, reason=reason, before=write, hold=hold)

    def _ratchet(self, tx: Tx, at: Situation, merge: Intent, fact: Mapping[str, object]) -> None:
        merged = Sha(str(fact["merged"]))
        landed = next((one for one in evidence.candidates(tx, at.task.id) if one.sha == merged), None)
        if landed is None or fact.get("tree", landed.tree) != landed.tree:
            return
        check = candidate_check(tx, at, landed)
        percent = measured_percent(check) if check is not None and check.passed else None
        if percent is None:
            return
        written = effects.intend(
            tx,
            at.lease,
            EffectName.RATCHET,
            merged,
            at.task.round,
            token=str(merge.sequence),
            judged={"measured": percent},
        )
        slots.ratchet(tx, at.task.repo, merged, percent, at.task.id)
        base = slots.baseline(tx, at.task.repo)
        shown = {"baseline": base.percent if base else None, "measured": percent}
        self._tools.ledger.settle(tx, at.lease, at.task, Proof(written, EffectState.APPLIED, shown))
