"""What each intent carries: everything it was judged on, drawn in the transaction that stores it (law 3)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from orchestrator.db import effects, evidence, installation
from orchestrator.db.database import Tx
from orchestrator.deploy.prepared import CONDITIONAL_UNDO, PreparedUndo
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import InvariantError, OutsideError
from orchestrator.domain.ids import Digest, Sha
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate
from orchestrator.effects import judged
from orchestrator.effects.deploy import GONE, prepared_undo
from orchestrator.effects.image import of_config
from orchestrator.gates.coverage_gate import measured_percent
from orchestrator.images.store import ArtifactGone, ImageStore
from orchestrator.repo_config.records import EnvironmentConfig
from orchestrator.rules.quoting import without_references
from orchestrator.rules.transitions import (
    IMAGE,
    MERGE,
    OPEN_PR,
    PROMOTE,
    PUSH_BRANCH,
    PUSH_CANDIDATE,
    START_PRODUCTION,
    START_STAGING,
    Step,
)
from orchestrator.runtime.entropy import Entropy
from orchestrator.stage_engine.not_now import NotNow
from orchestrator.stage_engine.situation import OwnDelivery, Situation

log = structlog.get_logger(__name__)

PR_BODY_LIMIT = 4000
BEFORE = ("sha", "artifact", "digest")  # of a version that a start may have to give way to again


@dataclass(frozen=True, slots=True)
class Plan:
    """What is about to be intended."""

    name: EffectName
    key: str
    token: str
    judged: dict[str, object]
    sequence: int | None = None  # None: drawn with the intent
    of_m: bool = False  # bound to this very candidate: revoked, it never comes back (DESIGN §3)


class Plans:
    """Draws up the plan of each effect step."""

    def __init__(self, store: ImageStore, entropy: Entropy, ours: OwnDelivery) -> None:
        self._store = store
        self._entropy = entropy
        self._ours = ours
        self._of: dict[str, Callable[[Tx, Situation, Sha | None], Plan]] = {
            PUSH_BRANCH.name: self._push_branch,
            PUSH_CANDIDATE.name: self._push_candidate,
            OPEN_PR.name: self._open_pr,
            IMAGE.name: self._image,
            PROMOTE.name: self._promote,
            START_STAGING.name: self._start_staging,
            START_PRODUCTION.name: self._start_production,
            MERGE.name: self._merge,
        }

    def of(self, tx: Tx, at: Situation, step: Step, tip: Sha | None) -> Plan:
        """The plan of a step; ``tip`` is where the forge has the task's branch, for a push of it.

        :raises NotNow: it cannot be intended now.
        """
        plan = self._of[step.name](tx, at, tip)
        plan.judged["step"] = step.name
        return plan

    def _push_branch(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        branch, head = branch_of(at), at.task.head_sha
        carried: dict[str, object] = {"repo": at.task.repo, "branch": branch, "sha": head, "expected": tip}
        return Plan(EffectName.PUSH, f"{branch}:{tip or 'absent'}..{head}", self._token(), carried)

    def _push_candidate(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        candidate = candidate_of(tx, at)
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "branch": branch_of(at),
            "candidate": judged.of_candidate(candidate),
        }
        return Plan(EffectName.PUSH, f"candidate:{candidate.sha}", candidate.fence, carried, of_m=True)

    def _open_pr(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        title = f"{at.task.work_item}: {without_references(at.task.title)}"[:250]
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "branch": branch_of(at),
            "title": title,
            "body": at.task.body[:PR_BODY_LIMIT],
        }
        return Plan(EffectName.OPEN_PR, branch_of(at), self._token(), carried)

    def _image(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        candidate = candidate_of(tx, at)
        config = at.settings.image
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "sha": candidate.sha,
            "image": of_config(config) if config is not None else {},
        }
        return Plan(EffectName.IMAGE, candidate.sha, self._token(), carried)

    def _promote(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        config = at.settings.image
        built = _image_of(tx, at) is not None and not self._lost(Digest(_digest(tx, at)))
        if not built or (config is not None and config.rebuild):  # a restore may have lost either
            return replace(self._image(tx, at, tip), key=f"production:{candidate_of(tx, at).sha}")
        digest = _digest(tx, at)
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "sha": candidate_of(tx, at).sha,
            "promote": digest,
        }
        return Plan(EffectName.IMAGE, f"production:{digest}", self._token(), carried)

    def _start_staging(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        if at.settings.staging is None:
            raise InvariantError("there is no staging to start")
        return self._start(tx, at, EffectName.DEPLOY_INIT, at.settings.staging, at.settings.staging.deploy)

    def _start_production(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        environment = at.settings.production
        if environment is None:
            raise InvariantError("there is no production to start")
        plan = self._start(tx, at, EffectName.DEPLOY_INIT, environment, environment.deploy)
        if at.task.repo != self._ours.repo or environment.undo is None:
            return plan
        # The ledger's order is that of the environment's starts: the deploy's number comes before its undo's.
        sequence, _ = effects.next_sequence(tx)
        undo = self._prepared(tx, environment, environment.undo, plan)
        plan.judged.update({CONDITIONAL_UNDO: undo.stored(), "stable_for_s": environment.stable_for_s})
        return replace(plan, sequence=sequence)

    def _prepared(
        self, tx: Tx, environment: EnvironmentConfig, argv: tuple[str, ...], of: Plan
    ) -> PreparedUndo:
        """The undo of a deploy of ourselves, with its own generation and token, both higher than the deploy's."""
        generation = int(str(of.judged["generation"])) + 1
        sequence, _ = effects.next_sequence(tx)
        carried = of.judged | {"argv": list(argv), "generation": generation}
        _takes_back(carried, environment, of.judged, self._store)
        return PreparedUndo(
            key=f"{environment.name}:{of.judged['sha']}:{generation}",
            sequence=sequence,
            token=str(effects.raise_environment(tx, environment.name)),
            within_s=self._ours.report_within_s + environment.stable_for_s,
            judged=carried,
        )

    def undo(
        self,
        tx: Tx,
        at: Situation,
        environment: EnvironmentConfig,
        argv: tuple[str, ...],
        started: Intent,
        *,
        anew: bool = False,
    ) -> Plan:
        """Back to what ran in the environment before ``started``; what was prepared with it is used as it was, but for
        ``anew``: an earlier undo has been revoked, and never comes back."""
        prepared = prepared_undo(started)
        if prepared is not None and not anew:
            return of_prepared(prepared)
        plan = self._start(tx, at, EffectName.DEPLOY_UNDO, environment, argv)
        _takes_back(plan.judged, environment, started.judged, self._store)
        return plan

    def _start(
        self, tx: Tx, at: Situation, name: EffectName, environment: EnvironmentConfig, argv: tuple[str, ...]
    ) -> Plan:
        candidate = candidate_of(tx, at)
        before = _last_good(tx, environment.name)
        drawn = effects.draw_generation(tx, environment.name, candidate.sha)
        if drawn is None:
            raise NotNow(f"an earlier start in {environment.name} is not settled")
        generation, token = drawn
        digest = _digest(tx, at)
        carried: dict[str, object] = {
            **self._artifact(Digest(digest), candidate.sha, needed=name is EffectName.DEPLOY_INIT),
            "environment": environment.name,
            "sha": candidate.sha,
            "generation": generation,
            "digest": digest,
            "argv": list(argv),
            "env": dict(environment.env),
            "timeout_s": environment.timeout_s,
            "work_item": at.task.work_item,
            "installation": installation.identity(tx),
            **{f"previous_{name}": value for name, value in before.items()},
        }
        return Plan(name, f"{environment.name}:{candidate.sha}:{generation}", str(token), carried)

    def _artifact(self, digest: Digest, sha: Sha, *, needed: bool) -> dict[str, object]:
        """Where a start finds its artefact. An undo prefers the one of the version that it brings back."""
        try:
            return {"artifact": str(self._store.path(digest))}
        except ArtifactGone as gone:
            if needed:
                raise
            return _gone(gone, digest, sha)

    def _lost(self, digest: Digest) -> bool:
        try:
            self._store.path(digest)
        except ArtifactGone:
            return True
        except OutsideError:
            return False  # the effect says so
        return False

    def _merge(self, tx: Tx, at: Situation, tip: Sha | None) -> Plan:
        candidate = candidate_of(tx, at)
        check = candidate_check(tx, at, candidate)
        carried: dict[str, object] = {
            "repo": at.task.repo,
            "branch": branch_of(at),
            "candidate": judged.of_candidate(candidate),
            "pr_number": at.task.pr_number,
            "gated_sha": at.task.gated_sha,
            "coverage": measured_percent(check),
        }
        return Plan(EffectName.MERGE_PR, candidate.sha, candidate.fence, carried, of_m=True)

    def _token(self) -> str:
        return self._entropy.token(8)


