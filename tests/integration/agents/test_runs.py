"""Runs across the deaths of those who look after them."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from orchestrator.agents.agent import Launch, Limits
from orchestrator.agents.run_folder import RunFolder
from orchestrator.agents.run_records import Progress, StartedRecord, Starter
from orchestrator.agents.runs import Runs
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.job import RunOutcome
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.process import Liveness, Machine, ProcessIdentity, SystemProcesses
from tests.integration.agents.running import Bench
from tests.waiting import wait_until

PARENT = """
import sys
from pathlib import Path
from tests.integration.agents.running import Bench
bench = Bench(Path(sys.argv[1]))
handle = bench.start("sh", "-c", "echo up; sleep 3; echo survived")
bench.until_said(handle, "up")
print("started", flush=True)
sys.stdin.read()
"""


def supervisor_pid(run_dir: Path) -> int:
    started = RunFolder(run_dir).started()
    assert started is not None
    assert started.identity is not None
    return started.identity.pid


def test_run_survives_the_death_of_its_parent(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    (tmp_path / "first").mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "first")],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"started\n"
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()
    (tmp_path / "second").mkdir()
    bench = Bench(tmp_path / "second")
    run_dir = tmp_path / "first" / "run-1"
    assert bench.runs.result(run_dir) is None
    handle = bench.runs.adopt(run_dir)
    assert handle is not None
    result = bench.wait(handle)
    assert (result.outcome, result.summary) == (RunOutcome.DONE, "survived")
    assert bench.runs.adopt(run_dir) is None
    assert bench.runs.result(run_dir) == result


def test_killed_supervisor_is_reported_and_its_agent_swept(bench: Bench) -> None:
    handle = bench.start("sh", "-c", "setsid sleep 300 & echo up; sleep 300")
    bench.until_said(handle, "up")
    os.kill(supervisor_pid(handle.run_dir), signal.SIGKILL)
    assert bench.left_of(handle)
    result = bench.wait(handle)
    assert result.outcome is RunOutcome.CRASHED
    assert not bench.left_of(handle)
    assert bench.runs.result(handle.run_dir) == result


def test_killed_while_stopping_is_killed(bench: Bench) -> None:
    program = """
import signal, time
signal.signal(15, lambda *_: print("asked", flush=True))
print("up", flush=True)
while True:
    time.sleep(1)
"""
    handle = bench.python(program)
    bench.until_said(handle, "up")
    bench.runs.stop(handle, "cancelled")
    bench.until_said(handle, "asked")
    os.kill(supervisor_pid(handle.run_dir), signal.SIGKILL)
    assert bench.wait(handle).outcome is RunOutcome.KILLED


def test_revoker_that_is_first_keeps_it_from_starting(bench: Bench) -> None:
    run_dir = bench.root / "run-1"
    run_dir.mkdir()
    assert bench.runs.revoke(run_dir)
    assert bench.runs.revoke(run_dir)
    launch = Launch("command", ("sh", "-c", "echo x > started"), {"PATH": os.environ["PATH"]}, bench.worktree)
    handle = bench.runs.start(run_dir, launch, Limits(), os.environ)
    assert bench.wait(handle).outcome is RunOutcome.CALLED_OFF
    supervisor = handle.supervisor
    assert supervisor is not None
    wait_until(lambda: SystemProcesses().liveness(supervisor) is Liveness.DEAD)
    assert not (bench.worktree / "started").exists()
    assert not RunFolder(run_dir).exit_file.exists()


def test_revoke_after_the_start_says_so(bench: Bench) -> None:
    handle = bench.start("sleep", "300")
    wait_until(lambda: RunFolder(handle.run_dir).started())
    assert not bench.runs.revoke(handle.run_dir)
    bench.runs.stop(handle, "enough")
    assert bench.wait(handle).summary == "enough"


def test_only_one_claims(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    won = []
    gate = threading.Barrier(8)

    def claim() -> None:
        gate.wait()
        if folder_of_this_thread().claim(StartedRecord(Starter.REVOKER, "now")):
            won.append(threading.get_ident())

    def folder_of_this_thread() -> RunFolder:
        return RunFolder(tmp_path)

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert folder.started() is not None
    assert [path.name for path in tmp_path.iterdir()] == ["STARTED"]


def test_supervisor_that_could_not_begin_is_told(bench: Bench) -> None:
    """It dies before STARTED (here: by an unusable launch record); the run has not started and never will."""
    handle = bench.start("sleep", "300")
    bench.runs.stop(handle, "")
    bench.wait(handle)
    other = bench.root / "run-x"
    other.mkdir()
    folder = RunFolder(other)
    folder.launch_file.write_text("{}")
    identity = SystemProcesses().spawn(
        [sys.executable, "-P", "-m", "orchestrator.agents.supervisor", str(other)],
        cwd=other,
        env=os.environ,
        output=folder.supervisor_log,
    )
    folder.write_spawned(identity)
    result = wait_until(lambda: bench.runs.result(other))
    assert result.outcome is RunOutcome.NOT_STARTED
    assert "launch.json" in result.summary
    started = folder.started()
    assert started is not None
    assert started.by is Starter.REVOKER


def test_supervisor_that_was_killed_before_it_could_begin_has_started_nothing(bench: Bench) -> None:
    run_dir = bench.root / "run-1"
    run_dir.mkdir()
    folder = RunFolder(run_dir)
    folder.supervisor_log.touch()
    identity = SystemProcesses().spawn(
        ["sleep", "300"], cwd=run_dir, env=os.environ, output=folder.supervisor_log
    )
    folder.write_spawned(identity)
    assert bench.runs.result(run_dir) is None
    os.kill(identity.pid, signal.SIGKILL)
    result = wait_until(lambda: bench.runs.result(run_dir))
    assert result.outcome is RunOutcome.CALLED_OFF
    started = folder.started()
    assert started is not None
    assert started.by is Starter.REVOKER


def test_folder_that_has_vanished_proves_nothing(bench: Bench) -> None:
    """Its agent may have worked, and been paid: nobody starts it again without a person's look."""
    run_dir = bench.root / "run-1"
    assert bench.runs.adopt(run_dir) is None
    assert bench.runs.revoke(run_dir)
    result = bench.runs.result(run_dir)
    assert result is not None
    assert (result.outcome, "vanished" in result.summary) == (RunOutcome.NOT_STARTED, True)


