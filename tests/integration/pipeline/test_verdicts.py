"""Reviewers and testers: what their verdicts do, and what happens where they cannot be used."""

import pytest

from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import Build


def test_rejected_review_comes_back_with_its_findings(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "reviewer", "round": 1, "verdict": "rejected", "findings": ["Name it greet()."]})
    item = line.add()
    line.done(item)
    assert line.roles(item) == ["analyst", "developer", "reviewer", "developer", "reviewer", "tester"]
    second = line.agents(item)[3]
    assert (second["round"], second["attempt"]) == (2, 1)
    assert "Name it greet()." in second["notes"]
    assert ("review", "development", "reject") in line.moves(item)
    assert line.show(f"src/change_{item.replace('-', '_')}.py") == "CHANGE = 2"
    assert "verdict: approved" in line.show(f"docs/work-items/{item}/12-review.md")


@pytest.mark.long
def test_rejections_are_bounded_then_a_person_decides(pipeline: Build) -> None:
    line = pipeline("[budget]\nmax_rounds = 1\n").start()
    line.agent({"role": "reviewer", "verdict": "rejected", "findings": ["No."]})
    item, other = line.add("Rejected"), line.add("Rejected too")
    for each in (item, other):
        task = line.held(each, Hold.ESCALATED)
        assert task.stage is Stage.REVIEW
        assert task.round == 2
        assert "rejected 1 times" in str(task.hold_reason)
        assert any(each in alert and "rejected 1 times" in alert for alert in line.alerts())
        assert "waits (escalated)" in line.why(each)
    assert line.merges() == []

    line.agent()
    line.retry(item)
    line.done(item)
    assert line.roles(item) == [*["analyst", "developer", "reviewer", "developer", "reviewer"], "developer",
                                "reviewer", "tester"]  # fmt: skip
    assert line.agents(item)[5]["round"] == 3
    assert "No." in line.agents(item)[5]["notes"]

    receipt = line.app.operations.cancel(other, person="Ann")
    line.stage(other, Stage.CANCELLED)
    assert line.outcome(receipt) == "applied"
    assert len(line.merges()) == 1


def test_failed_case_goes_back_to_development(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent(
        {"role": "analyst", "plan": ["TC-01", "TC-02"]},
        {"role": "tester", "round": 1, "verdict": "fail", "cases": {"TC-01": "pass", "TC-02": "fail"}},
        {"role": "tester", "cases": {"TC-01": "pass", "TC-02": "pass"}},
    )
    item = line.add()
    line.done(item)
    assert line.roles(item)[1:] == ["developer", "reviewer", "tester", "developer", "reviewer", "tester"]
    assert "TC-02" in line.agents(item)[4]["notes"]


@pytest.mark.long
def test_case_that_the_report_leaves_out_does_not_pass(pipeline: Build) -> None:
    line = pipeline("[budget]\nmax_rounds = 1\n").start()
    line.agent(
        {"role": "analyst", "plan": ["TC-01", "TC-02"]}, {"role": "tester", "cases": {"TC-01": "pass"}}
    )
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.TESTING
    assert "TC-02" in line.told(item)
    assert line.merges() == []


@pytest.mark.long
def test_verdict_about_another_commit_is_asked_for_again(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "reviewer", "sha": "0" * 40})
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.REVIEW
    assert line.roles(item)[2:] == ["reviewer"] * 3
    assert "0" * 40 in line.agents(item)[3]["notes"]
    assert str(task.gated_sha) in line.agents(item)[3]["notes"]
    assert "12-review.md" in str(task.hold_reason)
    assert line.moves(item)[-1] == ("development", "review", "advance")

    line.agent()
    line.retry(item)
    line.done(item)
    assert line.roles(item)[2:] == [*["reviewer"] * 4, "tester"]


def test_missing_verdict_is_asked_for_again(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "tester", "round": 1, "attempt": 1, "title": "Change it", "documents": False})
    item = line.add()
    line.wait_for(item, lambda _: line.roles(item).count("tester") == 1)
    line.wait_for(item, lambda _: line.roles(item).count("tester") == 2)
    line.agent()
    line.done(item)
    assert "13-test-report.md" in line.agents(item)[-1]["notes"]


def test_reviewer_who_commits_code_changes_nothing(pipeline: Build) -> None:
    line = pipeline().start()
    sneak = [["sh", "-c", "echo 'EVIL = 1' > src/evil.py; git add -A; git commit -qm 'A small fix'"]]
    line.agent({"role": "reviewer", "after": sneak, "commit": False}, {"role": "tester", "commit": True})
    item = line.add()
    task = line.done(item)
    files = line.forge.git("ls-tree", "-r", "--name-only", "main").splitlines()
    assert "src/evil.py" not in files
    assert f"docs/work-items/{item}/12-review.md" in files
    clone = line.home / "repos" / "sample" / "clone.git"
    rescued = line.forge.git(
        "--git-dir", str(clone), "for-each-ref", "--format=%(refname)", "refs/orch/rescue"
    )
    kept = [
        line.forge.git("--git-dir", str(clone), "ls-tree", "-r", "--name-only", ref)
        for ref in rescued.split()
    ]
    assert any("src/evil.py" in names for names in kept)
    assert task.gated_sha in line.forge.git("rev-list", "main")


def test_verdict_that_cannot_be_read_is_asked_for_again(pipeline: Build) -> None:
    line = pipeline().start()
    link = "mkdir -p docs/work-items/S-1; ln -s /etc/passwd docs/work-items/S-1/12-review.md"
    line.agent({"role": "reviewer", "documents": False, "after": [["sh", "-c", link]]})
    item = line.add()
    line.wait_for(item, lambda _: line.roles(item).count("reviewer") == 2)
    line.agent()
    line.done(item)
    assert "12-review.md" in line.agents(item)[3]["notes"]
    assert "root:" not in "".join(run["notes"] for run in line.agents(item))


@pytest.mark.long
def test_architect_who_cannot_build_on_the_analysis_sends_it_back(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "architect", "round": 1, "risks": ["back_to: analysis"]})
    item = line.add(labels=("full",))
    line.done(item)
    assert ("architecture", "analysis", "reject") in line.moves(item)
    assert line.roles(item)[:4] == ["analyst", "architect", "analyst", "architect"]
    assert "Some words." in line.agents(item)[2]["notes"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["12-review.md", "13-test-report.md", "14-staging-log.md"])
def test_document_outlives_a_commit_that_fails_while_it_is_taken_over(pipeline: Build, name: str) -> None:
    """Law 8: what an agent has delivered is not paid for again because we stumbled over it."""
    line = pipeline(staging=True).start()

    def fail() -> None:
        raise DatabaseError("The database refused: disk I/O error.")

    line.points.on("step.begin", lambda: line.points.on("db.before_commit", fail), step=f"record:{name}")
    item = line.add()
    line.done(item, 60)
    assert line.roles(item) == ["analyst", "developer", "reviewer", "tester", "deployer"]
