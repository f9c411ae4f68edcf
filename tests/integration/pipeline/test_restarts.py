"""Stopped, or killed by SIGKILL, anywhere: the next life ends the task, every effect took place once (cases 11, 16)."""

import errno
import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.agents.run_folder import RunFolder
from orchestrator.daemons import queue_worker
from orchestrator.db import jobs
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.event import EventType
from orchestrator.domain.job import JobStatus, RunOutcome
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.runtime.process import ProcessIdentity, SystemProcesses
from tests.fixtures_pipeline import ILL, Build, Pipeline, gone
from tests.waiting import PATIENCE_S, wait_until

ROLES = ["analyst", "developer", "reviewer", "tester", "deployer"]


def _each_once(line: Pipeline, item: str) -> None:
    """What the outside shows: one of everything, and the tested M everywhere."""
    task = line.done(item)
    [merge] = line.merges()
    assert merge == line.main == line.running("staging") == line.running("production")
    starts = line.journal("deploys")
    assert Counter(start["env"] for start in starts) == {"staging": 1, "production": 1}
    assert {start["sha"] for start in starts} == {merge}
    assert len({start["digest"] for start in starts}) == 1
    assert [pull["branch"] for pull in line.pulls()] == [task.branch]
    assert line.baseline() == 80.0
    assert line.slots() == []
    effects = line.story(item).effects
    assert all(effect.state is EffectState.APPLIED for effect in effects)
    names = Counter(effect.name for effect in effects)
    assert (names[EffectName.MERGE_PR], names[EffectName.RATCHET], names[EffectName.DEPLOY_INIT]) == (1, 1, 2)
    assert len(line.story(item).candidates) == 1
    epochs = [e.epoch for e in line.events(item) if e.type is EventType.STAGE_CHANGED]
    assert epochs == sorted(epochs, key=lambda epoch: epoch or 0)


@pytest.mark.long(but=["developer"])
@pytest.mark.parametrize("role", ROLES)
def test_agent_goes_on_through_a_restart_and_is_adopted(pipeline: Build, role: str) -> None:
    line = pipeline(coverage=True, staging=True, production=True).start()
    line.agent({"role": role, "until": str(line.root / "go")})
    item = line.add()
    run = line.started(item, role)
    line.stop()
    assert not gone(run["pid"])
    line.start()
    wait_until(lambda: len(line.app.launcher.flying()) == 1)
    assert f"runs {role}" in line.why(item)
    (line.root / "go").touch()
    _each_once(line, item)
    assert line.roles(item) == ROLES
    assert [run["attempt"] for run in line.agents(item)] == [1] * 5


def test_agent_that_ended_while_nobody_was_there_is_not_paid_twice(pipeline: Build) -> None:
    line = pipeline(coverage=True, staging=True, production=True).start()
    line.agent({"role": "developer", "until": str(line.root / "go")})
    item = line.add()
    run = line.started(item, "developer")
    line.stop()
    (line.root / "go").touch()
    wait_until(lambda: gone(run["pid"]) and list(line.home.glob("runs/*/exit.json")))
    line.start()
    _each_once(line, item)
    assert line.roles(item) == ROLES


@pytest.mark.long
@pytest.mark.parametrize("which", [1, 2], ids=["of-the-branch", "of-the-candidate"])
def test_checks_are_interrupted_by_a_stop_and_run_again(pipeline: Build, which: int) -> None:
    line = pipeline(coverage=True, staging=True, production=True).start()
    wait = {"until": str(line.root / "go")}
    if which == 1:
        line.checks(**wait)
    else:
        line.points.on("check_testing.judged", lambda: line.checks(**wait))
    item = line.add()
    check = wait_until(lambda: len(found := line.journal("checks")) == which and found[-1])
    line.stop()
    wait_until(lambda: gone(check["pid"]))
    (line.root / "go").touch()
    line.start()
    _each_once(line, item)
    assert len(line.journal("checks")) == 3
    with line.app.database.read() as tx:
        assert all(job.attempts == 1 for job in jobs.of_task(tx, line.task(item).id))


@pytest.mark.long
@pytest.mark.parametrize("environment", ["staging", "production"])
def test_deploy_command_goes_on_through_a_restart(pipeline: Build, environment: str) -> None:
    line = pipeline(coverage=True, staging=True, production=True).start()
    line.deploys(**{environment: {"until": str(line.root / "go")}})
    item = line.add()
    [start] = wait_until(lambda: line.deployed(environment))
    line.stop()
    assert not gone(start["pid"])
    line.start()
    (line.root / "go").touch()
    _each_once(line, item)


