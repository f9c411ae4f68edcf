"""Effect steps: intend, drive, and what follows when a probe has shown the outcome."""

from collections.abc import Sequence

from orchestrator.db import alerts, effects, events, evidence, leases, slots, tasks
from orchestrator.db.database import Tx
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.records import Claimant
from orchestrator.domain.effect import Cause, EffectName, EffectState, GivingUp, Intent
from orchestrator.domain.errors import InvariantError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import Sha
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Holding
from orchestrator.effects import judged
from orchestrator.effects.deploy import declare_ended, prepared_undo, start_of
from orchestrator.effects.ledger import Open, Proof
from orchestrator.effects.merge import why_not_as_tested
from orchestrator.gates.coverage_gate import measured_percent
from orchestrator.repo_config.records import EnvironmentConfig
from orchestrator.rules.transitions import (
    CALL_OFF_UNDO,
    PUSH_BRANCH,
    STAGE_STEPS,
    START_PRODUCTION,
    START_STAGING,
    EdgeKind,
    Step,
)
from orchestrator.stage_engine import serial_gate
from orchestrator.stage_engine.failures import Failures
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.not_now import NotNow
from orchestrator.stage_engine.plans import Plan, Plans, branch_of, candidate_check, of_prepared
from orchestrator.stage_engine.situation import Outcome, Situation, Tools
from orchestrator.stage_engine.undone import Undone
from orchestrator.stage_engine.ways_back import WaysBack

NOT_OURS = "another start has come since, or the merge slot has been given up"
UNDO_WAITS = "undo-waits"  # the mark of a round whose gate has failed and whose undo cannot be intended yet
TURNED_BY_CANCEL = frozenset({EffectName.PUSH, EffectName.OPEN_PR, EffectName.IMAGE, EffectName.MERGE_PR})


