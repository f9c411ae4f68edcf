"""A person's word: bound to what was on show, applied once, answered when it comes too late (law 7)."""

from datetime import timedelta

import pytest

from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from tests.fixtures_pipeline import Build, block
from tests.waiting import PATIENCE_S


def test_analysis_waits_for_approved(pipeline: Build) -> None:
    line = pipeline("[approvals]\nanalysis = true\n").start()
    item = line.add()
    task = line.held(item, Hold.PERSON)
    assert task.stage is Stage.ANALYSIS
    assert any(item in alert and "approve" in alert for alert in line.alerts())
    assert line.roles(item) == ["analyst"]
    assert line.outcome(line.app.operations.approve(item, person="Ann")) == "applied"
    line.done(item)


@pytest.mark.long
def test_rejected_analysis_is_written_again_with_the_persons_words(pipeline: Build) -> None:
    line = pipeline("[approvals]\nanalysis = true\n").start()
    item = line.add()
    line.held(item, Hold.PERSON)
    receipt = line.app.operations.reject(item, person="Ann", reason="Say which users.")
    assert line.outcome(receipt) == "applied"
    line.wait_for(item, lambda task: task.round == 2 and task.hold is Hold.PERSON)
    assert line.roles(item) == ["analyst", "analyst"]
    assert "Say which users." in line.agents(item)[1]["notes"]
    line.app.operations.approve(item, person="Ann")
    line.done(item)


def test_nothing_is_approved_where_nothing_waits(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "developer", "until": str(line.root / "go")})
    item = line.add()
    line.started(item, "developer")
    with pytest.raises(RequestRefused, match="nothing waits for an approval"):
        line.app.operations.approve(item, person="Ann")
    receipt = line.app.operations.reject(item, person="Ann", reason="No.")
    assert "refused" in line.outcome(receipt)
    assert "nothing waits" in line.outcome(receipt)
    assert line.task(item).stage is Stage.DEVELOPMENT


@pytest.mark.long
def test_approval_of_a_candidate_that_was_given_up_is_refused_and_answered(pipeline: Build) -> None:
    line = pipeline("[approvals]\ndeploy = true\n").start()
    item = line.add()
    line.held(item, Hold.PERSON)
    there, go, hook = block()
    line.points.on("transition.after_commit", hook, target=Stage.DEPLOY_STAGING)
    line.points.on("merge_pr.intended", lambda: line.push_to_main({"src/theirs.py": "T = 1\n"}))
    line.app.operations.approve(item, person="Ann")
    line.points.on("transition.before_commit", hook, target=Stage.DEPLOY_STAGING)
    assert there.wait(
        PATIENCE_S
    )  # the new round is about to be written: what is on show is still the old candidate
    late = line.app.operations.approve(item, person="Bob")
    go.set()
    assert "refused" in line.outcome(late)
    assert "moved on" in line.outcome(late)
    line.wait_for(item, lambda task: task.hold is Hold.PERSON and task.round == 2)
    assert line.merges() == []
    line.app.outbox.run_once()
    assert any(e.type is EventType.SIGNAL_REFUSED for e in line.events(item))
    comments = line.app.tracker.history(line.task(item).work_item)
    assert any("Bob" in str(comment) and "not applied" in str(comment) for comment in comments)


@pytest.mark.long
def test_rejection_of_a_candidate_that_was_given_up_is_refused(pipeline: Build) -> None:
    line = pipeline("[approvals]\ndeploy = true\n").start()
    item = line.add()
    line.held(item, Hold.PERSON)
    there, go, hook = block()
    line.points.on("merge_pr.intended", lambda: line.push_to_main({"src/theirs.py": "T = 1\n"}))
    line.points.on("transition.before_commit", hook, target=Stage.DEPLOY_STAGING)
    line.app.operations.approve(item, person="Ann")
    assert there.wait(PATIENCE_S)
    late = line.app.operations.reject(item, person="Bob", reason="Not this one.")
    go.set()
    line.wait_for(item, lambda task: task.hold is Hold.PERSON and task.round == 2)
    assert "refused" in line.outcome(late)
    assert line.task(item).stage is Stage.DEPLOY_STAGING
    assert line.roles(item).count("developer") == 1


def test_confirmed_deploy_goes_out_and_a_rejected_one_goes_back(pipeline: Build) -> None:
    line = pipeline("[approvals]\ndeploy = true\n", staging=True, production=True).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    assert line.merges() == []
    receipt = line.app.operations.reject(item, person="Ann", reason="The button is red.")
    assert line.outcome(receipt) == "applied"
    line.wait_for(item, lambda task: task.hold is Hold.PERSON and task.round == 2)
    notes = [run["notes"] for run in line.agents(item) if run["role"] == "developer"]
    assert "The button is red." in notes[1]
    line.app.operations.approve(item, person="Ann")
    line.done(item)
    assert line.running("production") == line.main


@pytest.mark.long
def test_confirmation_that_takes_too_long_frees_the_slots_and_queues_again(pipeline: Build) -> None:
    line = pipeline('[approvals]\ndeploy = true\nconfirm_timeout = "1h"\n', staging=True).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    line.app.reconciler.run_once()
    line.clock.ahead = timedelta(hours=2)

    def in_time(task: Task) -> bool:  # a look that is just being taken leaves the task to its owner
        line.app.reconciler.run_once()
        return task.round == 2 and task.hold is Hold.PERSON

    line.wait_for(item, in_time)
    assert ("deploy-staging", "testing", "requeue") in line.moves(item)
    assert line.roles(item) == ["analyst", "developer", "reviewer", "tester", "deployer", "deployer"]
    assert not any(kind == "reject" for _, _, kind in line.moves(item))
    line.app.operations.approve(item, person="Ann")
    line.done(item)
    assert len(line.merges()) == 1
