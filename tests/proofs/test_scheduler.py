"""The step scheduler: it sees every point, names each the same in every run, and does there what it is told."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.config.environment import load_settings
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.stage import Stage
from orchestrator.main import Service
from tests.fixtures_pipeline import Build
from tests.proofs import scheduler
from tests.proofs.outside import OUTSIDE_POINTS, ScheduledProcesses, scheduled_app
from tests.proofs.scheduler import At, Block, Fault, First, Freeze, Kill, Late, Nth, Scheduler
from tests.waiting import wait_until

KNOWN = {*scheduler.COMMITS, *scheduler.TRANSITIONS, *scheduler.EFFECTS, *scheduler.NAMED, *OUTSIDE_POINTS}


def test_delivered_task_passes_every_kind_of_point(pipeline: Build) -> None:
    line = pipeline(coverage=True, image=True, staging=True, production=True)
    line.register()
    item = line.add()
    line.stop()
    seen = Scheduler()
    with scheduled_app(load_settings(line.variables()), line.environ, seen) as app, Service(app):
        wait_until(lambda: app.operations.task(item).stage is Stage.DONE)
        app.outbox.run_once()
    names = {point.name for point in seen.points()}
    usual = {*scheduler.COMMITS, *scheduler.TRANSITIONS, *scheduler.EFFECTS, *OUTSIDE_POINTS, "step.begin"}
    happy = {name for name in usual if "revoke" not in name and "deploy_undo" not in name}
    seldom = {
        "effect.open",
        *scheduler.around("forge.delete_branch", "forge.close_pr", "notifier.send", "tracker.comment"),
    }
    assert happy - seldom <= names
    programs = ("git.update-ref", "git.fetch", "spawn.agents.supervisor", "spawn.deploy.runner", "run.checks")
    assert {f"{program}.before" for program in programs} <= names
    judged = {name for name in names if name.endswith(".judged")}
    assert all(name in KNOWN | judged or name.startswith(("git.", "run.", "spawn.")) for name in names)


def test_every_kind_of_waypoint_of_the_product_is_known() -> None:
    named = scheduler.literal_waypoints()
    assert {*scheduler.COMMITS, *scheduler.TRANSITIONS, "step.begin"} <= named
    assert {name for name in named if "{" in name} <= {
        "{intent.name.value}.intended",
        "{intent.name.value}.before_probe",
        "{intent.name.value}.after_probe",
        "{intent.name.value}.{point}",
        "{step.what}.judged",
    }, "a new kind of waypoint: tell the scheduler"


def test_points_are_numbered_by_name_and_in_all() -> None:
    seen = Scheduler()
    for name in ("a", "b", "a"):
        seen.reach(name, task=1)
    assert [(str(p), p.index, p.data) for p in seen.points()] == [
        ("a#1", 1, {"task": 1}),
        ("b#1", 2, {"task": 1}),
        ("a#2", 3, {"task": 1}),
    ]


def test_fault_before_and_after_a_call() -> None:
    done: list[int] = []
    policy = First(
        At("x.before", Fault(lambda: AuthorityUnreachable("no"))),
        At("x.after", Fault(lambda: AuthorityUnreachable("no"))),
    )
    seen = Scheduler(policy)
    for left in ([], [1]):
        with pytest.raises(AuthorityUnreachable):
            seen.call("x", lambda: done.append(1))
        assert done == left


def test_late_call_is_applied_when_told() -> None:
    done: list[int] = []
    seen = Scheduler(At("x.before", Late()))
    with pytest.raises(AuthorityUnreachable, match="x.before#1"):
        seen.call("x", lambda: done.append(1))
    assert done == []
    seen.land(seen.late[0])
    assert (done, seen.late) == ([1], [])


def test_thread_is_blocked_until_it_is_released() -> None:
    seen = Scheduler(At("x", Block(), 2))
    passed: list[int] = []

    def actor() -> None:
        for n in range(3):
            seen.reach("x")
            passed.append(n)

    thread = threading.Thread(target=actor, name="actor")
    thread.start()
    assert seen.wait_for(lambda held: "actor" in held, 5)
    assert passed == [0]
    assert str(seen.blocked()["actor"]) == "x#2"
    seen.release("actor")
    thread.join(5)
    assert passed == [0, 1, 2]


@pytest.mark.parametrize("step", [Kill(), Freeze()])
def test_process_is_killed_or_frozen_and_says_so_first(step: scheduler.Step) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        seen = Scheduler(Nth(2, step), tell=lambda point, _: void(os.write(write, str(point).encode())))
        seen.reach("a")
        seen.reach("a")
        os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    assert os.read(read, 100) == b"a#2"
    if isinstance(step, Freeze):
        assert os.WIFSTOPPED(status)
        os.kill(child, signal.SIGCONT)
        _, status = os.waitpid(child, 0)
        assert os.WEXITSTATUS(status) == 0
    else:
        assert os.WTERMSIG(status) == signal.SIGKILL
    os.close(read)
    os.close(write)


def void(_: object) -> None:
    """Nothing."""


def test_late_program_starts_though_nobody_waits(tmp_path: Path) -> None:
    there, program = tmp_path / "there", tmp_path / "tardy.py"
    program.write_text(f"import sys; open({str(there)!r}, 'w').write(sys.stdin.read())")
    seen = Scheduler(At("run.tardy.before", Late(0.1)))
    answer = ScheduledProcesses(seen).run([sys.executable, str(program)], stdin=b"said")
    assert (answer.returncode, there.exists()) == (128, False)
    wait_until(lambda: there.exists() and there.read_text() == "said")
