"""Real processes: run, spawn, and what can be proved about a pid."""

import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from orchestrator.runtime.process import (
    Liveness,
    Machine,
    ProcessIdentity,
    SystemProcesses,
    ended_by_reboot,
    machine_id,
    pid_alive,
    process_state,
    start_ticks,
)
from tests.waiting import wait_until

ENV = {"PATH": os.environ["PATH"]}
FOREVER = (sys.executable, "-c", "import signal; signal.pause()")


@pytest.fixture
def processes() -> SystemProcesses:
    return SystemProcesses()


@pytest.fixture
def spawned(processes: SystemProcesses, tmp_path: Path):
    identity = processes.spawn(FOREVER, cwd=tmp_path, env=ENV, output=tmp_path / "log")
    yield identity
    processes.signal_group(identity, signal.SIGKILL)
    wait_until(lambda: processes.liveness(identity) is Liveness.DEAD)


def test_how_a_child_ended_is_told(processes: SystemProcesses, tmp_path: Path, spawned) -> None:
    assert processes.exit_of(spawned) is None
    processes.signal_group(spawned, signal.SIGKILL)
    assert wait_until(lambda: processes.exit_of(spawned)) == -signal.SIGKILL
    argv = ["sh", "-c", "exit 3"]
    other = processes.spawn(argv, cwd=tmp_path, env=ENV, output=tmp_path / "log")
    assert wait_until(lambda: processes.exit_of(other)) == 3
    assert processes.exit_of(processes.own()) is None


def test_run_returns_both_outputs_and_the_code(processes: SystemProcesses) -> None:
    ended = processes.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"in", env=ENV)
    assert (ended.returncode, ended.stdout, ended.stderr, ended.timed_out) == (3, b"in", b"err\n", False)


def test_run_without_input_reads_nothing(processes: SystemProcesses) -> None:
    assert processes.run(["cat"], env=ENV, timeout=20).stdout == b""


def test_run_hands_over_arguments_as_they_are(processes: SystemProcesses) -> None:
    hostile = "$(touch pwned); `id` && 'x'"
    assert processes.run(["printf", "%s", hostile], env=ENV).stdout == hostile.encode()


def test_run_shows_the_environment_it_was_given_and_no_other(processes: SystemProcesses) -> None:
    ended = processes.run(
        [sys.executable, "-c", "import os; print(sorted(os.environ))"], env={"ONLY": "this"}
    )
    names = set(eval(ended.stdout, {})) - {"LC_CTYPE"}  # Python itself adds that one
    assert names == {"ONLY"}


def test_run_of_no_such_program_says_so(processes: SystemProcesses) -> None:
    with pytest.raises(FileNotFoundError):
        processes.run(["no-such-program-anywhere"], env=ENV)


def test_run_writes_to_the_given_file_as_it_comes(processes: SystemProcesses, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as sink:
        ended = processes.run(["sh", "-c", "echo out; echo err >&2"], env=ENV, output=sink)
    assert (tmp_path / "out").read_bytes() == b"out\nerr\n"
    assert (ended.stdout, ended.stderr) == (b"", b"")


def test_run_ends_the_whole_group_at_the_time_out(processes: SystemProcesses, tmp_path: Path) -> None:
    script = f"echo before; sleep 600 & echo $! > {tmp_path}/pid; wait"
    ended = processes.run(["sh", "-c", script], env=ENV, timeout=0.5)
    assert ended.timed_out
    assert ended.stdout == b"before\n"
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not pid_alive(child))


def test_run_is_not_held_by_a_helper_in_another_session(processes: SystemProcesses, tmp_path: Path) -> None:
    helper = f"echo $$ > {tmp_path}/pid; exec sleep 600"
    began = time.monotonic()
    ended = processes.run(["sh", "-c", f"setsid sh -c '{helper}' & sleep 600"], env=ENV, timeout=0.5)
    assert ended.timed_out
    assert time.monotonic() - began < 20
    os.kill(int(wait_until((tmp_path / "pid").read_text)), signal.SIGKILL)


def test_spawned_processes_live_in_a_session_of_their_own(spawned: ProcessIdentity) -> None:
    assert os.getsid(spawned.pid) == spawned.pid
    assert start_ticks(spawned.pid) == spawned.start_ticks


