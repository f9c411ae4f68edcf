"""Cancelled in every stage: before the merge nothing lands and nothing is lost, after it the answer is no (case 15)."""

import os
import signal
import threading

import pytest

from orchestrator.agents.runs import Runs
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.workspace.worktree import Workspaces
from tests.fixtures_pipeline import Build, Pipeline, block, gone
from tests.waiting import PATIENCE_S, wait_until


def _cancelled(line: Pipeline, item: str) -> None:
    """The task has ended, nothing landed, nothing happens after it."""
    line.stage(item, Stage.CANCELLED)
    assert line.merges() == []
    assert line.slots() == []
    kinds = [e.type for e in line.events(item)]
    after = kinds[len(kinds) - kinds[::-1].index(EventType.STAGE_CHANGED) :]
    assert set(after) <= {
        EventType.RUN_FINISHED,
        EventType.NOTE,
        EventType.JOB_FINISHED,
        EventType.SLOT_FREED,
    }


@pytest.mark.long(but=["developer"])
@pytest.mark.parametrize("role", ["analyst", "developer", "reviewer", "tester", "deployer"])
def test_cancel_while_an_agent_works_ends_it_and_all_it_started(pipeline: Build, role: str) -> None:
    line = pipeline(staging=True).start()
    line.agent({"role": role, "helpers": 1, "until": str(line.root / "never"), "commit_on_term": True})
    item = line.add()
    run = line.started(item, role)
    wait_until(line.helpers)
    receipt = line.app.operations.cancel(item, person="Ann", reason="not wanted")
    _cancelled(line, item)
    assert line.outcome(receipt) == "applied"
    wait_until(lambda: gone(run["pid"]) and all(gone(pid) for pid in line.helpers()))
    wait_until(lambda: line.story(item).runs[-1][1].outcome is not None)
    branch = line.task(item).branch
    assert line.roles(item)[-1] == role
    line.app.cleaner.run_once()
    assert all(pull["closed"] for pull in line.pulls())
    if role != "analyst":
        assert line.forge.git("rev-parse", str(branch))
    assert "cancelled by Ann: not wanted" in line.told(item)


def test_cancelled_work_is_kept(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "developer", "at_last": [["touch", str(line.root / "written")]], "stay": True})
    item = line.add()
    line.started(item, "developer")
    wait_until((line.root / "written").exists)
    line.app.operations.cancel(item, person="Ann")
    _cancelled(line, item)
    wait_until(lambda: line.story(item).runs[-1][1].outcome is not None)
    line.app.cleaner.run_once()
    clone = str(line.home / "repos" / "sample" / "clone.git")
    refs = line.forge.git("--git-dir", clone, "for-each-ref", "--format=%(refname)", "refs/orch")
    kept = [
        line.forge.git("--git-dir", clone, "ls-tree", "-r", "--name-only", ref, check=False)
        for ref in refs.split()
    ]
    assert any("src/change_S_1.py" in names for names in kept)


@pytest.mark.long
@pytest.mark.parametrize("restarted", [False, True], ids=["watched", "after-a-restart"])
def test_cancelled_task_is_tidied_when_its_run_has_ended(pipeline: Build, restarted: bool) -> None:
    """Not under the hands of an agent that takes its time; also where its watcher died meanwhile."""
    line = pipeline().start()
    line.agent({"role": "developer", "ignore_term": True, "until": str(line.root / "never")})
    item = line.add()
    run = line.started(item, "developer")
    line.app.operations.cancel(item, person="Ann")
    _cancelled(line, item)
    if restarted:
        line.restart()
    assert line.app.cleaner.run_once() == {"tidied": 0}
    assert not gone(run["pid"])
    assert os.path.exists(run["cwd"])
    os.kill(run["pid"], signal.SIGKILL)
    wait_until(lambda: line.app.cleaner.run_once()["tidied"] == 1)
    assert not os.path.exists(run["cwd"])
    assert line.story(item).runs[-1][1].outcome is not None


@pytest.mark.parametrize("moment", ["its workspace is made", "its supervisor is started"])
def test_cancel_at_the_very_start_of_a_job(pipeline: Build, moment: str) -> None:
    """The agent is not left running for a task that has ended, at whatever moment the cancel comes."""
    line = pipeline()
    line.agent({"role": "developer", "until": str(line.root / "never")})
    line.start()
    there, go, hook = block()
    owner, name = (Workspaces, "prepare") if moment == "its workspace is made" else (Runs, "start")
    real = getattr(owner, name)

    def slow(*args: object) -> object:
        if line.agents():
            hook()
        return real(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, slow)
        item = line.add()
        assert there.wait(PATIENCE_S)
        line.app.operations.cancel(item, person="Ann")
        _cancelled(line, item)
        go.set()
        wait_until(lambda: line.app.worker.snapshot()["agents"] == 0)
    assert all(gone(run["pid"]) for run in line.agents(item))
    assert all(run.outcome is not None for _, run in line.story(item).runs)


def test_cancel_while_checks_run_ends_them(pipeline: Build) -> None:
    line = pipeline().start()
    line.checks(until=str(line.root / "never"))
    item = line.add()
    [check] = wait_until(lambda: line.journal("checks"))
    line.app.operations.cancel(item, person="Ann")
    _cancelled(line, item)
    wait_until(lambda: gone(check["pid"]))


