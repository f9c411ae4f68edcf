"""The sweep: nobody who holds the marker is left, at whatever moment it was looked at."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.runtime.process import may_have_environment, process_state
from orchestrator.runtime.sweep import LISTS, ProcTable, marked, sweep
from tests.waiting import wait_until

MARK = "ORCH_TEST_ID=of-this-test"
ENV = {"PATH": os.environ["PATH"]}
MINE, OTHERS = (b"PATH=/bin", MARK.encode()), (b"PATH=/bin",)


@dataclass
class Table:
    """Processes as a test tells them: ``shows`` what the n-th look at one sees (the last for ever)."""

    shows: dict[int, list[Collection[bytes] | None]] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    after_list: list[Callable[[], object]] = field(default_factory=list)  # happens once each list is made
    killed: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)

    def pids(self) -> set[int]:
        listed = set(self.shows)
        if self.after_list:
            self.after_list.pop(0)()
        return listed

    def environ(self, pid: int) -> Collection[bytes] | None:
        if pid not in self.shows or pid in self.dead:
            return ()
        row = self.shows[pid]
        return row.pop(0) if len(row) > 1 else row[0]

    def ended(self, pid: int) -> bool:
        return pid in self.dead or pid not in self.shows

    def parent(self, pid: int) -> int | None:
        return self.parents.get(pid)

    def kill(self, pid: int) -> None:
        self.killed.add(pid)
        self.dead.add(pid)


def test_whoever_holds_the_marker_is_ended_and_nobody_else() -> None:
    table = Table({1: [MINE], 2: [OTHERS], 3: [()], 4: [(*MINE, b"SPARED=yes")]})
    assert sweep(MARK, spare=lambda: ["SPARED=yes"], table=table) == ()
    assert table.killed == {1}


def test_who_is_spared_is_asked_after_the_look() -> None:
    """Another service that starts meanwhile is on its list before it starts anything."""
    alive: list[str] = []
    table = Table({1: [MINE], 4: [(*MINE, b"SPARED=yes")]}, after_list=[lambda: alive.append("SPARED=yes")])
    assert sweep(MARK, spare=lambda: list(alive), table=table) == ()
    assert table.killed == {1}


def test_who_executes_another_program_just_now_is_looked_at_again() -> None:
    table = Table({1: [None, None, MINE], 2: [None, OTHERS]})
    assert sweep(MARK, table=table) == ()
    assert table.killed == {1}


def test_who_has_given_up_its_memory_is_waited_for_until_it_is_dead() -> None:
    table = Table({1: [None, None, None, ()]})
    assert sweep(MARK, table=table) == ()
    assert table.shows[1] == [()]


def test_who_is_started_by_one_that_ends_while_it_is_looked_for_is_found() -> None:
    """It stands in no list that was made before, and who did stand there is gone."""
    table = Table({1: [MINE]})

    def hand_on() -> None:
        del table.shows[1]
        table.shows[2] = [MINE]

    table.after_list.append(hand_on)
    assert sweep(MARK, table=table) == ()
    assert table.killed == {2}


def test_a_chain_that_is_always_ahead_of_the_look_is_not_taken_for_none() -> None:
    """Each has started the next one and is gone when it is looked at, as often as a look makes a list."""
    table = Table({1: [MINE]})

    def hand_on() -> None:
        [pid] = table.shows
        table.shows = {pid + 1: [MINE]}

    table.after_list = [hand_on] * (LISTS + 5)
    assert sweep(MARK, table=table) == ()
    assert table.killed == {LISTS + 6}


def test_one_that_was_found_and_has_ended_may_have_started_another() -> None:
    table = Table({1: [MINE]})
    asked: list[int] = []

    def ended(pid: int) -> bool:
        if not asked:
            table.shows = {2: [MINE]}
        asked.append(pid)
        return pid not in table.shows or pid in table.dead

    table.ended = ended  # type: ignore[method-assign]
    assert sweep(MARK, table=table) == ()
    assert table.killed == {2}


def test_who_never_shows_anything_holds_nobody_up_for_long_and_is_left_alone() -> None:
    table = Table({1: [None], 2: [MINE]})
    assert sweep(MARK, seconds=0.2, table=table) == ()
    assert table.killed == {2}


def test_who_cannot_be_ended_is_told() -> None:
    table = Table({1: [MINE]})
    table.kill = lambda pid: None  # type: ignore[method-assign]
    assert sweep(MARK, seconds=0.1, table=table) == (1,)


def test_descendants_are_ended_marked_or_not() -> None:
    own = os.getpid()
    table = Table({1: [OTHERS], 2: [OTHERS], 3: [OTHERS]}, parents={1: own, 2: 1, 3: 9})
    assert sweep(MARK, descendants=True, table=table) == ()
    assert table.killed == {1, 2}


# -- what the kernel shows ----------------------------------------------------------------------------------------


@pytest.fixture
def program() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    made: list[subprocess.Popen[bytes]] = []

    def start(script: str, env: dict[str, str]) -> "subprocess.Popen[bytes]":
        made.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", script], env=env))
        return made[-1]

    yield start
    for child in made:
        child.kill()
        child.wait()


def test_a_process_without_any_environment_is_not_waited_for(
    program: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    child = program("import signal; signal.pause()", {})
    wait_until(lambda: ProcTable().environ(child.pid) is not None)
    assert ProcTable().environ(child.pid) == ()
    assert not may_have_environment(child.pid)


def test_one_that_is_dead_but_not_collected_is_neither_found_nor_waited_for(
    program: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    child = program("pass", {**ENV, "ORCH_TEST_ID": "of-this-test"})
    wait_until(lambda: process_state(child.pid) == "Z")
    assert ProcTable().environ(child.pid) == ()
    assert marked(MARK) == ()


def test_nobody_is_waited_for_for_ever() -> None:
    """Kernel threads show no environment either, and have none; whoever is just beginning or ending comes to rest."""
    table = ProcTable()
    for pid in table.pids():
        wait_until(lambda pid=pid: table.environ(pid) is not None)


def test_a_process_whose_leader_has_ended_is_found_by_its_threads(
    program: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    script = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit of this thread alone
    )
    child = program(script, {**ENV, "ORCH_TEST_ID": "of-this-test"})
    stat = Path(f"/proc/{child.pid}/stat")
    wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")
    assert process_state(child.pid) != "Z"
    assert marked(MARK) == (child.pid,)
    assert sweep(MARK) == ()
    assert child.wait(60) == -signal.SIGKILL


def test_a_chain_that_goes_on_by_new_processes_is_ended(
    program: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    """Each starts the next one and ends at once."""
    script = "import os\nwhile True:\n    if os.fork():\n        os._exit(0)\n"
    child = program(script, {**ENV, "ORCH_TEST_ID": "of-this-test"})
    assert child.wait(60) == 0
    assert sweep(MARK) == ()
    assert marked(MARK) == ()
