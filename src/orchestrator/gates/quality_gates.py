"""The quality gates, one per row of the pipeline's table (S-02). Each reads evidence and answers pass, fail or wait."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from orchestrator.db.evidence import CheckResult
from orchestrator.domain.gate import Finding, GateResult, Verdict, failed, passed, waiting
from orchestrator.domain.ids import Sha
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.gates.coverage_gate import judge_coverage
from orchestrator.gates.evidence import Evidence
from orchestrator.gates.gated_sha import why_not_gated
from orchestrator.gates.secret_history import secrets_in_files, secrets_in_history
from orchestrator.repo_config.records import PathPolicy
from orchestrator.rules import path_policy
from orchestrator.rules.others import judge_checks, judge_reviews
from orchestrator.rules.verdicts import judge_review, judge_staging_log, judge_test_report
from orchestrator.work_items.documents import folder, validate
from orchestrator.work_items.reading import DocumentError
from orchestrator.work_items.verdict_documents import (
    parse_review_verdict,
    parse_staging_log,
    parse_test_plan,
    parse_test_report,
    sends_back,
)
from orchestrator.workspace.candidate import has_our_trailers
from orchestrator.workspace.commits import SYMLINK, Change

Gate = Callable[[Evidence], GateResult]


def check_created(evidence: Evidence) -> GateResult:
    """The ticket is accepted: what it depends on is done and its repository takes new work."""
    if evidence.unmet:
        names = ", ".join(f"{work_item} ({stage})" for work_item, stage in evidence.unmet)
        if any(stage is Stage.CANCELLED for _, stage in evidence.unmet):
            return waiting(f"waits for {names}, which will never be done: cancel this task, or file it anew")
        return waiting(f"waits for {names}")
    if evidence.freeze is not None and evidence.freeze.lent_to != evidence.task.id:
        return waiting(f"the repository is frozen: {evidence.freeze.reason}", frozen=True)
    return passed("accepted")


def check_analysis(evidence: Evidence) -> GateResult:
    """The analyst's documents are there and valid, and nothing else was touched."""
    return _documents(evidence, Stage.ANALYSIS)


def check_architecture(evidence: Evidence) -> GateResult:
    """The architect's documents are there and valid, nothing else was touched, and the analysis can be built on."""
    result = _documents(evidence, Stage.ARCHITECTURE)
    objection = sends_back(evidence.documents)
    if not result.passed or objection is None:
        return result
    return failed("The architect sends the analysis back.", Finding(objection), target=Stage.ANALYSIS)


def check_change(evidence: Evidence) -> GateResult:
    """The change itself, before it leaves the house: there is one, it keeps to the paths, and it holds no secret."""
    findings = [*evidence.harvest_findings, *_branch_findings(evidence)]
    changes = evidence.clone.changes(evidence.fork, evidence.head)
    place = folder(evidence.task.work_item) + "/"
    if all(change.path.startswith(place) for change in changes):
        findings.append(
            Finding("the branch changes nothing but documents: commit the work on the task's branch")
        )
    return _judged(
        "The change was not accepted.", findings, head=evidence.head, files=len(changes), fork=evidence.fork
    )


def check_ci(evidence: Evidence) -> GateResult:
    """The repository's own checks passed on exactly this head."""
    return _judge_check(evidence.checks.get(JobKind.CI), evidence.head)


def check_review(evidence: Evidence) -> GateResult:
    """The reviewer approved exactly the gated SHA."""
    return _verdict(
        evidence,
        "12-review.md",
        lambda data: judge_review(parse_review_verdict(data, "12-review.md"), _gated(evidence)),
    )


def check_testing(evidence: Evidence) -> GateResult:
    """The tester accounts for every case of the plan, on exactly the gated SHA."""

    def judge(data: bytes) -> GateResult:
        plan = parse_test_plan(evidence.documents.get("04-test-plan.yaml", b""), "04-test-plan.yaml")
        return judge_test_report(plan, parse_test_report(data, "13-test-report.md"), _gated(evidence))

    return _verdict(evidence, "13-test-report.md", judge)


def check_candidate(evidence: Evidence) -> GateResult:
    """Checks and coverage on M, the tree that will be merged and deployed."""
    candidate, config = evidence.candidate, evidence.config
    if candidate is None or config is None:
        return waiting("there is no candidate yet")
    check = evidence.checks.get(JobKind.CANDIDATE_CI)
    judged = _judge_check(check, candidate.sha)
    return judge_coverage(config.coverage, check, evidence.baseline) if judged.passed else judged


def check_staging(evidence: Evidence) -> GateResult:
    """Staging runs M and stays healthy."""
    return _health(evidence, JobKind.STAGING_HEALTH)


def check_staging_log(evidence: Evidence) -> GateResult:
    """The deployer exercised staging and found M good."""
    candidate, kept = evidence.candidate, evidence.kept
    if candidate is None or kept is None:
        return waiting("14-staging-log.md is not there yet")
    try:
        return judge_staging_log(parse_staging_log(kept.content, kept.name), candidate.sha)
    except DocumentError as error:
        return failed("14-staging-log.md cannot be read.", *error.findings)


def check_production(evidence: Evidence) -> GateResult:
    """M is on main; production runs it, or a descendant on main, and is stable."""
    if evidence.candidate is not None and evidence.landed is None:
        sha = evidence.candidate.sha
        return failed(f"Main does not contain {sha}, which was merged.", candidate=sha)
    if evidence.config is not None and evidence.config.production is None:
        return passed("no production is configured")
    return _health(evidence, JobKind.PRODUCTION_HEALTH)