@pytest.mark.long
def test_waiting_for_a_person_through_a_restart(pipeline: Build) -> None:
    line = pipeline("[approvals]\ndeploy = true\n", coverage=True, staging=True, production=True).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    line.stop()
    line.open()
    line.app.operations.approve(item, person="Ann")  # nobody is there to be woken
    line.start()
    _each_once(line, item)
    assert len(line.alerts()) == 1


POINTS = [
    ("open_pr.after_act", 1),
    ("image.after_act", 1),
    ("deploy_init.before_act", 1),
    ("deploy_init.after_act", 1),
    ("merge_pr.intended", 1),
    ("merge_pr.before_act", 1),
    ("merge_pr.after_act", 1),
    ("deploy_init.before_act", 2),
    ("deploy_init.after_act", 2),
    ("transition.before_commit", 7),
    ("transition.after_commit", 6),
    ("transition.after_commit", 7),
]


@pytest.mark.long(but=["merge_pr.before_act-1", "deploy_init.after_act-1", "transition.after_commit-6"])
@pytest.mark.parametrize(("point", "count"), [pytest.param(p, n, id=f"{p}-{n}") for p, n in POINTS])
def test_killed_at_a_waypoint(pipeline: Build, point: str, count: int) -> None:
    line = pipeline(coverage=True, image=True, staging=True, production=True)
    item = _filed(line)
    child = line.child(point, count)
    assert child.wait(60) == -signal.SIGKILL
    line.start()
    _each_once(line, item)
    assert line.roles(item) == ROLES
    assert len(line.journal("builds")) == 1


def _filed(line: Pipeline) -> str:
    line.register()
    item = line.add()
    line.stop()
    return item


@pytest.mark.long
@pytest.mark.parametrize("role", ["developer", "deployer"])
def test_killed_while_an_agent_works(pipeline: Build, role: str) -> None:
    line = pipeline(coverage=True, staging=True, production=True)
    item = _filed(line)
    line.agent({"role": role, "until": str(line.root / "go")})
    child = line.child("never")
    run = line.started(item, role)
    child.kill()
    child.wait()
    assert not gone(run["pid"])
    line.start()
    (line.root / "go").touch()
    _each_once(line, item)
    assert line.roles(item) == ROLES


@pytest.mark.long
def test_killed_together_with_its_agent_costs_one_run(pipeline: Build) -> None:
    line = pipeline(coverage=True, staging=True, production=True)
    item = _filed(line)
    line.agent({"role": "developer", "attempt": 1, "until": str(line.root / "never")})
    child = line.child("never")
    run = line.started(item, "developer")
    child.kill()
    child.wait()
    supervisor = int(_parent(run["pid"]))
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: gone(supervisor))
    line.start()
    _each_once(line, item)
    assert [r["attempt"] for r in line.agents(item) if r["role"] == "developer"] == [1, 2]
    assert gone(run["pid"])
    outcomes = [r.outcome for kind, r in line.story(item).runs if kind == "developer"]
    assert outcomes == [RunOutcome.CRASHED, RunOutcome.DONE]


@pytest.mark.long
def test_agent_of_which_nothing_can_be_proved_is_waited_for(pipeline: Build) -> None:
    """Its record names another pid namespace: it may live, so no second one is started beside it."""
    line = pipeline(coverage=True, staging=True, production=True).start()
    line.agent({"role": "developer", "until": str(line.root / "go")})
    item = line.add()
    line.started(item, "developer")
    line.stop()
    briefs = {path: (path.parent / "brief.json").read_text() for path in line.home.glob("runs/*/STARTED")}
    [record] = [path for path, brief in briefs.items() if '"developer"' in brief]
    told = json.loads(record.read_text())
    told["identity"]["pid_namespace"] = "pid:[1]"
    record.chmod(0o600)
    record.write_text(json.dumps(told))
    line.start()
    line.app.reaper.run_once()
    assert len(line.app.launcher.flying()) == 1
    with line.app.database.read() as tx:
        job = jobs.active_of_task(tx, line.task(item).id)
    assert job is not None
    assert (job.status, job.attempts) == (JobStatus.RUNNING, 1)
    assert job.claimed_by == line.app.boot_id
    (line.root / "go").touch()
    _each_once(line, item)
    assert line.roles(item) == ROLES