def test_spawn_appends_to_its_log(processes: SystemProcesses, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("kept\n")
    processes.spawn(["sh", "-c", "echo out; echo err >&2"], cwd=tmp_path, env=ENV, output=log)
    wait_until(lambda: log.read_text() == "kept\nout\nerr\n")


def test_a_process_is_alive_until_it_is_dead(processes: SystemProcesses, spawned: ProcessIdentity) -> None:
    assert processes.liveness(spawned) is Liveness.ALIVE
    assert processes.signal_group(spawned, signal.SIGKILL)
    wait_until(lambda: processes.liveness(spawned) is Liveness.DEAD)
    assert not processes.signal_group(spawned, signal.SIGKILL)


def test_a_zombie_is_dead(processes: SystemProcesses) -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    try:
        wait_until(lambda: process_state(pid) == "Z")
        ticks = start_ticks(pid)
        assert ticks is not None
        identity = dataclasses.replace(processes.own(), pid=pid, start_ticks=ticks)
        assert processes.liveness(identity) is Liveness.DEAD
        assert not pid_alive(pid)
    finally:
        os.waitpid(pid, 0)


def test_a_leader_that_has_ended_lives_in_its_threads(processes: SystemProcesses, tmp_path: Path) -> None:
    """SIGKILL reaches the threads of a process one by one; until the last has ended its locks are held."""
    program = (
        "import ctypes, threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    spawned = processes.spawn([sys.executable, "-c", program], cwd=tmp_path, env={}, output=tmp_path / "log")
    try:
        leader = Path(f"/proc/{spawned.pid}/stat")
        wait_until(lambda: leader.read_text().rsplit(")", 1)[1].split()[0] == "Z")
        assert processes.liveness(spawned) is Liveness.ALIVE
        assert pid_alive(spawned.pid)
    finally:
        os.kill(spawned.pid, signal.SIGKILL)
    wait_until(lambda: processes.liveness(spawned) is Liveness.DEAD)


def test_the_same_number_in_another_life_is_dead(
    processes: SystemProcesses, spawned: ProcessIdentity
) -> None:
    earlier = dataclasses.replace(spawned, start_ticks=spawned.start_ticks - 1)
    assert processes.liveness(earlier) is Liveness.DEAD
    assert not processes.signal_group(earlier, signal.SIGKILL)
    assert processes.liveness(spawned) is Liveness.ALIVE


@pytest.mark.parametrize("field", ["machine_boot_id", "pid_namespace"])
def test_what_cannot_be_proved_is_unknown(
    processes: SystemProcesses, spawned: ProcessIdentity, field: str
) -> None:
    elsewhere = dataclasses.replace(spawned, **{field: "another"})
    assert processes.liveness(elsewhere) is Liveness.UNKNOWN
    assert not processes.signal_group(elsewhere, signal.SIGKILL)
    assert processes.liveness(spawned) is Liveness.ALIVE


def test_own_identity_is_alive(processes: SystemProcesses) -> None:
    assert processes.own().pid == os.getpid()
    assert processes.liveness(processes.own()) is Liveness.ALIVE


@pytest.mark.parametrize("value", [None, "1", 1.0, True, 0, -1, 2**70], ids=repr)
def test_no_pid_is_not_alive(value: object) -> None:
    assert not pid_alive(value)


def test_our_own_group_is_no_pid() -> None:
    assert not pid_alive(-os.getpid())


def test_our_own_pid_and_init_are_alive() -> None:
    assert pid_alive(os.getpid())
    assert pid_alive(1)


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("0123456789abcdef0123456789abcdef\n", True),
        ("", False),  # as images have it
        ("uninitialized\n", False),
        ("0" * 32, False),
        ("0123456789abcdef" * 100_000, False),
        (None, False),
    ],
    ids=["an-id", "empty", "uninitialized", "zeros", "endless", "none"],
)
def test_a_machine_is_known_by_what_it_keeps_over_its_boots(
    tmp_path: Path, written: str | None, known: bool
) -> None:
    file = tmp_path / "machine-id"
    if written is not None:
        file.write_text(written)
    said = machine_id(file)
    assert bool(said) is known
    assert said == machine_id(file)
    assert said != (written or "another").strip()  # it is not for everybody's eyes


HERE = Machine("one", "a")


@pytest.mark.parametrize(
    ("here", "there", "one_machine", "ended"),
    [
        (HERE, HERE, False, True),
        (HERE, Machine("one", "b"), True, False),  # two of one name
        (HERE, Machine("two", "a"), True, False),  # a clone
        (HERE, Machine("one", ""), False, False),
        (HERE, Machine("one", ""), True, True),
        (Machine("one", ""), HERE, False, False),
        (Machine("one", ""), Machine("one", ""), False, False),
        (Machine("one", ""), Machine("one", ""), True, True),
        (Machine("one", ""), Machine("two", ""), True, False),
    ],
)
def test_a_boot_ends_what_ran_on_the_very_machine(
    here: Machine, there: Machine, one_machine: bool, ended: bool
) -> None:
    class Here(SystemProcesses):
        def machine(self) -> Machine:
            return here

    processes = Here()
    own = processes.own()
    before = dataclasses.replace(own, machine_boot_id="the boot before")
    assert ended_by_reboot(processes, before, there, one_machine=one_machine) is ended
    unknown = dataclasses.replace(own, machine_boot_id="")
    for lives in (own, unknown):
        assert not ended_by_reboot(processes, lives, there, one_machine=one_machine)