def of_prepared(undo: PreparedUndo) -> Plan:
    """The plan of an undo that was drawn with its start."""
    return Plan(EffectName.DEPLOY_UNDO, undo.key, undo.token, dict(undo.judged), undo.sequence)


def _takes_back(
    carried: dict[str, object],
    environment: EnvironmentConfig,
    started: Mapping[str, object],
    store: ImageStore,
) -> None:
    """Have the plan of an undo bring back what ran before a start, by that version's own script: the one of the version
    that failed may be what is broken. It is used only where the earlier artefact is not kept any more. Where neither
    is, the undo is sent all the same and fails for want of it: its intent says so, and a person is called."""
    carried["reason"] = f"{environment.name} did not come up, or stay healthy, with {started['sha']}"
    carried.update({f"restored_{name}": started.get(f"previous_{name}") for name in BEFORE})
    before, artifact, digest = (carried[f"restored_{name}"] for name in BEFORE)
    if digest is not None:
        try:
            carried.update(artifact=str(store.path(Digest(str(digest)))), digest=digest)
            carried.pop(GONE, None)
        except OutsideError as error:
            if GONE in carried:
                if not isinstance(error, ArtifactGone):
                    raise
                carried.update(_gone(error, Digest(str(digest)), str(before)), digest=digest)
            log.warning("undo runs the script of the version it undoes", reason=str(error))
    given = started.get("env")
    carried["env"] = {
        **(given if isinstance(given, dict) else {}),
        "ORCH_PREVIOUS_SHA": before or "",
        "ORCH_PREVIOUS_ARTIFACT": artifact or "",
    }


