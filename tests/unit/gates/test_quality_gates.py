"""Each gate on its own: evidence in, pass, fail or wait out. Git is real; the ledger's part is handed in."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.db.evidence import CheckResult, KeptDocument
from orchestrator.db.slots import Baseline, Freeze
from orchestrator.domain.gate import GateResult, Verdict
from orchestrator.domain.ids import RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage, Track
from orchestrator.domain.task import Candidate, Landed, Task
from orchestrator.gates.coverage_gate import judge_coverage, measured_percent
from orchestrator.gates.evidence import Evidence
from orchestrator.gates.quality_gates import QG_CHECKS
from orchestrator.repo_config.records import (
    CiConfig,
    CoverageConfig,
    EnvironmentConfig,
    ProbeConfig,
    RepoConfig,
)
from tests.fixtures_git import House

ITEM = WorkItem("S-1")
PLACE = f"docs/work-items/{ITEM}"
HEAD = (
    "work_item: S-1\nstage: {stage}\nauthor_agent: {role}\nstatus: final\ncreated_at: 2026-01-05\n"
    "model_used: none\nescalate:\ntitle: A document\n"
)
PLACE_OF = EnvironmentConfig("production", ("true",), ProbeConfig(command=("true",)))
CONFIG = RepoConfig("main", CiConfig(("true",)), production=PLACE_OF)


def markdown(stage: str, role: str, more: str = "") -> str:
    return f"---\n{HEAD.format(stage=stage, role=role)}{more}---\n\n# Words\n\nSome words.\n"


ANALYSIS = {
    f"{PLACE}/01-brd.md": markdown("analysis", "analyst"),
    f"{PLACE}/02-trz.md": markdown("analysis", "analyst", "track: full\n"),
    f"{PLACE}/03-acceptance.md": markdown("analysis", "analyst"),
    f"{PLACE}/04-test-plan.yaml": HEAD.format(stage="analysis", role="analyst")
    + "framework: existing\nscope: all\ntests:\n  - id: TC-01\n    type: unit\n    description: it works\n",
}


def commit(
    house: House, files: Mapping[str, str | None], message: str = "Work", parent: Sha | None = None
) -> Sha:
    data = {path: text.encode() if text is not None else None for path, text in files.items()}
    return house.clone.commit_files(parent or house.main, data, message)


def seen(house: House, head: Sha | None = None, **more: Any) -> Evidence:
    """What a gate sees of a task on this head; fields of the task and of the evidence are told apart by name."""
    own = {name: more.pop(name) for name in list(more) if name in Task.__slots__}
    task = Task(
        **{
            **dict.fromkeys(Task.__slots__),
            "id": TaskId(1),
            "work_item": ITEM,
            "repo": RepoName("sample"),
            "labels": (),
            "stage": Stage.DEVELOPMENT,
            "round": 1,
            "epoch": 1,
            "track": Track.FULL,
            "base_sha": house.main,
            "head_sha": head or house.main,
            **own,
        }
    )
    nothing: dict[str, Any] = {
        "config": CONFIG,
        "unmet": (),
        "freeze": None,
        "baseline": None,
        "candidate": None,
        "checks": {},
        "steps": {},
        "own_commits": frozenset(),
        "kept": None,
    }
    return Evidence(task=task, clone=house.clone, **{**nothing, **more})


def judge(name: str, evidence: Evidence) -> GateResult:
    return QG_CHECKS[name](evidence)


def candidate(house: House) -> Candidate:
    sha = house.main
    return Candidate(TaskId(1), 1, sha, sha, sha, sha, "n" * 32, 1, "fence")


def said(result: GateResult) -> str:
    return result.brief()


# --- created ----------------------------------------------------------------------------------------------------------


def test_created_waits_for_dependencies_and_for_a_frozen_repository(house: House) -> None:
    assert judge("check_created", seen(house)).passed
    waits = judge("check_created", seen(house, unmet=((WorkItem("S-9"), Stage.REVIEW),)))
    assert (waits.verdict, "S-9 (review)" in waits.reason) == (Verdict.WAIT, True)
    never = judge("check_created", seen(house, unmet=((WorkItem("S-9"), Stage.CANCELLED),)))
    assert (never.verdict, "never be done" in never.reason) == (Verdict.WAIT, True)
    freeze = Freeze(RepoName("sample"), "broken", TaskId(7), WorkItem("S-7"), None, "")
    frozen = judge("check_created", seen(house, freeze=freeze))
    assert (frozen.verdict, frozen.evidence) == (Verdict.WAIT, {"frozen": True})
    assert judge("check_created", seen(house, freeze=replace(freeze, lent_to=TaskId(1)))).passed
    assert not judge("check_created", seen(house, freeze=replace(freeze, lent_to=TaskId(2)))).passed


# --- documents and the change -----------------------------------------------------------------------------------------


def test_analysis_accepts_its_documents(house: House) -> None:
    assert judge("check_analysis", seen(house, commit(house, ANALYSIS), stage=Stage.ANALYSIS)).passed


@pytest.mark.parametrize("missing", sorted(ANALYSIS))
def test_analysis_names_the_document_that_is_missing(house: House, missing: str) -> None:
    head = commit(house, {path: text for path, text in ANALYSIS.items() if path != missing})
    result = judge("check_analysis", seen(house, head, stage=Stage.ANALYSIS))
    assert result.verdict is Verdict.FAIL
    assert missing.rsplit("/", 1)[1] in said(result)


def test_analysis_touches_documents_only(house: House) -> None:
    head = commit(house, {**ANALYSIS, "src/app.py": "print('two')\n"})
    result = judge("check_analysis", seen(house, head, stage=Stage.ANALYSIS))
    assert result.verdict is Verdict.FAIL
    assert "src/app.py" in said(result)


def test_change_passes_with_work_outside_the_documents(house: House) -> None:
    result = judge("check_change", seen(house, commit(house, {"src/app.py": "print('two')\n"})))
    assert result.passed
    assert result.evidence["files"] == 1


@pytest.mark.parametrize(
    ("files", "word"),
    [
        pytest.param({}, "nothing but documents", id="empty"),
        pytest.param({f"{PLACE}/note.md": "x"}, "nothing but documents", id="documents-only"),
        pytest.param({"src/a.py": "A", ".ci/run": "true"}, ".ci/run", id="checks"),
        pytest.param({"src/a.py": "A", ".orchestrator.toml": ""}, ".orchestrator.toml", id="configuration"),
        pytest.param({"src/a.py": "A", ".coveragerc": ""}, ".coveragerc", id="coverage-settings"),
        pytest.param({"src/a.py": "A", ".github/workflows/x.yml": ""}, ".github", id="workflows"),
        pytest.param({"src/a.py": f"K = 'AKIA{'Q7ZLM4RT2VXW9KPD'}'\n"}, "src/a.py", id="secret"),
    ],
)
def test_change_names_what_no_branch_may_bring(house: House, files: dict[str, str | None], word: str) -> None:
    result = judge("check_change", seen(house, commit(house, files)))
    assert result.verdict is Verdict.FAIL
    assert word in said(result)
    assert "Q7ZLM4RT2VXW9KPD" not in said(result)


def test_change_that_deletes_a_protected_file_is_refused_unless_the_ticket_allows_it(house: House) -> None:
    house.outsider_pushes({".ci/run": "true\n"})
    house.clone.fetch()
    head = commit(house, {".ci/run": None, "src/a.py": "A"})
    assert ".ci/run" in said(judge("check_change", seen(house, head)))
    assert judge("check_change", seen(house, head, labels=("allow-protected",))).passed


def test_secret_of_this_installation_is_found_by_value(house: House) -> None:
    known = "the-token-of-this-installation"
    first = commit(house, {"src/a.py": f"T = '{known}'\n"})
    result = judge("check_change", seen(house, first, secrets=(known,)))
    assert result.verdict is Verdict.FAIL
    assert known not in said(result)


def test_secret_that_a_later_commit_takes_out_again_is_found(house: House) -> None:
    key = "AKIA" + "Q7ZLM4RT2VXW9KPD"
    first = commit(house, {"src/a.py": f"T = '{key}'\n"})
    second = commit(house, {"src/a.py": "T = 1\n"}, parent=first)
    result = judge("check_change", seen(house, second))
    assert result.verdict is Verdict.FAIL
    assert first[:12] in said(result)
    assert key not in said(result)


def test_secret_of_main_that_a_merge_brings_along_is_not_the_changes(house: House) -> None:
    base = house.main
    main = house.outsider_pushes({"src/old.py": f"T = 'AKIA{'Q7ZLM4RT2VXW9KPD'}'\n"})
    house.clone.fetch()
    work = commit(house, {"src/a.py": "A"}, parent=base)
    tree = house.clone.tree(commit(house, {"src/a.py": "A"}, parent=main))
    merged = house.clone.commit_tree(tree, [work, main], "Merge main\n")
    assert judge("check_change", seen(house, merged, base_sha=base)).passed


def test_history_that_does_not_begin_in_the_repository_is_refused(house: House) -> None:
    work = commit(house, {"src/a.py": "A"})
    root = house.clone.commit_tree(house.clone.tree(work), [], "From elsewhere\n")
    merged = house.clone.commit_tree(house.clone.tree(work), [work, root], "Merge\n")
    assert root[:12] in said(judge("check_change", seen(house, merged)))


def test_trailers_of_ours_are_refused_on_strangers_commits_only(house: House) -> None:
    head = commit(house, {"src/a.py": "A"}, "Work\n\nOrch-Nonce: 0123\n")
    assert "Orch-" in said(judge("check_change", seen(house, head)))
    assert judge("check_change", seen(house, head, own_commits=frozenset({head}))).passed


def test_objections_of_the_harvest_fail_the_change(house: House) -> None:
    head = commit(house, {"src/a.py": "A"})
    steps = {"harvest:branch": {"findings": ["The history was rewritten."]}}
    result = judge("check_change", seen(house, head, steps=steps))
    assert "The history was rewritten." in said(result)


def test_what_main_brought_is_not_the_changes_fault(house: House) -> None:
    base = house.main
    main = house.outsider_pushes({".ci/run": "true\n"})
    house.clone.fetch()
    work = commit(house, {"src/a.py": "A"}, parent=base)
    tree = house.clone.tree(commit(house, {"src/a.py": "A"}, parent=main))
    merged = house.clone.commit_tree(tree, [work, main], "Merge main\n")
    assert judge("check_change", seen(house, merged, base_sha=base)).passed


# --- checks and coverage ----------------------------------------------------------------------------------------------


def test_checks_count_for_exactly_this_head(house: House) -> None:
    head = commit(house, {"src/a.py": "A"})
    other = CheckResult(JobKind.CI, house.main, True, {})
    assert judge("check_ci", seen(house, head)).verdict is Verdict.WAIT
    assert judge("check_ci", seen(house, head, checks={JobKind.CI: other})).verdict is Verdict.WAIT
    assert judge("check_ci", seen(house, head, checks={JobKind.CI: replace(other, sha=head)})).passed
    red = CheckResult(JobKind.CI, head, False, {"reason": "exit code 1", "tail": "test_x FAILED"})
    result = judge("check_ci", seen(house, head, checks={JobKind.CI: red}))
    assert result.verdict is Verdict.FAIL
    assert "test_x FAILED" in said(result)


COVERAGE = CoverageConfig("lcov.info", "lcov", tolerance=0.5, minimum=50.0)
BASELINE = Baseline(80.0, Sha("b" * 40), "")


@pytest.mark.parametrize(
    ("percent", "baseline", "passes"),
    [
        (80.0, BASELINE, True),
        (79.5, BASELINE, True),
        (79.49, BASELINE, False),
        (50.0, None, True),
        (49.99, None, False),
        (float("nan"), BASELINE, False),
        (float("nan"), None, False),
        (True, None, False),
        ("90", None, False),
        (None, None, False),
        (100, BASELINE, True),
    ],
)
def test_coverage_table(percent: object, baseline: Baseline | None, passes: bool) -> None:
    check = CheckResult(JobKind.CANDIDATE_CI, Sha("a" * 40), True, {"percent": percent})
    assert judge_coverage(COVERAGE, check, baseline).passed is passes


def test_coverage_that_was_not_measured_says_why() -> None:
    check = CheckResult(JobKind.CANDIDATE_CI, Sha("a" * 40), True, {"coverage_problem": "lcov.info is empty"})
    assert "lcov.info is empty" in said(judge_coverage(COVERAGE, check, None))
    assert "lcov.info" in said(judge_coverage(COVERAGE, None, None))
    assert judge_coverage(None, None, BASELINE).passed
    assert measured_percent(None) is None


def test_candidate_needs_checks_then_coverage_on_m(house: House) -> None:
    m = candidate(house)
    config = replace(CONFIG, coverage=COVERAGE)
    assert judge("check_candidate", seen(house)).verdict is Verdict.WAIT
    waits = seen(house, candidate=m, config=config)
    assert judge("check_candidate", waits).verdict is Verdict.WAIT
    for passed, percent, verdict in (
        (True, 90.0, Verdict.PASS),
        (True, 70.0, Verdict.FAIL),
        (False, 90.0, Verdict.FAIL),
    ):
        check = CheckResult(JobKind.CANDIDATE_CI, m.sha, passed, {"percent": percent})
        evidence = replace(waits, checks={JobKind.CANDIDATE_CI: check}, baseline=BASELINE)
        assert judge("check_candidate", evidence).verdict is verdict


# --- verdicts ---------------------------------------------------------------------------------------------------------


def reviewed(house: House, *, verdict: str = "approved", gated: Sha | None = None) -> tuple[Sha, Sha]:
    """(gated commit, head with the orchestrator's commit of a review of it)."""
    work = commit(house, {**ANALYSIS, "src/a.py": "A"})
    review = markdown("review", "reviewer", f"verdict: {verdict}\ngated_sha: {gated or work}\nfindings: []\n")
    return work, commit(house, {f"{PLACE}/12-review.md": review}, parent=work)


def test_review_of_the_gated_commit_passes(house: House) -> None:
    work, head = reviewed(house)
    evidence = seen(house, head, gated_sha=work, own_commits=frozenset({head}), stage=Stage.REVIEW)
    result = judge("check_review", evidence)
    assert result.passed
    assert result.evidence["gated_sha"] == work


def test_review_that_rejects_fails_and_one_about_another_commit_does_not_count(house: House) -> None:
    work, head = reviewed(house, verdict="rejected")
    own = frozenset({head})
    assert judge("check_review", seen(house, head, gated_sha=work, own_commits=own)).verdict is Verdict.FAIL
    work, head = reviewed(house, gated=house.main)
    own = frozenset({head})
    assert judge("check_review", seen(house, head, gated_sha=work, own_commits=own)).verdict is Verdict.WAIT


def test_review_that_is_not_there_is_waited_for(house: House) -> None:
    work = commit(house, ANALYSIS)
    assert judge("check_review", seen(house, work, gated_sha=work)).verdict is Verdict.WAIT


def test_verdicts_are_void_once_anyone_else_has_committed(house: House) -> None:
    work, head = reviewed(house)
    strangers = {
        "in the code": commit(house, {"src/a.py": "B"}, parent=head),
        "in the folder": commit(house, {f"{PLACE}/01-brd.md": "other"}, parent=head),
        "an empty commit": house.clone.commit_tree(house.clone.tree(head), [head], "Nothing\n"),
    }
    for what, after in strangers.items():
        result = judge("check_review", seen(house, after, gated_sha=work, own_commits=frozenset({head})))
        assert result.verdict is Verdict.FAIL, what
        assert "void" in result.reason, what


def test_own_commit_outside_the_documents_voids_them_too(house: House) -> None:
    work, head = reviewed(house)
    after = commit(house, {"src/a.py": "B"}, parent=head)
    odd = commit(house, {f"{PLACE}/run.sh": "B"}, parent=head)
    for each in (after, odd):
        own = frozenset({head, each})
        assert not judge("check_review", seen(house, each, gated_sha=work, own_commits=own)).passed


def test_report_accounts_for_every_case(house: House) -> None:
    work, reviewed_head = reviewed(house)
    for cases, verdict in (
        ("TC-01: pass", Verdict.PASS),
        ("TC-01: fail", Verdict.FAIL),
        ("TC-02: pass", Verdict.FAIL),
    ):
        report = markdown("testing", "tester", f"verdict: pass\ngated_sha: {work}\ncases:\n  {cases}\n")
        head = commit(house, {f"{PLACE}/13-test-report.md": report}, parent=reviewed_head)
        own = frozenset({reviewed_head, head})
        result = judge(
            "check_testing", seen(house, head, gated_sha=work, own_commits=own, stage=Stage.TESTING)
        )
        assert result.verdict is verdict, cases


# --- environments -----------------------------------------------------------------------------------------------------


def test_staging_log_is_about_m(house: House) -> None:
    m = candidate(house)
    assert judge("check_staging_log", seen(house, candidate=m)).verdict is Verdict.WAIT
    for verdict, sha, wanted in (
        ("healthy", m.sha, Verdict.PASS),
        ("unhealthy", m.sha, Verdict.FAIL),
        ("healthy", "0" * 40, Verdict.WAIT),
    ):
        text = markdown("deploy-staging", "deployer", f"verdict: {verdict}\ncandidate_sha: {sha}\n")
        kept = KeptDocument("14-staging-log.md", 1, m.sha, text.encode())
        assert judge("check_staging_log", seen(house, candidate=m, kept=kept)).verdict is wanted
    broken = KeptDocument("14-staging-log.md", 1, m.sha, b"\xff\xfe")
    assert judge("check_staging_log", seen(house, candidate=m, kept=broken)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("gate", "kind"),
    [("check_staging", JobKind.STAGING_HEALTH), ("check_production", JobKind.PRODUCTION_HEALTH)],
)
def test_health_is_what_our_own_watch_saw(house: House, gate: str, kind: JobKind) -> None:
    m = candidate(house)
    landed = Landed(m, m.sha, m.tree)
    assert judge(gate, seen(house)).verdict is Verdict.WAIT
    assert judge(gate, seen(house, candidate=m, landed=landed)).verdict is Verdict.WAIT
    for passed in (True, False):
        check = CheckResult(kind, m.sha, passed, {"reason": "as seen", "seen": m.sha})
        result = judge(gate, seen(house, candidate=m, landed=landed, checks={kind: check}))
        assert (result.passed, result.reason) == (passed, "as seen")


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, production=None)])
def test_nothing_is_done_whose_m_is_not_on_main(house: House, config: RepoConfig) -> None:
    m = candidate(house)
    check = CheckResult(JobKind.PRODUCTION_HEALTH, m.sha, True, {"reason": "as seen", "seen": m.sha})
    evidence = seen(house, config=config, candidate=m, checks={JobKind.PRODUCTION_HEALTH: check})
    result = judge("check_production", evidence)
    assert (result.verdict, m.sha in result.reason) == (Verdict.FAIL, True)


def test_without_a_production_there_is_nothing_to_watch(house: House) -> None:
    assert judge("check_production", seen(house, config=replace(CONFIG, production=None))).passed
    assert judge("check_production", seen(house, config=None)).verdict is Verdict.WAIT
