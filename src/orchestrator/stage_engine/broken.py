"""Broken after the merge: the freeze, and what is intended to take production back (DESIGN §3).

What is intended here is the caller's to drive; an :class:`~orchestrator.stage_engine.situation.Outcome` says that there
is nothing to drive.
"""

from collections.abc import Callable, Sequence

from orchestrator.db import alerts, effects, evidence, leases, slots
from orchestrator.db.database import Tx
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.records import Claimant
from orchestrator.domain.effect import Cause, EffectName, EffectState, GivingUp, Intent
from orchestrator.domain.errors import InvariantError
from orchestrator.domain.task import Hold
from orchestrator.effects import judged
from orchestrator.effects.deploy import prepared_undo
from orchestrator.effects.ledger import Proof
from orchestrator.repo_config.records import EnvironmentConfig
from orchestrator.rules.transitions import Step
from orchestrator.stage_engine import serial_gate
from orchestrator.stage_engine.intents import Intents
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.not_now import NotNow
from orchestrator.stage_engine.plans import Plans, of_prepared
from orchestrator.stage_engine.situation import Outcome, Situation, Tools

NO_SLOT = "the merge slot has been given up"
NOT_OURS = "what it started was undone before, or another start has come since"
UNDO_WAITS = "undo-waits"  # the mark of a round whose gate has failed and whose undo cannot be intended yet


