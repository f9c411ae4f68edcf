"""What processes of one PostgreSQL database tell each other: the others hear it, the speaker does not, nobody late."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest

from orchestrator.db.postgres_signals import EVERYTHING, MAX_IDS, PostgresSignals
from orchestrator.domain.ids import BootId
from orchestrator.domain.lease import Actor
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.wakeups import Signal, Wakeups
from tests.fixtures_postgres import END_OTHERS
from tests.postgres_wire import Wire
from tests.waiting import wait_until


class Ear:
    """What a process has heard, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: list[Signal] = []

    def __call__(self, signal: Signal) -> None:
        with self._lock:
            self._heard.append(signal)

    @property
    def heard(self) -> list[Signal]:
        with self._lock:
            return list(self._heard)

    def until(self, *signals: Signal) -> None:
        wait_until(lambda: set(signals) <= set(self.heard))


MANY_FILES = """
import os, resource, sys, threading
from orchestrator.db.postgres_signals import PostgresSignals
from orchestrator.runtime.clock import SystemClock

def hear(signal):
    print(signal.what, flush=True)
    if signal.what == "queue":
        heard.set()

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, most))
while os.open("/dev/null", os.O_RDONLY) < 1024:
    pass
threading.excepthook = lambda failed: os._exit(1)
heard = threading.Event()
signals = PostgresSignals(sys.argv[1], "many", hear, clock=SystemClock())
signals.listen()
heard.wait()
signals.close()
"""

Make = Callable[..., tuple[PostgresSignals, Ear]]


@pytest.fixture
def process(postgres_url: str) -> Iterator[Make]:
    """Makes processes that listen."""
    with ExitStack() as stack:

        def make(name: str, url: str = postgres_url, *, listen: bool = True) -> tuple[PostgresSignals, Ear]:
            ear = Ear()
            signals = PostgresSignals(url, BootId(name), ear, clock=SystemClock())
            stack.enter_context(closing(signals))
            if listen:
                signals.listen()
                ear.until(EVERYTHING)  # nobody knows what was said before
            return signals, ear

        yield make


def test_others_hear_it_and_the_speaker_does_not(process: Make) -> None:
    (one, own), (_, second), (_, third) = process("one"), process("two"), process("three")
    said = Signal("tasks", (7, 9), Actor.OPERATOR)
    one.tell(said)
    second.until(said)
    third.until(said)
    one.tell(Signal("queue"))
    second.until(Signal("queue"))
    assert own.heard == [EVERYTHING]


def test_more_ids_than_one_message_takes(process: Make) -> None:
    one, ear = process("one", listen=False)[0], process("two")[1]
    ids = tuple(range(2 * MAX_IDS + 1))
    one.tell(Signal("tasks", ids, Actor.WEBHOOK))
    wait_until(lambda: sum(len(signal.ids) for signal in ear.heard) == len(ids))
    assert {one_id for signal in ear.heard for one_id in signal.ids} == set(ids)


def test_what_is_said_last_before_the_end_is_said(process: Make, postgres_url: str) -> None:
    """As a command that ends at once does."""
    ear = process("two")[1]
    with closing(PostgresSignals(postgres_url, BootId("command"), Ear(), clock=SystemClock())) as command:
        command.tell(Signal("everything"))
    wait_until(lambda: ear.heard.count(EVERYTHING) == 2)


def test_whoever_has_lost_the_server_looks_at_everything_and_hears_again(
    process: Make, postgres_url: str
) -> None:
    one, ear = process("one", listen=False)[0], process("two")[1]
    one.tell(Signal("queue"))
    ear.until(Signal("queue"))
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute(END_OTHERS)
    wait_until(lambda: ear.heard.count(EVERYTHING) == 2)

    def heard_again() -> bool:
        one.tell(Signal("queue"))  # the first may be lost with the old connection
        return ear.heard.count(Signal("queue")) > 1

    wait_until(heard_again)


def test_a_process_with_many_open_files_hears(process: Make, postgres_url: str) -> None:
    one, _ = process("one", listen=False)
    command = [sys.executable, "-c", MANY_FILES, postgres_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "everything\n"
        one.tell(Signal("queue"))
        said, _ = child.communicate()
    assert (said, child.returncode) == ("queue\n", 0)


def test_nonsense_is_passed_over(process: Make, postgres_url: str) -> None:
    ear = process("two")[1]
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        for payload in ("", "[]", "{}", '{"from": "x", "what": "tasks", "ids": ["y"], "said": ""}', "\x01"):
            connection.execute("SELECT pg_notify('orch', %s)", (payload,))
        connection.execute(
            "SELECT pg_notify('orch', %s)", ('{"from": "x", "what": "new", "ids": [], "said": ""}',)
        )
    ear.until(Signal("new"))
    assert ear.heard == [EVERYTHING, Signal("new")]
    Wakeups().hear(Signal("new"))


def test_behind_a_pooler_nobody_listens_in_vain(postgres_url: str) -> None:
    """Its connections are not ours to listen on; timers alone wake then. To speak is possible."""
    with Wire(postgres_url, pooling=True) as wire:
        ear = Ear()
        with closing(PostgresSignals(wire.url, BootId("one"), ear, clock=SystemClock())) as signals:
            signals.listen()
            wait_until(lambda: "orch-signals-in" not in {each.name for each in threading.enumerate()})
            signals.tell(Signal("queue"))
        assert ear.heard == []


class TestWakeups:
    def test_what_nobody_here_does_is_told_to_others(self) -> None:
        told: list[Signal] = []
        command = Wakeups()
        command.relay(told.append)
        command.tasks([3], Actor.OPERATOR)
        command.everything()
        command.stop(5, "cancelled")
        assert told == [Signal("tasks", (3,), Actor.OPERATOR), EVERYTHING, Signal("stop", (5,), "cancelled")]

    def test_what_is_done_here_is_not(self) -> None:
        told: list[Signal] = []
        looked: list[int] = []
        stopped: list[str] = []
        service = Wakeups()
        service.relay(told.append)
        service.on_tasks(lambda ids, owner: looked.extend(ids))
        service.register_stop(5, stopped.append)
        service.tasks([3])
        service.stop(5, "cancelled")
        assert (told, looked, stopped) == ([], [3], ["cancelled"])
        service.everything()
        assert told == [Signal("queue")]  # it may have no room for a job

    def test_what_is_heard_is_done_and_not_passed_on(self) -> None:
        told: list[Signal] = []
        looked: list[tuple[int, Actor]] = []
        stopped: list[str] = []
        service = Wakeups()
        service.relay(told.append)
        service.on_tasks(lambda ids, owner: looked.extend((one, owner) for one in ids))
        service.register_stop(5, stopped.append)
        for signal in (
            Signal("tasks", (3, 4), "operator"),
            Signal("tasks", (6,), "nobody"),
            Signal("stop", (5, 6), "cancelled"),
            Signal("queue"),
        ):
            service.hear(signal)
        assert looked == [(3, Actor.OPERATOR), (4, Actor.OPERATOR)]
        assert stopped == ["cancelled"]
        assert (service.queue.is_set(), service.outbox.is_set()) == (True, False)
        service.hear(EVERYTHING)
        assert service.outbox.is_set()
        assert service.inbox.is_set()
        assert told == []
