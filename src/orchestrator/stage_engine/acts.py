"""Effect steps: what each intent carries, and what follows when a probe has shown its outcome."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.db import effects, events, evidence, leases, slots, tasks
from orchestrator.db.database import Tx
from orchestrator.deploy.deployer import Deployer
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import InvariantError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import Digest, Sha
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold
from orchestrator.effects import judged
from orchestrator.effects.deploy import start_of
from orchestrator.effects.image import of_config
from orchestrator.effects.ledger import Open, Proof
from orchestrator.gates.coverage_gate import measured_percent
from orchestrator.images.store import ImageStore
from orchestrator.repo_config.records import EnvironmentConfig
from orchestrator.rules.transitions import (
    IMAGE,
    MERGE,
    OPEN_PR,
    PROMOTE,
    PUSH_BRANCH,
    PUSH_CANDIDATE,
    STAGE_STEPS,
    START_PRODUCTION,
    START_STAGING,
    EdgeKind,
    Step,
    reject_target,
)
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.situation import Outcome, Situation, Tools

PR_BODY_LIMIT = 4000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is about to be intended."""

    name: EffectName
    key: str
    token: str
    judged: dict[str, object]


class NotYet(Exception):
    """The step cannot be intended now; the text says why. Leaves a write block without a trace."""