def _parent(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[1]


@pytest.mark.long
def test_killed_between_the_record_of_a_run_and_its_start_costs_nothing(pipeline: Build) -> None:
    """Nothing was started, and that is proven: the next life makes it impossible, and starts it itself."""
    line = pipeline()
    item = _filed(line)
    app = line.open()
    app.recovery.recover_on_startup()
    app.engine.advance_stage(line.task(item).id, Actor.OPERATOR)
    folder = RunFolder(app.folders.runs / f"{item}-1-1-x")
    folder.create()
    with app.database.write() as tx:
        job = jobs.claim_next_job(tx, app.boot_id)
        assert job is not None
        jobs.add_run(tx, job, agent="command", model=None, run_dir=str(folder.path))
    line.stop()
    line.start()
    line.done(item)
    assert [run.outcome for _, run in line.story(item).runs][:2] == [RunOutcome.CALLED_OFF, RunOutcome.DONE]
    with line.app.database.read() as tx:
        assert {job.attempts for job in jobs.of_task(tx, line.task(item).id)} == {1}


def test_start_that_fails_leaves_no_open_run(pipeline: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    line = pipeline()
    line.processes = SystemProcesses()  # slow enough to be stopped before it has said that it started

    def full(folder: RunFolder, identity: ProcessIdentity) -> None:
        os.kill(identity.pid, signal.SIGSTOP)
        monkeypatch.undo()
        raise OSError(errno.ENOSPC, "No space left on device", str(folder.path))

    monkeypatch.setattr(RunFolder, "write_spawned", full)
    monkeypatch.setattr(queue_worker, "OUTSIDE_PAUSE_S", 0.1)
    line.start()
    item = line.add()
    wait_until(lambda: line.story(item).runs and line.story(item).runs[0][1].outcome)
    assert line.story(item).runs[0][1].outcome is RunOutcome.NOT_STARTED
    assert line.agents(item) == []


@pytest.mark.long
def test_killed_while_checks_run(pipeline: Build) -> None:
    line = pipeline(coverage=True, staging=True, production=True)
    item = _filed(line)
    line.checks(until=str(line.root / "go"))
    child = line.child("never")
    wait_until(lambda: line.journal("checks"))
    child.kill()
    child.wait()
    (line.root / "go").touch()
    line.start()
    _each_once(line, item)
    assert line.roles(item) == ROLES


def test_checks_that_outlive_their_service_are_ended_before_they_are_repeated(pipeline: Build) -> None:
    line, other = pipeline(), pipeline()
    items = []
    for each in (line, other):
        items.append(_filed(each))
        each.checks(until=str(each.root / "never"))
    orphans = []
    for each in (line, other):
        child = each.child("never")
        orphans.append(wait_until(lambda each=each: each.journal("checks"))[0])
        child.kill()
        child.wait()
        each.checks()
    line.start()
    assert gone(orphans[0]["pid"])
    assert not gone(orphans[1]["pid"]), "the checks of another installation were ended"
    line.done(items[0])
    assert len(line.journal("checks")) == 3
    assert list((line.home / "checkouts").glob("*/*")) == []


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_ended_during_a_build(pipeline: Build, how: signal.Signals) -> None:
    """The build that goes on without its service is ended, and a new one is made beside its leavings."""
    line = pipeline(coverage=True, image=True, staging=True, production=True)
    item = _filed(line)
    (line.root / "hold-builds").touch()
    child = line.child("never")
    [orphan] = wait_until(lambda: line.journal("builds"))
    child.send_signal(how)
    child.wait(PATIENCE_S)
    assert not gone(orphan["pid"])
    left = next((line.home / "checkouts").glob("*/*"))
    (line.root / "hold-builds").unlink() if how is signal.SIGTERM else None
    line.start()
    assert gone(orphan["pid"])
    (line.root / "hold-builds").unlink(missing_ok=True)
    _each_once(line, item)
    assert not left.exists()
    assert len(line.journal("builds")) == 2


def test_killed_between_the_undo_and_its_settling_undoes_once(pipeline: Build) -> None:
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    good = line.main
    line.deploys(production=ILL)
    item = line.add("Bad")
    line.stop()
    child = line.child("deploy_undo.after_act")
    assert child.wait(60) == -signal.SIGKILL
    line.start()
    line.held(item, Hold.ESCALATED)
    wait_until(lambda: line.running("production") == good)
    assert [start["undo"] for start in line.deployed("production")] == [False, False, True]
    assert line.task(item).stage is Stage.DEPLOY
    assert line.frozen()


@pytest.mark.long
def test_one_repository_that_is_gone_keeps_no_service_from_starting(pipeline: Build) -> None:
    """A run of it ended meanwhile; the others' tasks are worked on, its own go on once it is back."""
    line = pipeline().start()
    line.agent({"role": "developer", "title": "Waiting", "until": str(line.root / "go")})
    line.app.register_repository(line.person.folder, name="lost", prefix="L")
    item = line.add("Waiting", repo="lost")
    ended = line.add("Cancelled", repo="lost")
    run = line.started(item, "developer")
    line.app.operations.cancel(ended, person="Ann")
    line.stage(ended, Stage.CANCELLED)
    line.stop()
    (line.root / "go").touch()
    wait_until(lambda: gone(run["pid"]))
    forges = line.home / "forges"
    (forges / "lost.git").rename(forges / "elsewhere.git")
    line.start()
    line.done(line.add("Other"))
    assert line.app.cleaner.run_once()["tidied"] <= 1  # and raises nothing
    with pytest.raises(AuthorityUnreachable, match=r"lost cannot be opened.*lost\.git"):
        line.app.places.of("lost")
    line.stop()
    (forges / "elsewhere.git").rename(forges / "lost.git")
    line.start()
    line.done(item)
    assert len([r for r in line.agents(item) if r["role"] == "developer"]) == 1


@pytest.mark.long
def test_one_run_folder_that_is_broken_keeps_no_service_from_starting(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "developer", "title": "Broken", "until": str(line.root / "never")})
    item = line.add("Broken")
    run = line.started(item, "developer")
    line.stop()
    supervisor = int(_parent(run["pid"]))
    for pid in (supervisor, run["pid"]):
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: gone(pid))
    line.open()
    folder = Path(line.story(item).runs[-1][1].run_dir)
    line.stop()
    shutil.rmtree(folder)
    folder.write_text("mine")
    line.start()
    line.done(line.add("Other"))
    line.app.operations.cancel(item, person="Ann")
    line.stage(item, Stage.CANCELLED)


