"""Which verdicts let a change pass: those about this very commit, and good ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.gate import Finding, Verdict
from orchestrator.domain.ids import Sha
from orchestrator.rules.verdicts import (
    CaseOutcome,
    CaseResult,
    PlannedCase,
    ReviewOutcome,
    ReviewVerdict,
    StagingLog,
    StagingOutcome,
    TestOutcome,
    TestPlan,
    TestReport,
    is_full_sha,
    judge_review,
    judge_staging_log,
    judge_test_report,
)

SHA = Sha("0123456789abcdef0123456789abcdef01234567")
OTHER = Sha("f" * 40)
NOT_THIS_COMMIT = [OTHER, Sha(SHA[:12]), Sha(SHA.upper()), Sha(SHA + "0" * 24), Sha(" " + SHA), Sha("")]


def review(
    outcome: ReviewOutcome = ReviewOutcome.APPROVED, sha: Sha = SHA, *findings: Finding
) -> ReviewVerdict:
    return ReviewVerdict(outcome, sha, findings, "12-review.md")


def plan(*ids: str) -> TestPlan:
    return TestPlan(tuple(PlannedCase(case_id, "unit", "it works") for case_id in ids), "04-test-plan.yaml")


def report(outcome: TestOutcome = TestOutcome.PASS, sha: Sha = SHA, **cases: CaseOutcome) -> TestReport:
    results = tuple(CaseResult(name.replace("_", "-"), outcome) for name, outcome in cases.items())
    return TestReport(outcome, sha, results, "13-test-report.md")


def log(
    outcome: StagingOutcome = StagingOutcome.HEALTHY, sha: Sha = SHA, summary: str = "fine"
) -> StagingLog:
    return StagingLog(outcome, sha, summary, "14-staging-log.md")


def test_an_approved_review_of_this_commit_passes_with_its_remarks() -> None:
    remark = Finding("a nit", "src/a.py", 1)
    result = judge_review(review(ReviewOutcome.APPROVED, SHA, remark), SHA)
    assert result.passed and result.findings == (remark,)
    assert result.evidence == {"gated_sha": SHA, "verdict": "approved"}


def test_a_rejection_hands_its_findings_to_the_developer() -> None:
    result = judge_review(review(ReviewOutcome.REJECTED, SHA, Finding("off by one", "src/a.py", 12)), SHA)
    assert result.verdict is Verdict.FAIL
    assert "- src/a.py:12: off by one" in result.brief()


@pytest.mark.parametrize("sha", NOT_THIS_COMMIT, ids=["other", "short", "upper", "longer", "padded", "empty"])
def test_a_verdict_about_another_commit_does_not_count(sha: Sha) -> None:
    results = [
        judge_review(review(sha=sha), SHA),
        judge_review(review(ReviewOutcome.REJECTED, sha), SHA),
        judge_test_report(plan("TC-01"), report(sha=sha, TC_01=CaseOutcome.PASS), SHA),
        judge_test_report(plan("TC-01"), report(TestOutcome.FAIL, sha), SHA),
        judge_staging_log(log(sha=sha), SHA),
        judge_staging_log(log(StagingOutcome.UNHEALTHY, sha), SHA),
    ]
    for result in results:
        assert result.verdict is Verdict.WAIT
        assert f"expected {SHA}" in result.findings[0].message


def test_equal_names_that_name_nothing_do_not_count() -> None:
    for name in (Sha(""), Sha("HEAD"), Sha(SHA[:12])):
        assert not judge_review(review(sha=name), name).passed
        assert not judge_test_report(plan("TC-01"), report(sha=name, TC_01=CaseOutcome.PASS), name).passed
        assert not judge_staging_log(log(sha=name), name).passed


def test_evidence_that_is_not_there_is_waited_for() -> None:
    for result in (
        judge_review(None, SHA),
        judge_test_report(plan("TC-01"), None, SHA),
        judge_staging_log(None, SHA),
    ):
        assert result.verdict is Verdict.WAIT


def test_all_cases_passed() -> None:
    cases = {"TC_01": CaseOutcome.PASS, "TC_02": CaseOutcome.PASS}
    result = judge_test_report(plan("TC-01", "TC-02"), report(**cases), SHA)
    assert result.passed and result.evidence == {"gated_sha": SHA, "cases": 2}


@pytest.mark.parametrize(
    ("the_plan", "the_report", "message"),
    [
        (plan("TC-01", "TC-02"), report(TC_01=CaseOutcome.PASS), "TC-02 of the plan has no result"),
        (
            plan("TC-01"),
            report(TC_01=CaseOutcome.PASS, TC_09=CaseOutcome.PASS),
            "TC-09 is not in 04-test-plan.yaml",
        ),
        (plan("TC-01"), report(TC_01=CaseOutcome.FAIL), "TC-01: fail; expected pass"),
        (plan("TC-01"), report(TC_01=CaseOutcome.SKIPPED), "TC-01: skipped; expected pass"),
        (plan("TC-01"), report(TC_01=CaseOutcome.BLOCKED), "TC-01: blocked; expected pass"),
        (plan("TC-01"), report(TestOutcome.FAIL, TC_01=CaseOutcome.PASS), "the tester's verdict is fail"),
        (plan(), report(), "the plan has no test cases"),
        (plan("TC-01", "TC-01"), report(TC_01=CaseOutcome.PASS), "the plan has TC-01 more than once"),
        (
            plan("TC-01"),
            TestReport(
                TestOutcome.PASS, SHA, (CaseResult("TC-01", CaseOutcome.PASS),) * 2, "13-test-report.md"
            ),
            "TC-01 is reported more than once",
        ),
        (plan("TC-01"), report(**{"tc-01": CaseOutcome.PASS}), "TC-01 of the plan has no result"),
    ],
    ids=[
        "missing",
        "unknown",
        "failed",
        "skipped",
        "blocked",
        "verdict",
        "no-plan",
        "plan-twice",
        "twice",
        "case",
    ],
)
def test_a_plan_that_was_not_carried_out_is_a_finding(
    the_plan: TestPlan, the_report: TestReport, message: str
) -> None:
    result = judge_test_report(the_plan, the_report, SHA)
    assert result.verdict is Verdict.FAIL
    assert message in result.brief()


def test_every_shortcoming_is_named_at_once() -> None:
    result = judge_test_report(plan("TC-01", "TC-02"), report(TestOutcome.FAIL, TC_03=CaseOutcome.FAIL), SHA)
    assert [finding.message.split()[0] for finding in result.findings] == ["TC-01", "TC-02", "TC-03", "the"]


def test_staging() -> None:
    assert judge_staging_log(log(), SHA).passed
    bad = judge_staging_log(log(StagingOutcome.UNHEALTHY, summary="503 on /"), SHA)
    assert bad.verdict is Verdict.FAIL and "503 on /" in bad.brief()


@pytest.mark.parametrize(
    ("text", "full"),
    [
        (SHA, True),
        ("a" * 64, True),
        ("a" * 41, False),
        ("g" * 40, False),
        (SHA + "\n", False),
        ("A" * 40, False),
        ("", False),
    ],
    ids=["40", "64", "41", "not-hex", "line-end", "upper", "empty"],
)
def test_full_names(text: str, full: bool) -> None:
    assert is_full_sha(text) is full


IDS = st.sampled_from(["TC-01", "TC-02", "TC-03", "TC-04"])


@given(st.lists(IDS, max_size=5), st.lists(st.tuples(IDS, st.sampled_from(CaseOutcome)), max_size=5))
def test_a_report_passes_iff_it_is_the_plan_and_all_passed(
    planned: list[str], results: list[tuple[str, CaseOutcome]]
) -> None:
    cases = tuple(CaseResult(case_id, outcome) for case_id, outcome in results)
    result = judge_test_report(
        plan(*planned), TestReport(TestOutcome.PASS, SHA, cases, "13-test-report.md"), SHA
    )
    same = (
        sorted(planned) == sorted(case_id for case_id, _ in results) and len(set(planned)) == len(planned) > 0
    )
    assert result.passed == (same and all(outcome is CaseOutcome.PASS for _, outcome in results))
