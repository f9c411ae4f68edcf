"""What follows once main shows a merge: the ratchet and stage *deploy*, or a freeze where it is not what was tested."""

from orchestrator.db import effects, evidence, slots
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.ids import Sha
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Holding
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
        """One commit settles merge_pr, writes the ratchet, frees staging and sets stage *deploy*.

        Where main shows anything but what was tested the same commit freezes the repository and calls a person:
        nothing is started, and the ratchet is that of the round whose candidate landed, or none.
        """
        merged = Sha(str(proof.fact["merged"]))
        objection = why_not_as_tested(judged.candidate(proof.intent), proof.fact)

        def ratchet(tx: Tx) -> None:
            landed = next((one for one in evidence.candidates(tx, at.task.id) if one.sha == merged), None)
            if landed is None or proof.fact.get("tree", landed.tree) != landed.tree:
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
                token=str(proof.intent.sequence),
                judged={"measured": percent},
            )
            slots.ratchet(tx, at.task.repo, merged, percent, at.task.id)
            base = slots.baseline(tx, at.task.repo)
            fact = {"baseline": base.percent if base else None, "measured": percent}
            self._tools.ledger.settle(tx, at.lease, at.task, Proof(written, EffectState.APPLIED, fact))

        if objection is None:
            reason = f"merged as {merged}"
            return self._moves.move(
                at, Stage.DEPLOY, EdgeKind.ADVANCE, reason=reason, proofs=[proof], before=ratchet
            )

        def freeze(tx: Tx) -> None:
            ratchet(tx)
            serial_gate.freeze(tx, at.task, at.lease.owner, objection)
            serial_gate.keep_for_the_freeze(tx, at.task, at.lease.owner)

        why = f"merged, but not as tested; nothing is deployed, and the repository is frozen: {objection}"
        self._moves.move(
            at,
            Stage.DEPLOY,
            EdgeKind.ADVANCE,
            reason=why,
            proofs=[proof],
            before=freeze,
            hold=Holding(Hold.ESCALATED, why),
        )
        return Outcome.HELD
