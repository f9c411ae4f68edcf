"""Effect steps: intend, drive, and what follows when a probe has shown the outcome."""

from collections.abc import Sequence

from orchestrator.db import effects, evidence, leases, tasks
from orchestrator.db.database import Tx
from orchestrator.deploy.deployer import Deployer
from orchestrator.domain.effect import Cause, EffectName, EffectState, GivingUp, Intent
from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import Sha
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.effects import judged
from orchestrator.effects.deploy import declare_ended, start_of
from orchestrator.effects.ledger import Open, Proof
from orchestrator.rules.transitions import (
    CALL_OFF_UNDO,
    PUSH_BRANCH,
    STAGE_STEPS,
    START_PRODUCTION,
    START_STAGING,
    EdgeKind,
    Step,
)
from orchestrator.stage_engine import answers, serial_gate
from orchestrator.stage_engine.broken import Broken
from orchestrator.stage_engine.failures import Failures
from orchestrator.stage_engine.intents import Intents
from orchestrator.stage_engine.merged import Merged
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.not_now import NotNow
from orchestrator.stage_engine.plans import Plans, branch_of
from orchestrator.stage_engine.pull_requests import PullRequests
from orchestrator.stage_engine.signals import CANCEL
from orchestrator.stage_engine.situation import Outcome, Situation, Tools
from orchestrator.stage_engine.undone import Undone
from orchestrator.stage_engine.ways_back import WaysBack

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
        pulls: PullRequests,
    ) -> None:
        self._tools = tools
        self._moves = moves
        self._back = back
        self._plans = plans
        self._deployer = deployer
        self._failures = failures
        self._pulls = pulls
        self._intents = Intents(tools)
        self._merged = Merged(tools, moves)
        self._broken = Broken(tools, moves, plans, self._intents, deployer, self._wait)
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
                return self._pushed(at, step, {"already": tip}, at.task.head_sha)
        try:
            environment = _started_by(at, step)
            if environment is not None:
                self._earlier_start_has_ended(environment)
            with self._tools.database.write() as tx:
                leases.check(tx, at.lease)
                if environment is not None:
                    serial_gate.take_place(tx, at.task, environment, at.lease.owner)
                intent = self._intents.intend(tx, at, self._plans.of(tx, at, step, tip))
        except NotNow as why:
            return self._wait(at, str(why))
        self._tools.waypoints.reach(f"{intent.name.value}.intended", task=at.task.id, epoch=at.lease.epoch)
        if intent.state is EffectState.APPLIED:
            if step == PUSH_BRANCH:
                return self._pushed(at, step, dict(intent.fact or {}), judged.text(intent, "sha"))
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
        """Freeze the repository of a task that is broken after its merge, and have production taken back."""
        return self._driven(at, self._broken.undo(at, reason, proofs=proofs))

    def call_off(self, at: Situation, step: Step) -> Outcome:
        """Before a deploy of ourselves is done: see to it that its runner can no longer undo it."""
        return self._driven(at, self._broken.call_off(at, step))

    def undone_meanwhile(self, at: Situation) -> Outcome | None:
        """Settle what the runner of a deploy of ourselves has undone while a person was called; None: it has not."""
        undone = self._broken.undone_meanwhile(at)
        return self.broken(at, undone) if undone is not None else None

    # --- what follows -------------------------------------------------------------------------------------------------

    def _applied(self, at: Situation, proof: Proof) -> Outcome:
        if proof.intent.name is EffectName.MERGE_PR:
            return self._merged.settled(at, proof)
        if proof.intent.name is EffectName.DEPLOY_UNDO:
            return self._undone.settled(at, proof)
        step = _step(at, judged.text(proof.intent, "step"))
        if step == PUSH_BRANCH:
            return self._pushed(at, step, dict(proof.fact), judged.text(proof.intent, "sha"), proofs=[proof])

        def also(tx: Tx) -> None:
            if proof.intent.name is EffectName.OPEN_PR:
                tasks.set_pr(tx, at.task.id, int(str(proof.fact["number"])))

        return self._moves.mark(at, step, dict(proof.fact), proofs=[proof], also=also)

    def _pushed(
        self,
        at: Situation,
        step: Step,
        facts: dict[str, object],
        sha: str | None,
        *,
        proofs: Sequence[Proof] = (),
    ) -> Outcome:
        """The forge has the branch: from now on everybody sees what is on it."""

        def also(tx: Tx) -> None:
            if sha == at.task.head_sha:
                tasks.set_work_home(tx, at.task.id, None)

        outcome = self._moves.mark(at, step, facts, proofs=proofs, also=also)
        self._tools.hand_on(at.task.id)
        return outcome

    def _revoked(self, at: Situation, proof: Proof) -> Outcome:
        """An effect was given up for good: what follows depends on why, read from the facts again."""
        if judged.optional_text(proof.intent, "step") == CALL_OFF_UNDO.name:
            return self._moves.mark(at, CALL_OFF_UNDO, dict(proof.fact), proofs=[proof])
        reason, cause = proof.reason or "given up", proof.intent.cause
        if cause is Cause.CANCELLED and at.task.stage is not Stage.DEPLOY:
            return self._cancelled(at, proof, reason)
        if cause is Cause.AGAIN:
            return self._again(at, proof)
        if cause is Cause.RESTORED and at.task.stage is not Stage.DEPLOY:
            self._moves.hold(at, Hold.ESCALATED, reason, proofs=[proof])
            return Outcome.MOVED  # the word itself is answered next
        if proof.intent.name is EffectName.MERGE_PR:
            main = at.place.forge.tip(at.place.forge.default_branch)
            if main != judged.candidate(proof.intent).base_sha:
                return self._back.renew(at, f"main moved to {main}", proofs=[proof])
            if (shut := self._pulls.shut(at)) is not None:
                return self._pulls.hold(at, shut, proofs=[proof])
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

    def _cancelled(self, at: Situation, proof: Proof, reason: str) -> Outcome:
        """A cancel has turned it, and is answered in the same commit; where main shows an earlier candidate of the task
        it is refused next (law 4)."""
        with self._tools.database.read() as tx:
            candidates = evidence.candidates(tx, at.task.id)
        if candidates and at.place.forge.landed(candidates) is not None:
            return self._only_settle(at, proof)
        return self._moves.move(
            at,
            Stage.CANCELLED,
            EdgeKind.CANCEL,
            reason=reason,
            proofs=[proof],
            before=lambda tx: answers.done(tx, at.lease, at.task, CANCEL),
        )

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
            return self._only_settle(
                at, proof
            )  # the step is looked at anew and intends with a key of its own
        return self._driven(at, self._broken.undo_anew(at, config, config.undo, proof))

    def _driven(self, at: Situation, decided: Intent | Outcome) -> Outcome:
        return decided if isinstance(decided, Outcome) else self.drive(at, decided)

    def _only_settle(self, at: Situation, proof: Proof) -> Outcome:
        with self._tools.database.write() as tx:
            self._intents.settle(tx, at, [proof])
        return Outcome.MOVED

    # --- small steps --------------------------------------------------------------------------------------------------

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

    def _earlier_start_has_ended(self, environment: str) -> None:
        """No start in an environment while an earlier command there may still run (H9)."""
        with self._tools.database.read() as tx:
            last = effects.last_start(tx, environment)
        if last is not None and self._deployer.exit(start_of(last)) is None:
            raise NotNow(
                f"the start of {last.judged['sha']} in {environment} has not ended ({declare_ended(last)})"
            )

    def _wait(self, at: Situation, reason: str) -> Outcome:
        self._failures.note(at.task.id, reason)
        self._tools.waypoints.reach("effect.open", task=at.task.id, reason=reason)
        return Outcome.RETRY


def _started_by(at: Situation, step: Step) -> str | None:
    """The environment in which a step starts something."""
    found = {START_STAGING: at.settings.staging, START_PRODUCTION: at.settings.production}.get(step)
    return found.name if found is not None else None


def _step(at: Situation, name: str) -> Step:
    for step in STAGE_STEPS[at.task.stage]:
        if step.name == name:
            return step
    raise InvariantError(f"{at.task.stage} has no step {name}")