def test_run_of_a_machine_that_cannot_be_asked_is_waited_for(bench: Bench) -> None:
    handle = bench.start("sleep", "300", orphan_ttl_s=3600)
    folder = RunFolder(handle.run_dir)
    started = wait_until(folder.started)
    wait_until(lambda: folder.heartbeat())
    bench.runs.stop(handle, "")
    bench.wait(handle)
    folder.exit_file.unlink()
    elsewhere = ProcessIdentity("another boot", "pid:[1]", 17, 4)
    folder.started_file.unlink()
    folder.claim(StartedRecord(Starter.CHILD, started.at, "elsewhere", elsewhere))
    assert bench.runs.result(handle.run_dir) is None
    folder.beat("2020-01-01T00:00:00.000000Z")
    result = bench.runs.result(handle.run_dir)
    assert result is not None
    assert result.outcome is RunOutcome.KILLED


def test_supervisor_that_cannot_be_seen_and_has_not_begun_is_kept_from_it(bench: Bench) -> None:
    """Its machine or container may have gone right after it was started: nobody would ever hear of it."""
    run_dir = bench.root / "run-1"
    folder = RunFolder(run_dir)
    folder.create()
    folder.write_spawned(ProcessIdentity("another boot", "pid:[1]", 17, 4))
    result = bench.runs.result(run_dir)
    assert result is not None
    assert result.outcome is RunOutcome.CALLED_OFF
    assert not folder.claim(StartedRecord(Starter.CHILD, "late"))


def test_run_of_which_nothing_can_be_proved_is_adopted(bench: Bench) -> None:
    handle = bench.start("sleep", "300", orphan_ttl_s=3600)
    folder = RunFolder(handle.run_dir)
    started = wait_until(folder.started)
    assert handle.supervisor is not None
    folder.started_file.unlink()
    hidden = replace(handle.supervisor, pid_namespace="pid:[1]")
    folder.claim(StartedRecord(Starter.CHILD, started.at, started.host, hidden))
    adopted = bench.runs.adopt(handle.run_dir)
    assert adopted is not None
    bench.runs.stop(adopted, "enough")
    assert bench.wait(adopted).summary == "enough"


class OnAMachine(SystemProcesses):
    """Of this name and id."""

    def __init__(self, host: str, id: str) -> None:
        super().__init__()
        self._machine = Machine(host, id)

    def machine(self) -> Machine:
        return self._machine