class Acts:
    """Intends, drives and follows up effects."""

    def __init__(self, tools: Tools, moves: Moves, deployer: Deployer, store: ImageStore) -> None:
        self._tools = tools
        self._moves = moves
        self._deployer = deployer
        self._store = store
        self._plans: dict[str, Callable[[Tx, Situation, Sha | None], Plan]] = {
            PUSH_BRANCH.name: self._push_branch,
            PUSH_CANDIDATE.name: self._push_candidate,
            OPEN_PR.name: self._open_pr,
            IMAGE.name: self._image,
            PROMOTE.name: self._promote,
            START_STAGING.name: self._start_staging,
            START_PRODUCTION.name: self._start_production,
            MERGE.name: self._merge,
        }

    def take(self, at: Situation, step: Step) -> Outcome:
        """Intend the step's effect and drive it."""
        tip = at.place.forge.tip(_branch(at)) if step == PUSH_BRANCH else None
        if step == PUSH_BRANCH:
            if (moved := self._foreign_commits(at, tip)) is not None:
                return moved
            if tip == at.task.head_sha:
                return self._moves.mark(at, step, {"already": tip})
        try:
            self._earlier_start_has_ended(at, step)
            with self._tools.database.write() as tx:
                leases.check(tx, at.lease)
                plan = self._plans[step.name](tx, at, tip)
                plan.judged["step"] = step.name
                intent = self._intend(tx, at, plan)
        except NotYet as why:
            return self._wait(at, str(why))
        self._tools.waypoints.reach(f"{intent.name.value}.intended", task=at.task.id, epoch=at.lease.epoch)
        if intent.state is EffectState.APPLIED:
            return self._moves.mark(at, step, dict(intent.fact or {}))
        if intent.state is EffectState.REVOKED:
            raise InvariantError(f"{intent.name} {intent.key} was revoked in this very round")
        return self.drive(at, intent)

    def drive(self, at: Situation, intent: Intent, *, cancelled: str | None = None) -> Outcome:
        """Bring one unsettled effect of the task to its outcome and follow it up. ``cancelled`` turns a merge only."""
        turned = cancelled if intent.name is EffectName.MERGE_PR else None
        seen = self._tools.ledger.drive(at.lease, at.task, intent, turned=turned)
        if isinstance(seen, Open):
            return self._wait(at, seen.reason)
        if seen.state is EffectState.APPLIED:
            return self._applied(at, seen)
        return self._revoked(at, seen)

    def undo_production(self, at: Situation, reason: str) -> Outcome:
        """Broken after the merge: one commit stores the undo's intent and freezes the repository (DESIGN §3)."""
        config = at.settings.production
        started = self._tx_read(lambda tx: effects.applied(tx, at.task.id, EffectName.DEPLOY_INIT))
        undoable = config is not None and config.undo is not None and started is not None
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            slots.freeze(
                tx, at.task.repo, f"{at.task.work_item} is broken after its merge: {reason}", at.task.id
            )
            _event(tx, EventType.REPO_FROZEN, at, {"reason": reason})
            intent = None
            if undoable and config is not None and config.undo is not None and started is not None:
                plan = self._undo(tx, at, config, config.undo, started)
                intent = self._intend(tx, at, plan)
            else:
                slots.give_to_freeze(tx, at.task.repo, at.task.id)
        if intent is not None:
            return self.drive(at, intent)
        return self._moves.hold(
            at, Hold.ESCALATED, f"broken after the merge, the repository is frozen: {reason}"
        )

    def _applied(self, at: Situation, proof: Proof) -> Outcome:
        if proof.intent.name is EffectName.MERGE_PR:
            return self._merged(at, proof)
        if proof.intent.name is EffectName.DEPLOY_UNDO:
            return self._undone(at, proof)
        step = _step(at, judged.text(proof.intent, "step"))

        def also(tx: Tx) -> None:
            if proof.intent.name is EffectName.OPEN_PR:
                tasks.set_pr(tx, at.task.id, int(str(proof.fact["number"])))

        return self._moves.mark(at, step, dict(proof.fact), proofs=[proof], also=also)

    def _merged(self, at: Situation, proof: Proof) -> Outcome:
        """One commit settles merge_pr, writes the ratchet, frees staging and sets stage *deploy*."""
        merged = Sha(str(proof.fact["merged"]))

        def ratchet(tx: Tx) -> None:
            percent = measured_percent(_candidate_check(tx, at))
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

        return self._moves.move(
            at, Stage.DEPLOY, EdgeKind.ADVANCE, reason=f"merged as {merged}", proofs=[proof], before=ratchet
        )

    def _undone(self, at: Situation, proof: Proof) -> Outcome:
        """The commit that settles the undo gives the merge slot to the freeze."""
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            self._tools.ledger.settle(tx, at.lease, at.task, proof)
            slots.give_to_freeze(tx, at.task.repo, at.task.id)
        reason = (
            f"production was rolled back and {at.task.repo} is frozen: {judged.text(proof.intent, 'reason')}"
        )
        return self._moves.hold(at, Hold.ESCALATED, reason)

    def _revoked(self, at: Situation, proof: Proof) -> Outcome:
        """An effect was given up for good: what follows depends on why, read from the facts again."""
        task, reason = at.task, proof.reason or "given up"
        if proof.intent.name is EffectName.MERGE_PR:
            main = at.place.forge.tip(at.place.forge.default_branch)
            if reason.startswith("cancel"):
                return self._moves.move(at, Stage.CANCELLED, EdgeKind.CANCEL, reason=reason, proofs=[proof])
            if main != judged.candidate(proof.intent).base_sha:
                return self.renew(at, f"main moved to {main}", proofs=[proof])
        if proof.intent.name in (EffectName.DEPLOY_INIT, EffectName.DEPLOY_UNDO):
            with self._tools.database.write() as tx:
                leases.check(tx, at.lease)
                self._tools.ledger.settle(tx, at.lease, task, proof)
            return self._moves.hold(at, Hold.ESCALATED, f"{proof.intent.name} was given up: {reason}")
        return self.reject(at, reason, brief=reason, proofs=[proof])

    def renew(self, at: Situation, reason: str, *, proofs: list[Proof]) -> Outcome:
        """Main moved: a new candidate in a new round, slots kept, no rejection; bounded by ``max_candidates``."""
        stage = Stage.DEPLOY_STAGING
        taken = self._tx_read(lambda tx: tasks.times_taken(tx, at.task.id, stage, stage))
        if taken + 1 >= at.settings.budget.max_candidates:
            why = f"main moved {taken + 1} times while a candidate was being tested"
            return self._moves.move(
                at, Stage.TESTING, EdgeKind.REQUEUE, reason=why, proofs=proofs, hold=(Hold.ESCALATED, why)
            )
        return self._moves.move(at, stage, EdgeKind.RENEW, reason=reason, proofs=proofs)

    def reject(
        self,
        at: Situation,
        reason: str,
        *,
        brief: str,
        proofs: list[Proof] | None = None,
        target: Stage | None = None,
    ) -> Outcome:
        """Send the task back with the findings; bounded per edge, then it waits for a person."""
        goal = reject_target(at.task.stage, target)
        taken = self._tx_read(lambda tx: tasks.times_taken(tx, at.task.id, at.task.stage, goal))
        if taken < at.settings.budget.max_rounds:
            return self._moves.move(
                at, goal, EdgeKind.REJECT, reason=reason, brief=brief, proofs=proofs or []
            )
        why = f"rejected {taken} times on the way {at.task.stage} → {goal}; last: {reason}"
        if at.task.stage is Stage.DEPLOY_STAGING:
            return self._moves.move(
                at,
                Stage.TESTING,
                EdgeKind.REQUEUE,
                reason=why,
                proofs=proofs or [],
                hold=(Hold.ESCALATED, why),
            )
        if proofs:
            with self._tools.database.write() as tx:
                leases.check(tx, at.lease)
                for proof in proofs:
                    self._tools.ledger.settle(tx, at.lease, at.task, proof)
        return self._moves.hold(at, Hold.ESCALATED, why)

    # --- what each intent carries -------------------------------------------------------------------------------------

    def _push_branch(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        branch, head = _branch(at), at.task.head_sha
        carried: dict[str, object] = {"repo": at.task.repo, "branch": branch, "sha": head, "expected": tip}
        return Plan(EffectName.PUSH, f"{branch}:{tip or 'absent'}..{head}", self._token(), carried)

    def _push_candidate(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        candidate = _candidate(tx, at)
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "branch": _branch(at),
            "candidate": judged.of_candidate(candidate),
        }
        return Plan(EffectName.PUSH, f"candidate:{candidate.sha}", candidate.fence, carried)

    def _open_pr(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        title = f"{at.task.work_item}: {at.task.title}"[:250]
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "branch": _branch(at),
            "title": title,
            "body": at.task.body[:PR_BODY_LIMIT],
        }
        return Plan(EffectName.OPEN_PR, _branch(at), self._token(), carried)

    def _image(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        candidate = _candidate(tx, at)
        config = at.settings.image
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "sha": candidate.sha,
            "image": of_config(config) if config is not None else {},
        }
        return Plan(EffectName.IMAGE, candidate.sha, self._token(), carried)

    def _promote(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        config = at.settings.image
        if config is not None and config.rebuild:
            return self._image(tx, at, tip)
        digest = _digest(tx, at)
        carried: dict[str, object] = {"repo": at.task.repo, "sha": _candidate(tx, at).sha, "promote": digest}
        return Plan(EffectName.IMAGE, f"production:{digest}", self._token(), carried)

    def _start_staging(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        if at.settings.staging is None:
            raise InvariantError("there is no staging to start")
        return self._start(tx, at, EffectName.DEPLOY_INIT, at.settings.staging, at.settings.staging.deploy)

    def _start_production(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        if at.settings.production is None:
            raise InvariantError("there is no production to start")
        return self._start(
            tx, at, EffectName.DEPLOY_INIT, at.settings.production, at.settings.production.deploy
        )

    def _undo(
        self, tx: Tx, at: Situation, environment: EnvironmentConfig, argv: tuple[str, ...], started: Intent
    ) -> Plan:
        plan = self._start(tx, at, EffectName.DEPLOY_UNDO, environment, argv)
        before = judged.optional_text(started, "previous_sha")
        plan.judged["reason"] = f"{environment.name} did not stay healthy with {started.judged['sha']}"
        env = dict(judged.mapping(started, "env"))
        plan.judged["env"] = {
            **env,
            "ORCH_PREVIOUS_SHA": before or "",
            "ORCH_PREVIOUS_ARTIFACT": judged.optional_text(started, "previous_artifact") or "",
        }
        return plan

    def _start(
        self, tx: Tx, at: Situation, name: EffectName, environment: EnvironmentConfig, argv: tuple[str, ...]
    ) -> Plan:
        candidate = _candidate(tx, at)
        previous = effects.last_start(tx, environment.name)
        drawn = effects.draw_generation(tx, environment.name, candidate.sha)
        if drawn is None:
            raise NotYet(f"an earlier start in {environment.name} is not settled")
        generation, token = drawn
        digest = _digest(tx, at)
        _, installation = effects.next_sequence(tx)
        carried: dict[str, object] = {
            "environment": environment.name,
            "sha": candidate.sha,
            "generation": generation,
            "digest": digest,
            "artifact": str(self._store.path(Digest(digest))),
            "argv": list(argv),
            "env": dict(environment.env),
            "timeout_s": environment.timeout_s,
            "work_item": at.task.work_item,
            "installation": installation,
            "previous_sha": previous.judged["sha"] if previous else None,
            "previous_artifact": previous.judged["artifact"] if previous else None,
        }
        return Plan(name, f"{environment.name}:{candidate.sha}:{generation}", str(token), carried)

    def _merge(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        candidate = _candidate(tx, at)
        check = _candidate_check(tx, at)
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "branch": _branch(at),
            "candidate": judged.of_candidate(candidate),
            "pr_number": at.task.pr_number,
            "gated_sha": at.task.gated_sha,
            "coverage": measured_percent(check),
        }
        return Plan(EffectName.MERGE_PR, candidate.sha, candidate.fence, carried)

    def _intend(self, tx: Tx, at: Situation, plan: Plan) -> Intent:
        round = at.task.round
        known = effects.find(tx, at.task.id, plan.name, plan.key, round)
        if known is not None:
            return known
        intent = effects.intend(
            tx, at.lease, plan.name, plan.key, round, token=plan.token, judged=plan.judged
        )
        data: dict[str, object] = {"effect": plan.name, "key": plan.key, "sequence": intent.sequence}
        _event(tx, EventType.EFFECT_INTENDED, at, data)
        return intent

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
            f"Somebody else has moved the branch {_branch(at)} to {tip}. Merge that commit into your work "
            f"(git merge {tip}) and keep what it changes."
        )
        return self.reject(at, f"the branch was moved to {tip} by somebody else", brief=brief)

    def _earlier_start_has_ended(self, at: Situation, step: Step) -> None:
        """No start in an environment while an earlier command there may still run (H9)."""
        environment = {
            START_STAGING: at.settings.staging,
            START_PRODUCTION: at.settings.production,
        }.get(step)
        if environment is None:
            return
        last = self._tx_read(lambda tx: effects.last_start(tx, environment.name))
        if last is not None and self._deployer.exit(start_of(last)) is None:
            raise NotYet(f"the start of {last.judged['sha']} in {environment.name} has not ended")

    def _wait(self, at: Situation, reason: str) -> Outcome:
        self._tools.waypoints.reach("effect.open", task=at.task.id, reason=reason)
        return Outcome.RETRY

    def _token(self) -> str:
        return self._tools.entropy.token(8)

    def _tx_read(self, ask: Callable[[Tx], T]) -> T:
        with self._tools.database.read() as tx:
            return ask(tx)


def _event(tx: Tx, type: EventType, at: Situation, data: dict[str, object]) -> None:
    events.append(tx, type, at.lease.owner, task=at.task, epoch=at.lease.epoch, data=data)


def _step(at: Situation, name: str) -> Step:
    for step in STAGE_STEPS[at.task.stage]:
        if step.name == name:
            return step
    raise InvariantError(f"{at.task.stage} has no step {name}")


def _branch(at: Situation) -> str:
    if at.task.branch is None:
        raise InvariantError(f"{at.task.work_item} has no branch")
    return at.task.branch


def _candidate(tx: Tx, at: Situation) -> Candidate:
    found = evidence.candidates(tx, at.task.id)
    if not found:
        raise InvariantError(f"{at.task.work_item} has no candidate")
    return found[-1]


def _candidate_check(tx: Tx, at: Situation) -> evidence.CheckResult | None:
    return evidence.check_result(tx, at.task, JobKind.CANDIDATE_CI)


def _digest(tx: Tx, at: Situation) -> str:
    built = effects.applied(tx, at.task.id, EffectName.IMAGE)
    if built is None or built.fact is None:
        raise InvariantError(f"{at.task.work_item} has no image")
    return str(built.fact["digest"])