@pytest.mark.long
def test_cancel_while_waiting_for_the_slot(pipeline: Build) -> None:
    line = pipeline(settings={"ORCH_MAX_CHECKS": "2"}).start()
    there, go, hook = block()
    line.points.on("merge_pr.intended", hook)
    items = [line.add("One"), line.add("Two")]
    assert there.wait(PATIENCE_S)
    waiter = wait_until(lambda: next((i for i in items if line.task(i).hold is Hold.SLOT), None))
    line.app.operations.cancel(waiter, person="Ann")
    line.stage(waiter, Stage.CANCELLED)
    go.set()
    line.done(next(i for i in items if i != waiter))
    assert len(line.merges()) == 1


@pytest.mark.long
def test_cancel_of_a_held_and_of_a_waiting_task(pipeline: Build) -> None:
    line = pipeline("[approvals]\nanalysis = true\n").start()
    item = line.add()
    later = line.add("Later", depends_on=(item,))
    line.held(item, Hold.PERSON)
    line.held(later, Hold.BLOCKED)
    line.app.operations.cancel(item, person="Ann")
    line.stage(item, Stage.CANCELLED)
    task = line.wait_for(later, lambda t: "cancelled" in str(t.hold_reason))
    assert task.stage is Stage.CREATED
    assert item in str(task.hold_reason)
    line.app.operations.cancel(later, person="Ann")
    line.stage(later, Stage.CANCELLED)
    assert line.merges() == []


def test_cancel_between_intent_and_merge_turns_it(pipeline: Build) -> None:
    line = pipeline(staging=True).start()
    item = line.add()
    receipts = []
    line.points.on(
        "merge_pr.intended", lambda: receipts.append(line.app.operations.cancel(item, person="Ann"))
    )
    line.wait_for(item, lambda t: t.stage in (Stage.CANCELLED, Stage.DONE))
    if line.task(item).stage is Stage.CANCELLED:
        _cancelled(line, item)
        [merge] = [e for e in line.story(item).effects if e.name is EffectName.MERGE_PR]
        assert merge.state is EffectState.REVOKED
    else:  # the act was quicker than the word: then the answer is no
        assert "refused" in line.outcome(receipts[0])


@pytest.mark.long
def test_cancel_that_waits_when_the_merge_is_driven_turns_it(pipeline: Build) -> None:
    line = pipeline(staging=True)
    line.register()
    child_dies = line  # the child dies with the intent stored and nothing sent
    line.stop()
    line.open()
    item = line.add()
    line.stop()
    child = child_dies.child("merge_pr.before_act")
    assert child.wait(60) == -9
    line.open()
    assert line.merges() == []
    receipt = line.app.operations.cancel(item, person="Ann", reason="changed my mind")
    line.start()
    _cancelled(line, item)
    assert line.outcome(receipt) != ""
    [merge] = [e for e in line.story(item).effects if e.name is EffectName.MERGE_PR]
    assert merge.state is EffectState.REVOKED
    line.app.cleaner.run_once()
    assert [pull["closed"] for pull in line.pulls()] == [True]


def test_cancel_after_the_merge_is_refused_and_answered(pipeline: Build) -> None:
    line = pipeline(production=True).start()
    line.deploys(production={"until": str(line.root / "go")})
    item = line.add()
    line.stage(item, Stage.DEPLOY)
    receipt = line.app.operations.cancel(item, person="Ann")
    assert "refused" in line.outcome(receipt)
    assert "on main already" in line.outcome(receipt)
    (line.root / "go").touch()
    line.done(item)
    assert line.running("production") == line.main
    line.app.outbox.run_once()
    assert "not applied" in str(line.app.tracker.history(line.task(item).work_item))


def test_cancel_twice_is_answered_twice(pipeline: Build) -> None:
    line = pipeline("[approvals]\nanalysis = true\n").start()
    item = line.add()
    line.held(item, Hold.PERSON)
    line.stop()
    line.open()  # neither is read before both are stored
    one, two = (line.app.operations.cancel(item, person=person) for person in ("Ann", "Bob"))
    line.start()
    line.stage(item, Stage.CANCELLED)
    assert line.outcome(one) == "applied"
    assert line.outcome(two)
    assert line.unanswered(item) == []


@pytest.mark.long
def test_cancel_gives_up_an_image_that_cannot_be_stored(pipeline: Build) -> None:
    """An effect that keeps failing before the merge holds nobody who does not want it any more."""
    line = pipeline(image=True, staging=True)
    images = line.home / "images"

    def break_the_store() -> None:
        images.mkdir(exist_ok=True)
        images.rename(images.with_name("away"))
        images.write_text("no folder")

    line.points.on("image.before_act", break_the_store)
    failed = threading.Event()
    line.points.on("effect.open", failed.set)
    line.start()
    item = line.add()
    assert failed.wait(PATIENCE_S)
    assert line.slots() != []
    receipt = line.app.operations.cancel(item, person="Ann")
    images.unlink()
    images.with_name("away").rename(images)
    _cancelled(line, item)
    assert "applied" in str(line.outcome(receipt)) or "cancelled" in str(line.outcome(receipt))
    image = next(e for e in line.story(item).effects if e.name is EffectName.IMAGE)
    assert image.state is EffectState.REVOKED


def test_pull_request_opened_too_late_is_closed_too(pipeline: Build) -> None:
    """A call that was on its way when the task was cancelled: the ledger knows nothing of what it opened."""
    line = pipeline().start()
    line.agent({"role": "developer", "until": str(line.root / "never")})
    item = line.add()
    line.started(item, "developer")
    line.app.operations.cancel(item, person="Ann")
    _cancelled(line, item)
    task = line.task(item)
    assert task.pr_number is None
    line.app.places.of(line.repo).forge.open_pr(str(task.branch), "late", "")
    assert not all(pull["closed"] for pull in line.pulls())
    wait_until(lambda: line.app.cleaner.run_once()["tidied"])
    assert all(pull["closed"] for pull in line.pulls())