class Broken:
    """Decides what is undone, and makes what need not be undone impossible."""

    def __init__(
        self,
        tools: Tools,
        moves: Moves,
        plans: Plans,
        intents: Intents,
        deployer: Deployer,
        wait: Callable[[Situation, str], Outcome],
    ) -> None:
        """``wait`` keeps for people what a task waits for, and says when to look again."""
        self._tools = tools
        self._moves = moves
        self._plans = plans
        self._intents = intents
        self._deployer = deployer
        self._wait = wait

    def undo(self, at: Situation, reason: str, *, proofs: Sequence[Proof] = ()) -> Intent | Outcome:
        """Broken after the merge: one commit stores the undo's intent and freezes the repository (DESIGN §3).

        Nothing is undone without the merge slot, or where the environment's last start is not this task's: it is
        another's, or undone already. Then it stays escalated, the person is told, and a slot in its hand goes to the
        freeze all the same: the fix has to get in (H16).
        """
        if not self._has_the_slot(at):
            return self._moves.hold(
                at, Hold.ESCALATED, f"{reason} Nothing is undone: {NO_SLOT}.", proofs=proofs
            )
        config = at.settings.production
        with self._tools.database.read() as tx:
            last = effects.last_start(tx, config.name) if config is not None else None
        why = f"broken after the merge, the repository is frozen: {reason}"
        ours = last is not None and last.task_id == at.task.id and last.name is EffectName.DEPLOY_INIT
        if config is None or config.undo is None or last is None or not ours:

            def freeze(tx: Tx) -> None:
                serial_gate.freeze(tx, at.task, at.lease.owner, reason)
                serial_gate.keep_for_the_freeze(tx, at.task, at.lease.owner)

            if not ours and self._has_started(at, config):
                why += f" Nothing is undone: {NOT_OURS}."
            return self._moves.hold(at, Hold.ESCALATED, why, proofs=proofs, also=freeze)
        try:
            return self._intend_undo(at, config, config.undo, last, reason, proofs)
        except NotNow as later:
            return self._undo_waits(at, reason, str(later), proofs)

    def _intend_undo(
        self,
        at: Situation,
        config: EnvironmentConfig,
        argv: tuple[str, ...],
        last: Intent,
        reason: str,
        proofs: Sequence[Proof],
    ) -> Intent:
        """The freeze and the undo's intent in one commit.

        :raises NotNow: another start there is not settled; nothing was written.
        """
        with self._tools.database.write() as tx:
            self._intents.settle(tx, at, proofs)
            serial_gate.freeze(tx, at.task, at.lease.owner, reason)
            prepared = prepared_undo(last)
            known = effects.by_sequence(tx, prepared.sequence) if prepared is not None else None
            called_off = known is not None and known.state is EffectState.REVOKED
            plan = self._plans.undo(tx, at, config, argv, last, anew=called_off)
            if prepared is not None:
                plan.judged["reason"] = reason  # drawn before anybody could know it
            return self._intents.intend(tx, at, plan)

    def _undo_waits(self, at: Situation, reason: str, later: str, proofs: Sequence[Proof]) -> Outcome:
        """Freeze and call a person at once though nothing can be undone yet. The task is not held: each look comes
        back to its gate, which the stored check decides as before, until the undo can be intended."""
        why = f"broken after the merge, the repository is frozen: {reason} Its undo waits: {later}."
        text = f"{at.task.work_item} {at.task.stage}: {why}"
        with self._tools.database.write() as tx:
            self._intents.settle(tx, at, proofs)
            if slots.frozen(tx, at.task.repo) is None:
                serial_gate.freeze(tx, at.task, at.lease.owner, reason)
            evidence.mark_step(tx, at.task, UNDO_WAITS)
            alerts.call_and_comment(tx, at.task, text, at.task.work_item, "undo-waits", at.task.round)
        return self._wait(at, why)

    def undo_anew(
        self, at: Situation, config: EnvironmentConfig, argv: tuple[str, ...], proof: Proof
    ) -> Intent | Outcome:
        """An undo that was given up to be done once more: settle it, and intend another in the same commit."""
        try:
            with self._tools.database.write() as tx:
                self._intents.settle(tx, at, [proof])
                last = effects.last_start(tx, config.name)
                if last is None:
                    raise InvariantError(f"nothing was started in {config.name} that could be undone")
                plan = self._plans.undo(tx, at, config, argv, last, anew=True)
                return self._intents.intend(tx, at, plan)
        except NotNow as later:
            return self._undo_waits(at, judged.text(proof.intent, "reason"), str(later), [proof])

    def call_off(self, at: Situation, step: Step) -> Intent | Outcome:
        """Before a deploy of ourselves is done: see to it that its runner can no longer undo it (law 4, S-15).

        Intended and given up in one commit: a crash in between must leave nobody an undo to drive forward.
        """
        prepared = prepared_undo(at.self_start) if at.self_start is not None else None
        if prepared is None:
            raise InvariantError(f"{at.task.work_item} has no conditional undo")
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            intent = effects.by_sequence(tx, prepared.sequence)
            if intent is None:
                plan = of_prepared(prepared)
                plan.judged["step"] = step.name
                plan.judged["reason"] = (
                    f"its runner undid {plan.judged['sha']}, which had not reported in time"
                )
                intent = self._intents.intend(tx, at, plan)
                intent = self._tools.ledger.give_up_at_once(
                    tx, at.lease, at.task, intent, GivingUp(Cause.FACTS, "production is healthy")
                )
        if intent.state.settled:
            return self._moves.mark(at, step, dict(intent.fact or {}))
        self._tools.waypoints.reach("deploy_undo.called_off", task=at.task.id, epoch=at.lease.epoch)
        return intent

    def undone_meanwhile(self, at: Situation) -> str | None:
        """What the runner of a deploy of ourselves has undone while a person was called; None: it has not."""
        prepared = prepared_undo(at.self_start) if at.self_start is not None else None
        if prepared is None:
            return None
        with self._tools.database.read() as tx:
            if effects.by_sequence(tx, prepared.sequence) is not None:
                return None
        claim = self._deployer.started(prepared.start())
        if claim is None or claim.by is not Claimant.CHILD:
            return None
        return f"its runner has undone {prepared.judged['sha']}, which had not reported in time"

    # --- small steps --------------------------------------------------------------------------------------------------

    def _has_the_slot(self, at: Situation) -> bool:
        """Whether production is this task's to take back."""
        with self._tools.database.read() as tx:
            return slots.merge_slot(at.task.repo) in slots.held_by(tx, at.task.id)

    def _has_started(self, at: Situation, config: EnvironmentConfig | None) -> bool:
        with self._tools.database.read() as tx:
            ours = effects.of_task(tx, at.task.id)
        return config is not None and any(
            e.name is EffectName.DEPLOY_INIT
            and e.state is EffectState.APPLIED
            and e.judged.get("environment") == config.name
            for e in ours
        )
