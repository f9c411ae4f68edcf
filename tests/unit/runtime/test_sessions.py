"""Sessions of detached commands: what is proved running, proved ended, or unknown."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.process import ProcessIdentity, SystemProcesses, pid_alive, process_state
from orchestrator.runtime.sessions import SessionState, SystemSessions, end_session, listed
from tests.waiting import wait_until

MARKER = "ORCH_TEST_ID=inst-5"
ENV = {"PATH": os.environ["PATH"], "ORCH_TEST_ID": "inst-5"}
Spawn = Callable[..., ProcessIdentity]


@pytest.fixture
def processes() -> SystemProcesses:
    return SystemProcesses()


@pytest.fixture
def spawn(processes: SystemProcesses, tmp_path: Path) -> Iterator[Spawn]:
    leaders: list[ProcessIdentity] = []

    def start(script: str, env: dict[str, str] = ENV) -> ProcessIdentity:
        leader = processes.spawn(("sh", "-c", script), cwd=tmp_path, env=env, output=tmp_path / "log")
        leaders.append(leader)
        return leader

    yield start
    for leader in leaders:
        wait_until(lambda leader=leader: not kill(leader))  # again: a shell may have been about to fork


def kill(leader: ProcessIdentity) -> bool:
    """Kill whoever is in the session now; True where there was somebody."""
    found = members(leader)
    for pid in found:
        SystemProcesses().run(("kill", "-KILL", str(pid)))
    return bool(found)


def members(leader: ProcessIdentity) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid_alive(pid) and session_of(pid) == leader.pid]


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def written(path: Path) -> int:
    return int(wait_until(lambda: path.exists() and path.read_text().strip()))


def orphan(
    spawn: Spawn, tmp_path: Path, script: str, env: dict[str, str] = ENV
) -> tuple[ProcessIdentity, int]:
    """A leader that has ended and been collected, and a member of its session that lives on."""
    leader = spawn(f"{script} & echo $! > member; exit 0", env)
    member = written(tmp_path / "member")
    processes = SystemProcesses()
    wait_until(lambda: processes.liveness(leader).value == "dead")
    os.waitpid(leader.pid, 0)
    assert process_state(leader.pid) is None
    return leader, member


def test_a_running_command_is_running_and_then_ended(spawn: Spawn, processes: SystemProcesses) -> None:
    sessions, leader = SystemSessions(), spawn("sleep 600")
    assert sessions.state(leader, MARKER) is SessionState.RUNNING
    assert sessions.signal(leader, MARKER, signal.SIGKILL) is SessionState.RUNNING
    wait_until(lambda: sessions.state(leader, MARKER) is SessionState.ENDED)
    assert sessions.signal(leader, MARKER, signal.SIGKILL) is SessionState.ENDED


def test_an_orphan_of_a_collected_leader_is_found_by_its_marker(spawn: Spawn, tmp_path: Path) -> None:
    leader, member = orphan(spawn, tmp_path, "sleep 600")
    assert SystemSessions().state(leader, MARKER) is SessionState.RUNNING
    assert end_session(SystemSessions(), SystemClock(), leader, MARKER, grace_s=5, kill_s=5)
    assert not pid_alive(member)


def test_who_was_started_after_the_list_was_made_is_found(spawn: Spawn, tmp_path: Path) -> None:
    """Its parent stood in the list, and ended before it was looked at."""
    leader, member = orphan(spawn, tmp_path, "sleep 600")
    lists = iter([[leader.pid, os.getpid()]])
    sessions = SystemSessions(lambda: next(lists, listed()))
    assert sessions.state(leader, MARKER) is SessionState.RUNNING
    assert pid_alive(member)


def test_where_no_list_is_ever_complete_nothing_is_proved(spawn: Spawn) -> None:
    """Whoever forks and ends, again and again, is never in a list that is looked at."""
    leader = spawn("exit 0")
    wait_until(lambda: SystemSessions().state(leader, MARKER) is SessionState.ENDED)
    always_new = itertools.count(2**22 + 1)  # above every pid of Linux
    sessions = SystemSessions(lambda: [next(always_new)])
    assert sessions.state(leader, MARKER) is SessionState.UNKNOWN


def test_without_leader_and_marker_nothing_is_proved_and_nobody_is_signalled(
    spawn: Spawn, tmp_path: Path
) -> None:
    leader, member = orphan(spawn, tmp_path, "sleep 600", {"PATH": os.environ["PATH"]})
    assert SystemSessions().state(leader, MARKER) is SessionState.UNKNOWN
    assert not end_session(SystemSessions(), SystemClock(), leader, MARKER, grace_s=0.05, kill_s=0.05)
    assert pid_alive(member)


def test_a_number_given_to_another_process_means_that_nobody_was_left(spawn: Spawn) -> None:
    stranger = spawn("sleep 600")
    earlier = dataclasses.replace(stranger, start_ticks=stranger.start_ticks - 1)
    assert end_session(SystemSessions(), SystemClock(), earlier, MARKER, grace_s=5, kill_s=5)
    assert pid_alive(stranger.pid)


@pytest.mark.parametrize("field", ["machine_boot_id", "pid_namespace"])
def test_another_machine_or_namespace_is_unknown(spawn: Spawn, field: str) -> None:
    leader = spawn("sleep 600")
    elsewhere = dataclasses.replace(leader, **{field: "another"})
    assert SystemSessions().state(elsewhere, MARKER) is SessionState.UNKNOWN
    assert SystemSessions().signal(elsewhere, MARKER, signal.SIGKILL) is SessionState.UNKNOWN
    assert pid_alive(leader.pid)


def test_other_process_groups_of_the_session_belong_to_it(spawn: Spawn, tmp_path: Path) -> None:
    leader = spawn("timeout 600 sleep 600 & echo $! > inner; wait")  # timeout(1) makes a group of its own
    inner = written(tmp_path / "inner")
    wait_until(lambda: os.getpgid(inner) == inner)
    assert end_session(SystemSessions(), SystemClock(), leader, MARKER, grace_s=5, kill_s=5)
    assert not pid_alive(inner)


def test_a_session_that_ignores_the_request_is_killed(spawn: Spawn, tmp_path: Path) -> None:
    leader = spawn('trap "" TERM; echo 1 > ready; while :; do sleep 0.05; done')
    written(tmp_path / "ready")
    assert end_session(SystemSessions(), SystemClock(), leader, MARKER, grace_s=0.2, kill_s=20)
    assert not pid_alive(leader.pid)


def test_a_stopped_session_is_ended_too(spawn: Spawn) -> None:
    leader = spawn("sleep 600")
    os.kill(leader.pid, signal.SIGSTOP)
    assert end_session(SystemSessions(), SystemClock(), leader, MARKER, grace_s=0.2, kill_s=20)


PAUSED = """
import os, pathlib, sys
from orchestrator.runtime.paused import PausedCommand
folder = pathlib.Path(sys.argv[1])
command = PausedCommand(("sh", "-c", "echo ran > ran; exit 4"), cwd=folder, env=dict(os.environ), log=folder / "log")
assert os.getsid(command.identity.pid) == command.identity.pid
assert not (folder / "ran").exists()
assert not command.ended_within(0.05)
"""


@pytest.mark.parametrize(
    ("rest", "ran"),
    [
        ("command.release()\nwhile not command.ended_within(1): pass\nassert command.exit_code() == 4", True),
        ("command.abandon()", False),
        ("pid = command.identity.pid\nprint(pid, flush=True)\nos.kill(os.getpid(), 9)", False),
        (
            "os.kill(command.identity.pid, 9)\ncommand.ended_within(10)\ncommand.release()\n"
            "assert command.exit_code() == -9",
            False,
        ),
    ],
    ids=["released", "abandoned", "holder killed", "killed while paused"],
)
def test_a_paused_command_runs_only_when_released(tmp_path: Path, rest: str, ran: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PAUSED + rest, str(tmp_path)],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.stderr == ""
    if ended.stdout:
        wait_until(lambda: not pid_alive(int(ended.stdout)))
    assert (tmp_path / "ran").exists() is ran