class Acts:
    """Intends, drives and follows up effects."""

    def __init__(
        self,
        tools: Tools,
        moves: Moves,
        back: WaysBack,
        plans: Plans,
        deployer: Deployer,
        failures: Failures,
    ) -> None:
        self._tools = tools
        self._moves = moves
        self._back = back
        self._plans = plans
        self._deployer = deployer
        self._failures = failures
        self._undone = Undone(tools, moves)

    def take(self, at: Situation, step: Step) -> Outcome:
        """Intend the step's effect and drive it. The finalizer starts no new deploy (DESIGN §7)."""
        if at.lease.owner is Actor.FINALIZER and step in (START_STAGING, START_PRODUCTION):
            return Outcome.DEFERRED
        tip = at.place.forge.tip(branch_of(at)) if step == PUSH_BRANCH else None
        if step == PUSH_BRANCH:
            if (moved := self._foreign_commits(at, tip)) is not None:
                return moved
            if tip == at.task.head_sha:
                return self._moves.mark(at, step, {"already": tip})
        try:
            self._earlier_start_has_ended(at, step)
            with self._tools.database.write() as tx:
                leases.check(tx, at.lease)
                intent = self._intend(tx, at, self._plans.of(tx, at, step, tip))
        except NotNow as why:
            return self._wait(at, str(why))
        self._tools.waypoints.reach(f"{intent.name.value}.intended", task=at.task.id, epoch=at.lease.epoch)
        if intent.state is EffectState.APPLIED:
            return self._moves.mark(at, step, dict(intent.fact or {}))
        if intent.state is EffectState.REVOKED:
            return self._back.renew(at, f"{intent.name} of this candidate was given up", proofs=[])
        return self.drive(at, intent)

    def drive(self, at: Situation, intent: Intent, *, cancelled: GivingUp | None = None) -> Outcome:
        """Bring one unsettled effect of the task to its outcome and follow it up.

        ``cancelled`` turns what can be given up before the merge; a deploy or its undo is never turned (law 3).
        """
        turned = cancelled if intent.name in TURNED_BY_CANCEL and at.task.stage is not Stage.DEPLOY else None
        seen = self._tools.ledger.drive(at.lease, at.task, intent, turned=turned)
        if isinstance(seen, Open):
            if intent.name is EffectName.DEPLOY_UNDO and at.task.stage is Stage.DEPLOY:
                self._undone.goes_on(at, seen)
            return self._wait(at, seen.reason)
        return self.follow(at, seen)

    def follow(self, at: Situation, proof: Proof) -> Outcome:
        """What follows from a proven outcome, in the commit that settles it."""
        return self._applied(at, proof) if proof.state is EffectState.APPLIED else self._revoked(at, proof)

    def broken(self, at: Situation, reason: str, *, proofs: Sequence[Proof] = ()) -> Outcome:
        """Broken after the merge: one commit stores the undo's intent and freezes the repository (DESIGN §3).

        Nothing is undone without the merge slot, or where the environment's last start is not this task's: it is
        another's, or undone already. Then it stays escalated, and the person is told.
        """
        if not self._is_ours(at):
            return self._moves.hold(
                at, Hold.ESCALATED, f"{reason} Nothing is undone: {NOT_OURS}.", proofs=proofs
            )
        config = at.settings.production
        with self._tools.database.read() as tx:
            last = effects.last_start(tx, config.name) if config is not None else None
        why = f"broken after the merge, the repository is frozen: {reason}"
        if config is None or config.undo is None or last is None or last.task_id != at.task.id:

            def freeze(tx: Tx) -> None:
                serial_gate.freeze(tx, at.task, at.lease.owner, reason)
                serial_gate.keep_for_the_freeze(tx, at.task, at.lease.owner)

            return self._moves.hold(at, Hold.ESCALATED, why, proofs=proofs, also=freeze)
        try:
            intent = self._intend_undo(at, config, config.undo, last, reason, proofs)
        except NotNow as later:
            return self._undo_waits(at, reason, str(later), proofs)
        return self.drive(at, intent)

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
            self._settle(tx, at, proofs)
            serial_gate.freeze(tx, at.task, at.lease.owner, reason)
            prepared = prepared_undo(last)
            known = effects.by_sequence(tx, prepared.sequence) if prepared is not None else None
            called_off = known is not None and known.state is EffectState.REVOKED
            plan = self._plans.undo(tx, at, config, argv, last, anew=called_off)
            if prepared is not None:
                plan.judged["reason"] = reason  # drawn before anybody could know it
            return self._intend(tx, at, plan)

    def _undo_waits(self, at: Situation, reason: str, later: str, proofs: Sequence[Proof]) -> Outcome:
        """Freeze and call a person at once though nothing can be undone yet. The task is not held: each look comes
        back to its gate, which the stored check decides as before, until the undo can be intended."""
        why = f"broken after the merge, the repository is frozen: {reason} Its undo waits: {later}."
        text = f"{at.task.work_item} {at.task.stage}: {why}"
        with self._tools.database.write() as tx:
            self._settle(tx, at, proofs)
            if slots.frozen(tx, at.task.repo) is None:
                serial_gate.freeze(tx, at.task, at.lease.owner, reason)
            evidence.mark_step(tx, at.task, UNDO_WAITS)
            alerts.call_and_comment(tx, at.task, text, at.task.work_item, "undo-waits", at.task.round)
        return self._wait(at, why)

    def call_off(self, at: Situation, step: Step) -> Outcome:
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
                intent = self._intend(tx, at, plan)
                intent = self._tools.ledger.give_up_at_once(
                    tx, at.lease, at.task, intent, GivingUp(Cause.FACTS, "production is healthy")
                )
        if intent.state.settled:
            return self._moves.mark(at, step, dict(intent.fact or {}))
        self._tools.waypoints.reach("deploy_undo.called_off", task=at.task.id, epoch=at.lease.epoch)
        return self.drive(at, intent)

    def undone_meanwhile(self, at: Situation) -> Outcome | None:
        """Settle what the runner of a deploy of ourselves has undone while a person was called; None: it has not."""
        prepared = prepared_undo(at.self_start) if at.self_start is not None else None
        if prepared is None:
            return None
        with self._tools.database.read() as tx:
            if effects.by_sequence(tx, prepared.sequence) is not None:
                return None
        claim = self._deployer.started(prepared.start())
        if claim is None or claim.by is not Claimant.CHILD:
            return None
        return self.broken(
            at, f"its runner has undone {prepared.judged['sha']}, which had not reported in time"
        )

    # --- what follows -------------------------------------------------------------------------------------------------

    def _applied(self, at: Situation, proof: Proof) -> Outcome:
        if proof.intent.name is EffectName.MERGE_PR:
            return self._merged(at, proof)
        if proof.intent.name is EffectName.DEPLOY_UNDO:
            return self._undone.settled(at, proof)
        step = _step(at, judged.text(proof.intent, "step"))

        def also(tx: Tx) -> None:
            if proof.intent.name is EffectName.OPEN_PR:
                tasks.set_pr(tx, at.task.id, int(str(proof.fact["number"])))

        return self._moves.mark(at, step, dict(proof.fact), proofs=[proof], also=also)

    def _merged(self, at: Situation, proof: Proof) -> Outcome:
        """One commit settles merge_pr, writes the ratchet, frees staging and sets stage *deploy*.

        Where main shows anything but what was tested the same commit freezes the repository and calls a person:
        nothing is started, and the ratchet is that of the round whose candidate landed, or none.
        """
        merged = Sha(str(proof.fact["merged"]))
        objection = why_not_as_tested(proof.intent, proof.fact)

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

    def _revoked(self, at: Situation, proof: Proof) -> Outcome:
        """An effect was given up for good: what follows depends on why, read from the facts again."""
        if judged.optional_text(proof.intent, "step") == CALL_OFF_UNDO.name:
            return self._moves.mark(at, CALL_OFF_UNDO, dict(proof.fact), proofs=[proof])
        reason, cause = proof.reason or "given up", proof.intent.cause
        if cause is Cause.CANCELLED and at.task.stage is not Stage.DEPLOY:
            return self._moves.move(at, Stage.CANCELLED, EdgeKind.CANCEL, reason=reason, proofs=[proof])
        if cause is Cause.AGAIN:
            return self._again(at, proof)
        if cause is Cause.RESTORED and at.task.stage is not Stage.DEPLOY:
            self._moves.hold(at, Hold.ESCALATED, reason, proofs=[proof])
            return Outcome.MOVED  # the word itself is answered next
        if proof.intent.name is EffectName.MERGE_PR:
            main = at.place.forge.tip(at.place.forge.default_branch)
            if main != judged.candidate(proof.intent).base_sha:
                return self._back.renew(at, f"main moved to {main}", proofs=[proof])
        why = f"{proof.intent.name} was given up: {reason}"
        if proof.intent.name is EffectName.DEPLOY_UNDO:
            return self._moves.hold(
                at,
                Hold.ESCALATED,
                why,
                proofs=[proof],
                also=lambda tx: serial_gate.keep_for_the_freeze(tx, at.task, at.lease.owner),
            )
        if proof.intent.name is EffectName.DEPLOY_INIT and at.task.stage is not Stage.DEPLOY:
            return self._moves.hold(at, Hold.ESCALATED, why, proofs=[proof])
        if at.task.stage is Stage.DEPLOY:  # there is no way back any more
            return self.broken(at, reason, proofs=[proof])
        return self._back.reject(at, reason, brief=reason, proofs=[proof])

    def _again(self, at: Situation, proof: Proof) -> Outcome:
        """A person has had it given up to be done once more: a fresh intent, never the revoked one (law 4)."""
        if "candidate" in proof.intent.judged:  # a revoked M never comes back
            return self._moves.move(
                at,
                Stage.DEPLOY_STAGING,
                EdgeKind.RENEW,
                reason=proof.reason,
                proofs=[proof],
                before=lambda tx: tasks.forgive(tx, at.task.id),
            )
        config = at.settings.production if proof.intent.name is EffectName.DEPLOY_UNDO else None
        if config is None or config.undo is None:
            with self._tools.database.write() as tx:
                self._settle(tx, at, [proof])
            return Outcome.MOVED  # the step is looked at anew and intends with a key of its own
        try:
            with self._tools.database.write() as tx:
                self._settle(tx, at, [proof])
                last = effects.last_start(tx, config.name)
                if last is None:
                    raise InvariantError(f"nothing was started in {config.name} that could be undone")
                plan = self._plans.undo(tx, at, config, config.undo, last, anew=True)
                intent = self._intend(tx, at, plan)
        except NotNow as later:
            return self._undo_waits(at, judged.text(proof.intent, "reason"), str(later), [proof])
        return self.drive(at, intent)

    # --- small steps --------------------------------------------------------------------------------------------------

    def _intend(self, tx: Tx, at: Situation, plan: Plan) -> Intent:
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
        _event(tx, EventType.EFFECT_INTENDED, at, data)
        return intent

    def _settle(self, tx: Tx, at: Situation, proofs: Sequence[Proof]) -> None:
        leases.check(tx, at.lease)
        for proof in proofs:
            self._tools.ledger.settle(tx, at.lease, at.task, proof)

    def _is_ours(self, at: Situation) -> bool:
        """Whether production is this task's to take back: it has the merge slot, and no other start has come since."""
        config = at.settings.production
        with self._tools.database.read() as tx:
            if slots.merge_slot(at.task.repo) not in slots.held_by(tx, at.task.id):
                return False
            last = effects.last_start(tx, config.name) if config is not None else None
            ours = effects.of_task(tx, at.task.id)
        started = config is not None and any(
            e.name is EffectName.DEPLOY_INIT
            and e.state is EffectState.APPLIED
            and e.judged.get("environment") == config.name
            for e in ours
        )
        if not started or last is None:
            return True
        return last.task_id == at.task.id and last.name is EffectName.DEPLOY_INIT

    def _foreign_commits(self, at: Situation, tip: Sha | None) -> Outcome | None:
        """Somebody else's commits on the branch go back to development; they are neither lost nor passed unjudged."""
        if tip is None or at.task.head_sha is None:
            return None
        if not at.place.clone.has(tip):
            at.place.clone.fetch()
        if at.place.clone.is_ancestor(tip, at.task.head_sha):
            return None
        brief = (
            f"Somebody else has moved the branch {branch_of(at)} to {tip}. Merge that commit into your work "
            f"(git merge {tip}) and keep what it changes."
        )
        return self._back.reject(at, f"the branch was moved to {tip} by somebody else", brief=brief)

    def _earlier_start_has_ended(self, at: Situation, step: Step) -> None:
        """No start in an environment while an earlier command there may still run (H9)."""
        environment = {
            START_STAGING: at.settings.staging,
            START_PRODUCTION: at.settings.production,
        }.get(step)
        if environment is None:
            return
        with self._tools.database.read() as tx:
            last = effects.last_start(tx, environment.name)
        if last is not None and self._deployer.exit(start_of(last)) is None:
            raise NotNow(
                f"the start of {last.judged['sha']} in {environment.name} has not ended "
                f"({declare_ended(last)})"
            )

    def _wait(self, at: Situation, reason: str) -> Outcome:
        self._failures.note(at.task.id, reason)
        self._tools.waypoints.reach("effect.open", task=at.task.id, reason=reason)
        return Outcome.RETRY


def _event(tx: Tx, type: EventType, at: Situation, data: dict[str, object]) -> None:
    events.append(tx, type, at.lease.owner, task=at.task, epoch=at.lease.epoch, data=data)


def _step(at: Situation, name: str) -> Step:
    for step in STAGE_STEPS[at.task.stage]:
        if step.name == name:
            return step
    raise InvariantError(f"{at.task.stage} has no step {name}")
