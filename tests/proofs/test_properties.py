"""Property tests: the whole product over a world in memory, whatever fails, in whatever order, and however often.

Each rule is one look, job, word or push, run to its end, with at most one fault at a call that hypothesis chooses:
a database that is locked, a disk that is full, an answer to COMMIT that is lost, a call that lands later, a crash.
Clocks jump, processes come and go. The laws are asked after every commit and every call; at the end the world is left
to itself, and has to come to rest.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.db.database import Tx
from orchestrator.db.sqlite import SqliteDatabase, connect
from orchestrator.domain.errors import AuthorityUnreachable, DatabaseError
from orchestrator.domain.lease import Actor
from orchestrator.runtime.entropy import SeededEntropy
from orchestrator.runtime.process import Liveness
from tests.proofs.conftest import MEMORY
from tests.proofs.explorer import quiet
from tests.proofs.interleaving import Crashed
from tests.proofs.laws import Memory, Scene, after_every_step, at_rest, remember
from tests.proofs.memory_ledgers import FileLedger
from tests.proofs.memory_world import (
    CONFIG,
    Installation,
    MemoryProcess,
    Outside,
    Surroundings,
    Template,
    new_template,
    register,
)  # fmt: skip
from tests.proofs.play import settle_everything
from tests.proofs.scenarios import FIRST, SECOND, cancel, lend, retry, says, tried, unfreeze

T = TypeVar("T")
HUGE = 2**30
DAY = 86_400.0

faults = st.sampled_from([None, None, None, "locked", "full", "lost", "late", "crash"])
calls = st.integers(1, 16)
numbers = st.integers(0, 1)
tasks_ = st.sampled_from([FIRST, SECOND])


class Fault:
    """What goes wrong at the n-th call of a look, if that call can go wrong in this way."""

    def __init__(self, kind: str | None, at: int) -> None:
        self.kind, self._left = kind, at
        self.crashed = False

    def strikes(self, *kinds: str) -> str | None:
        if self.crashed:
            raise Crashed
        self._left -= 1
        if self._left > 0 or self.kind not in (*kinds, "crash"):
            return None
        struck, self.kind = self.kind, None
        if struck == "crash":
            self.crashed = True
            raise Crashed
        return struck


class FaultyDatabase:
    """A process's connections; the judge is asked after every commit."""

    def __init__(self, real: SqliteDatabase, judge: Callable[[], None]) -> None:
        self._real, self._judge = real, judge
        self.fault = Fault(None, 0)
        real._writer.execute("PRAGMA busy_timeout = 0")

    @contextmanager
    def write(self) -> Iterator[Tx]:
        struck = self.fault.strikes("locked", "full", "lost")
        with self._unwell(struck), self._real.write() as tx:
            yield tx
        self._judge()
        if struck == "lost":
            raise DatabaseError("The answer to COMMIT was lost.")

    @contextmanager
    def read(self) -> Iterator[Tx]:
        self.fault.strikes()
        with self._real.read() as tx:
            yield tx

    def close(self) -> None:
        self._real.close()

    @contextmanager
    def _unwell(self, how: str | None) -> Iterator[None]:
        """The real errors of the real database."""
        writer = self._real._writer
        if how == "locked":
            with closing(connect(self._real.path, self._real._clock)) as somebody:
                somebody.execute("BEGIN IMMEDIATE")
                yield
        elif how == "full":
            used = writer.execute("PRAGMA page_count").fetchone()[0]
            writer.execute(f"PRAGMA max_page_count = {used}")
            try:
                yield
            finally:
                writer.execute(f"PRAGMA max_page_count = {HUGE}")
        else:
            yield


class FaultyWire:
    """A process's way out; a late call is kept for whoever lands it."""

    def __init__(
        self, database: FaultyDatabase, late: list[Callable[[], object]], judge: Callable[[], None]
    ) -> None:
        self._database, self._late, self._judge = database, late, judge

    def ask(self, name: str, look: Callable[[], T]) -> T:
        self._database.fault.strikes()
        return look()

    def act(self, name: str, call: Callable[[], T]) -> T:
        if self._database.fault.strikes("late") == "late":
            self._late.append(call)
            raise AuthorityUnreachable("The connection broke.")
        try:
            return call()
        finally:
            self._judge()


