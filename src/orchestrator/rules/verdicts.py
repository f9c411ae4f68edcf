"""Machine verdicts: what reviewer, tester and deployer said in figures, and whether it lets a task pass.

A verdict is about one commit. It counts iff it names that commit in full, letter for letter; one that names another
commit is neither for nor against the task: the evidence is still to come (``wait``), and the finding says which
commit was expected. Reading the documents is the work-items room's; nothing here raises.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.gate import Finding, GateResult, Verdict, failed, passed, waiting
from orchestrator.domain.ids import Sha

_FULL_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class ReviewOutcome(StrEnum):
    """Values of ``verdict`` in 12-review.md."""

    APPROVED = "approved"
    REJECTED = "rejected"


class TestOutcome(StrEnum):
    """Values of ``verdict`` in 13-test-report.md."""

    __test__ = False  # the name is the pipeline's, not pytest's

    PASS = "pass"
    FAIL = "fail"


class CaseOutcome(StrEnum):
    """What came of one test case. Only ``pass`` lets the task go on."""

    PASS = "pass"
    FAIL = "fail"
    SKIPPED = "skipped"
    BLOCKED = "blocked"


class StagingOutcome(StrEnum):
    """Values of ``verdict`` in 14-staging-log.md."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class ReviewVerdict:
    """12-review.md: what the reviewer thinks of the gated SHA."""

    verdict: ReviewOutcome
    gated_sha: Sha
    findings: tuple[Finding, ...]
    file: str


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """One case of 04-test-plan.yaml."""

    id: str
    type: str
    description: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class TestPlan:
    """04-test-plan.yaml: the cases the tester has to account for."""

    __test__ = False

    cases: tuple[PlannedCase, ...]
    file: str


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One line of the test report."""

    id: str
    outcome: CaseOutcome
    line: int | None = None


@dataclass(frozen=True, slots=True)
class TestReport:
    """13-test-report.md: what came of each case on the gated SHA."""

    __test__ = False

    verdict: TestOutcome
    gated_sha: Sha
    cases: tuple[CaseResult, ...]
    file: str


@dataclass(frozen=True, slots=True)
class StagingLog:
    """14-staging-log.md: how the candidate M did on staging."""

    verdict: StagingOutcome
    candidate_sha: Sha
    summary: str
    file: str


def is_full_sha(text: str) -> bool:
    """True for a full lower-case git object name; an abbreviation names no commit for certain."""
    return _FULL_SHA.fullmatch(text) is not None


def judge_review(review: ReviewVerdict | None, gated_sha: Sha) -> GateResult:
    """Edge *review → testing*: approved, and about ``gated_sha``."""
    if review is None:
        return waiting("There is no review yet.", gated_sha=gated_sha)
    if not _counts(review.gated_sha, gated_sha):
        return _about_another_commit("review", "gated_sha", review.gated_sha, gated_sha, review.file)
    evidence = {"gated_sha": gated_sha, "verdict": review.verdict.value}
    if review.verdict is not ReviewOutcome.APPROVED:
        return GateResult(Verdict.FAIL, "The reviewer rejected the change.", review.findings, dict(evidence))
    return GateResult(Verdict.PASS, "The reviewer approved the change.", review.findings, dict(evidence))


def judge_test_report(plan: TestPlan, report: TestReport | None, gated_sha: Sha) -> GateResult:
    """Edge *testing → deploy-staging*: verdict pass about ``gated_sha``, every case of the plan passed.

    A case that is missing, unknown, reported twice or anything but passed is a finding: a plan that is not
    carried out proves nothing.
    """
    if report is None:
        return waiting("There is no test report yet.", gated_sha=gated_sha)
    if not _counts(report.gated_sha, gated_sha):
        return _about_another_commit("test report", "gated_sha", report.gated_sha, gated_sha, report.file)
    findings = [*_plan_findings(plan), *_account_findings(plan, report)]
    if report.verdict is not TestOutcome.PASS:
        findings.append(
            Finding(f"the tester's verdict is {report.verdict.value}; expected pass", report.file)
        )
    if findings:
        return failed("The test report does not let the change pass.", *findings, gated_sha=gated_sha)
    cases = len(plan.cases)
    words = "The one case of the plan passed." if cases == 1 else f"All {cases} cases of the plan passed."
    return passed(words, gated_sha=gated_sha, cases=cases)


def judge_staging_log(log: StagingLog | None, candidate_sha: Sha) -> GateResult:
    """Within *deploy-staging*: the deployer found the candidate M healthy."""
    if log is None:
        return waiting("There is no staging log yet.", candidate_sha=candidate_sha)
    if not _counts(log.candidate_sha, candidate_sha):
        return _about_another_commit(
            "staging log", "candidate_sha", log.candidate_sha, candidate_sha, log.file
        )
    if log.verdict is not StagingOutcome.HEALTHY:
        finding = Finding(log.summary or "the deployer gave no reason", log.file)
        return failed("The deployer found staging unhealthy.", finding, candidate_sha=candidate_sha)
    return passed("The deployer found the candidate healthy on staging.", candidate_sha=candidate_sha)


def _counts(named: str, expected: str) -> bool:
    # Two empty or abbreviated names are equal too, and name nothing.
    return is_full_sha(named) and named == expected


def _about_another_commit(what: str, key: str, named: str, expected: str, file: str) -> GateResult:
    return GateResult(
        Verdict.WAIT,
        f"The {what} is about another commit and does not count.",
        (Finding(f"`{key}` is {named}; expected {expected}", file),),
        {key: expected, "named": named},
    )


def _plan_findings(plan: TestPlan) -> Iterable[Finding]:
    if not plan.cases:
        yield Finding("the plan has no test cases; expected at least one", plan.file)
    for case_id in _repeated(case.id for case in plan.cases):
        yield Finding(f"the plan has {case_id} more than once; expected each id once", plan.file)


def _account_findings(plan: TestPlan, report: TestReport) -> Iterable[Finding]:
    planned = {case.id for case in plan.cases}
    reported = {case.id for case in report.cases}
    for case in plan.cases:
        if case.id not in reported:
            message = f"{case.id} of the plan has no result; expected `{case.id}: pass` or what became of it"
            yield Finding(message, report.file)
    for case_id in _repeated(case.id for case in report.cases):
        yield Finding(f"{case_id} is reported more than once; expected one result", report.file)
    for result in report.cases:
        if result.id not in planned:
            message = f"{result.id} is not in {plan.file}; expected only cases of the plan"
            yield Finding(message, report.file, result.line)
        elif result.outcome is not CaseOutcome.PASS:
            yield Finding(f"{result.id}: {result.outcome.value}; expected pass", report.file, result.line)


def _repeated(ids: Iterable[str]) -> list[str]:
    return [case_id for case_id, count in Counter(ids).items() if count > 1]