@pytest.mark.parametrize(
    ("then", "now", "one_machine", "dead"),
    [
        ("ours", "ours", False, True),
        ("theirs", "ours", True, False),
        ("", "ours", False, False),  # two machines may be called alike
        ("", "ours", True, True),
        ("", "", True, True),
    ],
)
def test_a_reboot_has_ended_every_run_of_its_machine(
    bench: Bench, then: str, now: str, one_machine: bool, dead: bool
) -> None:
    handle = bench.start("sleep", "300", orphan_ttl_s=3600)
    folder = RunFolder(handle.run_dir)
    started = wait_until(folder.started)
    assert Machine(started.host, started.machine) == SystemProcesses().machine()
    bench.runs.stop(handle, "")
    bench.wait(handle)
    folder.exit_file.unlink()
    folder.stop_file.unlink()
    folder.started_file.unlink()
    folder.beat(started.at)
    before = ProcessIdentity("the boot before", "pid:[1]", 17, 4)
    folder.claim(StartedRecord(Starter.CHILD, started.at, "orch", before, then))
    ours = OnAMachine("orch", now)
    runs = Runs(ours, SystemClock(), SystemEntropy(), one_machine=one_machine)
    assert (runs.adopt(handle.run_dir) is None) is dead
    result = runs.result(handle.run_dir)
    assert (result.outcome if result else None) is (RunOutcome.CRASHED if dead else None)


class FullDisk(RunFolder):
    """A run folder in which nothing more can be noted once the supervisor runs. ``first`` happens before that shows;
    ``claims``: but ``STARTED`` still can."""

    def __init__(
        self, path: Path, first: Callable[[RunFolder, ProcessIdentity | None], object], *, claims: bool
    ) -> None:
        super().__init__(path)
        self._first = first
        self._claims = claims

    def write_spawned(self, identity: ProcessIdentity) -> None:
        self._full(identity)

    def claim(self, record: StartedRecord) -> bool:
        return super().claim(record) if self._claims else self._full(None)

    def _full(self, started: ProcessIdentity | None) -> NoReturn:
        self._first(self, started)
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))


def runs_on(folder: Callable[[Path], RunFolder]) -> Runs:
    return Runs(SystemProcesses(), SystemClock(), SystemEntropy(), folder=folder)


@pytest.mark.parametrize("full_for_us", [False, True], ids=["revoked", "killed"])
def test_start_that_cannot_be_noted_is_undone(bench: Bench, full_for_us: bool) -> None:
    spawned: list[ProcessIdentity] = []

    def stops(folder: RunFolder, started: ProcessIdentity | None) -> None:
        if started is not None:
            os.kill(started.pid, signal.SIGSTOP)  # it has not come as far as STARTED
            spawned.append(started)

    bench.runs = runs_on(partial(FullDisk, first=stops, claims=not full_for_us))
    with pytest.raises(OutsideError, match="could not be started: No space left"):
        bench.start("sleep", "300")
    wait_until(lambda: SystemProcesses().liveness(spawned[0]) is Liveness.DEAD)
    assert (RunFolder(bench.root / "run-1").started() is None) == full_for_us


@pytest.mark.parametrize("full_for_us", [False, True], ids=["claim-lost", "killed"])
def test_start_that_cannot_be_noted_but_has_happened_is_a_run(bench: Bench, full_for_us: bool) -> None:
    def has_started(folder: RunFolder, started: ProcessIdentity | None) -> None:
        wait_until(folder.started)

    room, bench.runs = (
        bench.runs,
        runs_on(partial(FullDisk, first=has_started, claims=not full_for_us)),
    )
    handle = bench.start("sleep", "300")
    bench.runs = room
    bench.runs.stop(handle, "enough")
    assert bench.wait(handle).outcome in (RunOutcome.KILLED, RunOutcome.CRASHED)
    assert not bench.left_of(handle)


def test_broken_run_folder_is_a_clear_error(bench: Bench) -> None:
    run_dir = bench.root / "run-1"
    run_dir.write_text("a file where a folder should be")
    assert bench.runs.result(run_dir) is None
    assert bench.runs.adopt(run_dir) is None
    with pytest.raises(OutsideError, match="cannot be used"):
        bench.runs.revoke(run_dir)


def test_wait_can_be_given_up_and_shows_progress(bench: Bench) -> None:
    handle = bench.python("import time\nprint('thinking', flush=True)\ntime.sleep(300)")
    stop, shown = threading.Event(), []

    def on_progress(progress: Progress) -> None:
        shown.append(progress)
        if progress.text == "thinking":
            stop.set()

    assert bench.runs.wait(handle, stop, on_progress) is None
    assert shown[-1].log_bytes == len("thinking\n")
    assert bench.runs.result(handle.run_dir) is None
    bench.runs.stop(handle, "enough")
    assert bench.wait(handle).outcome is RunOutcome.KILLED


def test_state_folder_that_cannot_be_written_is_a_clear_error(bench: Bench) -> None:
    (bench.root / "run-1").write_text("a file where a folder should be")
    with pytest.raises(OSError, match="run-1"):
        bench.start("true")
    launch = Launch("command", ("true",), {}, bench.worktree)
    with pytest.raises(OutsideError, match="could not be started"):
        bench.runs.start(bench.root / "run-1", launch, Limits(), {})