def _gone(gone: ArtifactGone, digest: Digest, sha: str) -> dict[str, object]:
    """What the plan of an undo carries where the artefact that it needs is lost."""
    said = f"the artefact {digest} of {sha} is not in the image store any more"
    return {"artifact": str(gone.place), GONE: said}


def branch_of(at: Situation) -> str:
    """The task's branch."""
    if at.task.branch is None:
        raise InvariantError(f"{at.task.work_item} has no branch")
    return at.task.branch


def candidate_of(tx: Tx, at: Situation) -> Candidate:
    """The task's M: what was merged, or is to be."""
    found = evidence.candidate_of(tx, at.task.id)
    if found is None:
        raise InvariantError(f"{at.task.work_item} has no candidate")
    return found


def candidate_check(tx: Tx, at: Situation, candidate: Candidate) -> evidence.CheckResult | None:
    """How our own checks on a candidate ended, in the round that it was built in."""
    built_in = replace(at.task, stage=Stage.DEPLOY_STAGING, round=candidate.round)
    check = evidence.check_result(tx, built_in, JobKind.CANDIDATE_CI)
    return check if check is not None and check.sha == candidate.sha else None


def _image_of(tx: Tx, at: Situation) -> Intent | None:
    """The newest image of the task's M: what an earlier candidate was built into is another tree's."""
    sha = candidate_of(tx, at).sha
    built = (e for e in reversed(effects.of_task(tx, at.task.id)) if e.name is EffectName.IMAGE)
    return next((e for e in built if e.state is EffectState.APPLIED and e.judged.get("sha") == sha), None)


def _digest(tx: Tx, at: Situation) -> str:
    built = _image_of(tx, at)
    if built is None or built.fact is None:
        raise InvariantError(f"{at.task.work_item} has no image")
    return str(built.fact["digest"])


def _last_good(tx: Tx, environment: str) -> dict[str, object]:
    """SHA, artefact and digest to go back to, should the next start fail: of the last start, or what the last undo was
    to bring back. Where that undo has failed nobody knows what runs; it is still what last ran well."""
    last = effects.last_start(tx, environment)
    if last is None:
        return dict.fromkeys(BEFORE)
    of = "restored_" if last.name is EffectName.DEPLOY_UNDO else ""
    return {name: last.judged.get(f"{of}{name}") for name in BEFORE}