def check_forge_checks(evidence: Evidence) -> GateResult:
    """The checks that the configuration names have passed at the forge, on exactly the commit that was gated."""
    if evidence.said is None or evidence.config is None:
        return waiting("the forge has not been asked yet")
    return judge_checks(evidence.config.forge.required_checks, evidence.said)


def check_forge_reviews(evidence: Evidence) -> GateResult:
    """As many people as the configuration asks for have approved the gated commit at the forge; nobody objects."""
    if evidence.said is None or evidence.config is None:
        return waiting("the forge has not been asked yet")
    return judge_reviews(evidence.config.forge.required_reviews, evidence.said)


QG_CHECKS: Mapping[str, Gate] = MappingProxyType(
    {
        "check_created": check_created,
        "check_analysis": check_analysis,
        "check_architecture": check_architecture,
        "check_change": check_change,
        "check_ci": check_ci,
        "check_review": check_review,
        "check_testing": check_testing,
        "check_candidate": check_candidate,
        "check_staging": check_staging,
        "check_staging_log": check_staging_log,
        "check_production": check_production,
        "check_forge_checks": check_forge_checks,
        "check_forge_reviews": check_forge_reviews,
    }
)


def _documents(evidence: Evidence, stage: Stage) -> GateResult:
    task = evidence.task
    place = folder(task.work_item) + "/"
    findings = [*evidence.harvest_findings, *_branch_findings(evidence)]
    findings += validate(evidence.documents, work_item=task.work_item, stage=stage, track=evidence.track)
    for change in evidence.clone.changes(evidence.fork, evidence.head):
        if not change.path.startswith(place):
            findings.append(Finding(f"this stage may change files below {place} only", file=change.path))
    return _judged("The documents were not accepted.", findings, head=evidence.head)


def _branch_findings(evidence: Evidence) -> Iterable[Finding]:
    """What no stage accepts on a branch: foreign trailers, protected paths, odd files, secrets."""
    clone, task = evidence.clone, evidence.task
    policy = evidence.config.paths if evidence.config else PathPolicy()
    for commit in clone.commits(evidence.fork, evidence.head):
        if commit.sha not in evidence.own_commits and has_our_trailers(commit.message):
            yield Finding(
                f"the message of {commit.sha[:12]} carries lines beginning with Orch-: these are ours alone"
            )
    changes = clone.changes(evidence.fork, evidence.head)
    paths = [path for change in changes for path in (change.path, change.old_path) if path]
    yield from path_policy.violations(paths, policy, task.labels, work_item=task.work_item)
    yield from path_policy.mode_violations(_with_target(evidence, change) for change in changes)
    secrets = secrets_in_files(clone, evidence.fork, evidence.head, evidence.secrets)
    yield from secrets or secrets_in_history(clone, evidence.fork, evidence.head, evidence.secrets)


def _with_target(evidence: Evidence, change: Change) -> path_policy.Change:
    target = evidence.clone.link_target(change.blob) if change.mode == SYMLINK else None
    return path_policy.Change(change.path, change.mode, target)


def _judge_check(check: CheckResult | None, sha: str) -> GateResult:
    if check is None or check.sha != sha:
        return waiting(f"the checks have not run on {sha} yet")
    if not check.passed:
        said = str(check.detail.get("tail", ""))
        return failed(
            str(check.detail.get("reason", "The checks failed.")), Finding(said or "no output"), sha=sha
        )
    return passed(f"the checks passed on {sha}", sha=sha)


def _health(evidence: Evidence, kind: JobKind) -> GateResult:
    if evidence.candidate is None:
        return waiting("there is no candidate yet")
    check = evidence.checks.get(kind)
    if check is None or check.sha != evidence.candidate.sha:  # a look after an undo is about another version
        return waiting("it has not been watched yet")
    detail = str(check.detail.get("reason", ""))
    facts = {"candidate": evidence.candidate.sha, "seen": check.detail.get("seen")}
    if check.passed:
        return passed(detail, **facts)
    said = str(check.detail.get("tail", ""))
    return failed(detail, *([Finding(f"the deploy command said: {said}")] if said else []), **facts)


def _verdict(evidence: Evidence, name: str, judge: Callable[[bytes], GateResult]) -> GateResult:
    data = evidence.documents.get(name)
    if data is None:
        return waiting(f"{name} is not there yet")
    gated = evidence.task.gated_sha
    if gated is None:
        return failed("No commit has been gated for review yet.")
    objection = why_not_gated(
        evidence.clone,
        gated=gated,
        head=evidence.head,
        own=evidence.own_commits,
        work_item=evidence.task.work_item,
    )
    if objection is not None:
        return failed("The verdicts are void: the branch has changed since.", objection)
    try:
        result = judge(data)
    except DocumentError as error:
        return failed(f"{name} cannot be read.", *error.findings)
    return GateResult(result.verdict, result.reason, result.findings, {**result.evidence, "gated_sha": gated})


def _gated(evidence: Evidence) -> Sha:
    return evidence.task.gated_sha or evidence.head


def _judged(objection: str, findings: Iterable[Finding], **facts: object) -> GateResult:
    found = tuple(findings)
    return GateResult(
        Verdict.FAIL if found else Verdict.PASS, objection if found else "accepted", found, facts
    )