@pytest.mark.long
def test_killed_twice_in_a_row(pipeline: Build) -> None:
    line = pipeline(coverage=True, staging=True, production=True)
    item = _filed(line)
    for point in ("merge_pr.after_act", "merge_pr.after_probe"):
        child = line.child(point)
        assert child.wait(60) == -signal.SIGKILL
    line.start()
    _each_once(line, item)


@pytest.mark.long
def test_ticket_that_kills_its_service_is_parked_and_the_others_go_on(pipeline: Build) -> None:
    """Case 7: the attempt is counted at the claim, so a job that takes its owner along is not repeated for ever."""
    line = pipeline()
    item = _filed(line)
    line.agent({"role": "developer", "title": "Change it", "kill_service": True})
    for _ in range(3):
        assert line.child("never").wait(60) == -signal.SIGKILL
    line.start()
    task = line.held(item, Hold.ESCALATED)
    assert [run["attempt"] for run in line.agents(item)] == [1, 1, 2, 3]
    assert "developer failed 3 times" in str(task.hold_reason)
    line.done(line.add("Healthy"))
    assert len([alert for alert in line.alerts() if item in alert]) == 1
    assert all(gone(run["pid"]) for run in line.agents(item))


def test_job_whose_owner_dies_before_the_agent_starts_is_parked_too(pipeline: Build) -> None:
    line = pipeline()
    item = _filed(line)
    for _ in range(3):
        app = line.open()
        app.recovery.recover_on_startup()
        app.engine.advance_stage(line.task(item).id, Actor.OPERATOR)
        with app.database.write() as tx:
            assert jobs.claim_next_job(tx, app.boot_id) is not None
        line.stop()  # claimed, and never begun
    line.start()
    task = line.held(item, Hold.ESCALATED)
    assert "analyst failed 3 times: its owner died" in str(task.hold_reason)
    assert line.agents(item) == []
    line.retry(item)
    line.done(item)


@pytest.mark.long
@pytest.mark.parametrize("role", ["analyst", "reviewer"])
def test_agent_whose_workspace_is_gone_is_asked_once_more(pipeline: Build, role: str) -> None:
    """After a restore, say: the time that is lost has tidied up after a task that is open again."""
    line = pipeline()
    line.agent({"role": role, "until": str(line.root / "go")})
    item = line.start().add()
    run = line.started(item, role)
    line.stop()
    (line.root / "go").touch()
    wait_until(lambda: gone(run["pid"]))
    line.agent()
    line.open().places.of(line.repo).workspaces.remove(line.task(item).work_item)
    line.start()
    line.done(item)
    assert [started["role"] for started in line.agents()].count(role) == 2