class Deliveries(RuleBasedStateMachine):
    """Two tasks of one repository, two processes at a time, and everything that can happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self._stack: list[Callable[[], object]] = []
        quietness = quiet()
        quietness.__enter__()
        self._stack.append(lambda: quietness.__exit__(None, None, None))
        folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self._stack.append(folder.cleanup)
        self.ledger = FileLedger(Path(folder.name))
        self.template: Template = new_template(self.ledger, config=CONFIG, count=2)
        self.outside: Outside = self.template.outside
        self.reader = self.ledger.reader()
        self._stack.append(self.reader.close)
        self.memory = Memory()
        self.broken: list[str] = []
        self.processes: list[MemoryProcess] = []
        self.running: list[tuple[Installation, FaultyDatabase]] = []
        self.late: list[Callable[[], object]] = []
        self.coin: Callable[[str], bool] = lambda _: True
        for _ in range(2):
            self.start()
        remember(self.scene())

    def start(self) -> tuple[Installation, FaultyDatabase]:
        process = MemoryProcess(len(self.processes) + 1, Liveness.ALIVE)
        self.processes.append(process)
        database = FaultyDatabase(self.ledger.open(), self.judge)
        register(database, process)
        around = Surroundings(
            self.outside, self.processes, self.template.clock, wire=FaultyWire(database, self.late, self.judge),
            entropy=SeededEntropy(process.number), coin=lambda what: self.coin(what),
        )  # fmt: skip
        app = Installation(database, process, around)
        self.running.append((app, database))
        return app, database

    def scene(self) -> Scene:
        living = frozenset(one.boot_id for one in self.processes if one.fate is Liveness.ALIVE)
        return Scene(self.reader.read(), self.outside, self.memory, {}, living, CONFIG)

    def judge(self) -> None:
        self.broken += after_every_step(self.scene())

    def run(self, number: int, script: Callable[[Installation], object], kind: str | None, at: int) -> None:
        """One actor of a process; if it crashes, the process is gone and another one starts."""
        app, database = self.running[number]
        database.fault = Fault(kind, at)
        try:
            tried(lambda: script(app))
        except Crashed:
            app.process.fate = Liveness.DEAD
            database.close()
            del self.running[number]
            self.start()
        finally:
            database.fault = Fault(None, 0)

    # --- what happens -----------------------------------------------------------------------------------------

    @rule(number=numbers, task=tasks_, owner=st.sampled_from([Actor.RECONCILER, Actor.WEBHOOK]), kind=faults, at=calls,
          good=st.booleans())  # fmt: skip
    def look(self, number: int, task: Any, owner: Actor, kind: str | None, at: int, good: bool) -> None:
        self.coin = lambda _: good
        self.run(number, lambda app: app.engine.advance_stage(task, owner), kind, at)

    @rule(number=numbers, task=tasks_, kind=faults, at=calls, good=st.booleans())
    def drive(self, number: int, task: Any, kind: str | None, at: int, good: bool) -> None:
        self.coin = lambda _: good
        self.run(number, lambda app: app.drive(task, Actor.MONITOR), kind, at)

    @rule(number=numbers, kind=faults, at=calls)
    def reap(self, number: int, kind: str | None, at: int) -> None:
        self.run(number, lambda app: app.reaper.run_once(), kind, at)

    @rule(number=numbers, task=tasks_, word=st.sampled_from([cancel, retry, retry]), kind=faults, at=calls)
    def say(self, number: int, task: Any, word: Any, kind: str | None, at: int) -> None:
        self.run(number, says(word, task, drive=False), kind, at)

    @rule(number=numbers, what=st.sampled_from([unfreeze, lend]), kind=faults, at=calls)
    def decide_about_a_freeze(self, number: int, what: Any, kind: str | None, at: int) -> None:
        self.run(number, what, kind, at)

    @rule(sick=st.booleans(), task=st.sampled_from(["SMP-1", "SMP-2"]))
    def production_changes(self, sick: bool, task: str) -> None:
        (self.outside.sick.add if sick else self.outside.sick.discard)(("production", task))

    @rule(branch=st.booleans())
    def a_stranger_pushes(self, branch: bool) -> None:
        name = f"stranger-{len(self.outside.objects.commits)}"
        if branch:
            self.outside.push_to_branch("orch/SMP-1", name)
        else:
            self.outside.push_to_main(name)
        self.judge()

    @rule(what=st.sampled_from(["forge", "environments"]), gone=st.booleans())
    def an_authority_goes_or_comes(self, what: str, gone: bool) -> None:
        getattr(self.outside, what).unreachable = gone

    @precondition(lambda self: self.late)
    @rule()
    def a_late_call_lands(self) -> None:
        call = self.late.pop(0)
        tried(call)
        self.judge()

    @rule(seconds=st.sampled_from([1.0, 90.0, DAY, -90.0, -DAY]))
    def the_clock_jumps(self, seconds: float) -> None:
        clock = self.template.clock
        if seconds > 0:
            clock.advance(seconds)
        else:
            clock.set_utc(clock.utc().fromtimestamp(clock.utc().timestamp() + seconds, clock.utc().tzinfo))

    # --- what must hold ---------------------------------------------------------------------------------------

    @invariant()
    def the_laws_hold(self) -> None:
        assert self.broken == []

    def teardown(self) -> None:
        try:
            self.outside.forge.unreachable = self.outside.environments.unreachable = False
            self.coin = lambda _: True
            while self.late:
                self.a_late_call_lands()
            for app, database in self.running:
                app.process.fate = Liveness.DEAD
                database.close()
            if not self.broken:
                app, database = self.start()
                settle_everything(app, self.template.tasks)
                database.close()
                self.broken += at_rest(self.scene())
            assert self.broken == []
        finally:
            while self._stack:
                self._stack.pop()()


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck), print_blob=False,
)  # fmt: skip
