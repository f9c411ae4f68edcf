"""One run of a scenario: who goes next, what each step left behind, and how the world comes to rest afterwards."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.db import jobs, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import InvariantError, OrchestratorError
from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import Actor, Lease
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SeededEntropy
from orchestrator.runtime.process import Liveness
from orchestrator.runtime.waypoints import Waypoints
from orchestrator.stage_engine.situation import Outcome
from tests.proofs.held_statements import HeldStatements, WaitingActor
from tests.proofs.interleaving import (
    ActorThread,
    Branch,
    Budget,
    Decisions,
    Diverged,
    Held,
    HeldDatabase,
    HeldWire,
    Version,
    digest,
)  # fmt: skip
from tests.proofs.laws import Memory, Scene, after_every_step, at_rest, remember
from tests.proofs.memory_ledgers import MemoryLedger, ServerLedger
from tests.proofs.memory_world import (
    Installation,
    MemoryProcess,
    Outside,
    StopAt,
    Surroundings,
    Template,
)  # fmt: skip
from tests.proofs.scheduler import LateCall, Point, Scheduler

if TYPE_CHECKING:
    from tests.proofs.explorer import Stage

REST = 50  # the process that comes last and finds everybody else dead
PASSES = 8
MAX_STEPS = 3_000
DEADLOCK_S = 60.0  # the server needs one second to see that two wait for each other
COMMAND = "command"  # who lands a deploy command that has not taken effect yet

Script = Callable[[Installation], object]


@dataclass(frozen=True)
class ActorSpec:
    """Somebody who acts: what he does, and in which process. Number 0 is no process of ours: a person outside."""

    name: str
    process: int
    script: Script


@dataclass(frozen=True)
class Scenario:
    """A world to begin with, who acts in it, and how often it may misbehave."""

    name: str
    make: Callable[[MemoryLedger], Template]
    actors: tuple[ActorSpec, ...]
    config: str
    budget: Budget = Budget()
    takeover: bool = False  # every owner looks dead to the others, also one that lives
    until: str = (
        ""  # the step of the pipeline before which the actors stop; whoever comes last goes on from there
    )
    late: tuple[str, ...] = ()  # the calls that may land late


@dataclass
class Run:
    """What one list of choices led to."""

    choices: list[str]
    branches: list[Branch]
    steps: int = 0
    broken: list[str] = field(default_factory=list)
    pruned: bool = False
    trace: list[str] = field(default_factory=list)


class Play:
    """One run."""

    def __init__(
        self, stage: "Stage", outside: Outside, decisions: Decisions, visited: dict[bytes, int] | None, *, explain: bool
    ) -> None:  # fmt: skip
        self._stage, self._outside, self._decisions, self._visited = stage, outside, decisions, visited
        self._scenario = stage.scenario
        self._explain = explain
        self._back = threading.Lock()
        self._back.acquire()
        self._version = Version()
        self._acts = 0
        self._databases: list[Database] = []
        fate = Liveness.UNKNOWN if self._scenario.takeover else Liveness.ALIVE
        self._processes = {number: MemoryProcess(number, fate) for number in stage.numbers}
        self._owners: dict[str, Lease] = {}
        self._actors: dict[str, ActorThread] = {}
        self._of: dict[str, int] = {}
        self._scheduler = Scheduler(Held(self._actors))
        for spec in self._scenario.actors:
            self._add(spec)
        self._reader = stage.ledger.reader()
        self._memory = Memory()
        self._checked = False
        self._result = Run(decisions.made, decisions.branches)
        self._current: str | None = None
        self._next: str | None = None  # chosen in an actor's thread, and not that actor's to do
        self._before: tuple[bytes, int] = (b"", 0)
        self._free_run = False
        self._problem: Exception | None = None

    def close(self) -> None:
        self._send_home()
        self._reader.close()
        for database in self._databases:
            database.close()

    def to_the_end(self) -> Run:
        try:
            self._schedule()
            if not self._over:
                last = self._scheduler.late and self._decisions.choose(
                    [("land first", ()), ("land last", ())]
                )
                if last != "land last":
                    self._land_all()
                self._come_to_rest("rest")
                if self._scheduler.late:
                    self._land_all()
                    self._come_to_rest("rest again")
        except OrchestratorError as error:
            self._result.broken.append(f"the run could not be judged: {error!r}")
        return self._result

    # --- who goes next --------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        while not self._over:
            choice, self._next = self._next or self._choose(), None
            if choice is None:
                return
            self._take(choice)

    def _choose(self) -> str | None:
        if self._decisions.free and self._seen_before():
            self._result.pruned = True
            return None
        ready = self._ready()
        if not ready:
            return None
        return self._decisions.choose(self._options(ready))

    def _ready(self) -> list[str]:
        free = [n for n, a in self._actors.items() if not (a.ended or a.crashed or a.waiting)]
        waiting = any(actor.waiting for actor in self._actors.values())
        if free or not waiting:
            return free
        self._let_come(somebody=True)  # they wait for each other: the server ends one of them
        return self._ready()

    def _let_come(self, *, somebody: bool = False) -> None:
        """Whoever waited for a lock that is free by now stands at its next call before anybody chooses; ``somebody``:
        wait for that."""
        clock, came = SystemClock(), True
        end = clock.boottime() + DEADLOCK_S
        while came or somebody:
            came = any(actor.come() for actor in self._actors.values() if actor.waiting)
            somebody = somebody and not came
            if somebody and clock.boottime() > end:
                raise InvariantError("all wait for locks, and the server ends nobody")

    def _send_home(self) -> None:
        """Whoever still stands somewhere; those first for whom others may be waiting."""
        for actor in self._actors.values():
            if actor.waiting:
                actor.order = "abandon"
        for actor in self._actors.values():
            if not actor.ended and not actor.waiting:
                actor.send_on("abandon")
        while any(actor.waiting for actor in self._actors.values()):
            self._let_come(somebody=True)

    def _go_on(self, actor: ActorThread) -> str | None:
        """In an actor's own thread, at its next call: whether it is the one that goes on."""
        try:
            self._after_step()
            if self._over:
                return None
            choice = actor.name if self._free_run else self._choose()
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits for this thread
            self._problem = error
            return None
        name, _, order = (choice or "").partition("!")
        if name != actor.name or order == "crash":
            self._next = choice
            return None
        self._before_step(actor, name if not order else f"{name}!{order}")
        return order or "go"

    def _options(self, ready: list[str]) -> list[tuple[str, tuple[str, ...]]]:
        mine = self._current if self._current in ready else None
        order = [mine, *(name for name in ready if name != mine)] if mine else ready
        options: list[tuple[str, tuple[str, ...]]] = []
        for name in order:
            actor = self._actors[name]
            price = ("preemptions",) if mine and name != mine else ()
            options.append((name, price))
            if actor.kind == "write":
                options += [(f"{name}!lost", (*price, "lost")), (f"{name}!fail", (*price, "lost"))]
            if actor.kind == "act" and actor.at in self._scenario.late:
                options.append((f"{name}!late", (*price, "late")))
            if (
                actor.kind in ("write", "act") and self._of[name]
            ):  # what was only read is lost just as well later
                options.append((f"{name}!crash", (*price, "crashes")))
        if mine is None or self._actors[mine].kind in (
            "ask",
            "act",
        ):  # the database does not notice a landing
            options += [(f"land:{number}", ()) for number in range(len(self._scheduler.late))]
        return options

    def _take(self, choice: str) -> None:
        if choice.startswith("land:"):
            self._before = self._version.value, self._acts
            self._land(self._scheduler.late[int(choice[5:])])
            self._after_step()
            return
        name, _, order = choice.partition("!")
        actor = self._actors[name]
        self._current = name
        self._before_step(actor, choice)
        actor.send_on(order or "go")
        if self._problem is not None:
            raise self._problem
        if order == "crash":
            self._end_process(self._of[name])
        if isinstance(actor.error, Diverged):
            raise actor.error
        if actor.error is not None:
            self._result.broken.append(f"an error of ours: {name}: {actor.error!r}")
        if actor.ended or actor.waiting or order == "crash":
            self._after_step()

    def _before_step(self, actor: ActorThread, choice: str) -> None:
        self._before = self._version.value, self._acts
        if self._explain:
            self._version.steps.clear()
            self._result.trace.append(f"{choice}: {actor.at}")

    def _after_step(self) -> None:
        self._let_come()
        self._result.steps += 1
        if self._explain and self._result.trace:
            self._result.trace[-1] += "".join(f" {name}" for name in self._version.steps)
            self._version.steps.clear()
        if (self._version.value, self._acts) != self._before:
            self._judge(after_every_step)

    def _land(self, call: LateCall) -> None:
        if self._explain:
            self._result.trace.append(f"lands now: {call.point}")
        self._acts += 1
        try:
            self._scheduler.land(call)
        except OrchestratorError as error:
            if self._explain:
                self._result.trace.append(f"  refused: {error}")

    def _land_all(self) -> None:
        while self._scheduler.late and not self._over:
            self._land(self._scheduler.late[0])
            self._judge(after_every_step)

    def _end_process(self, number: int) -> None:
        self._processes[number].fate = Liveness.DEAD
        for name, process in self._of.items():
            if process == number:
                actor = self._actors[name]
                actor.crashed = True
                self._owners.pop(name, None)
                if actor.inside and not actor.waiting:
                    actor.send_on("crash")  # the server undoes what it was at

    def _come_to_rest(self, name: str) -> None:
        if self._over:
            return
        for number, process in self._processes.items():
            process.fate = Liveness.ALIVE if number == REST else Liveness.DEAD
        self._send_home()
        self._owners.clear()
        self._add(ActorSpec(name, REST, lambda app: settle_everything(app, self._stage.template.tasks)))
        self._free_run = True
        self._take(name)
        working = any(call.point.actor == COMMAND for call in self._scheduler.late)
        if not self._over and not working:  # nothing is started where a command is still at work
            self._judge(at_rest)

    @property
    def _over(self) -> bool:
        return bool(self._result.broken) or self._result.pruned or self._result.steps > MAX_STEPS

    # --- what it looks like ---------------------------------------------------------------------------------------

    def _seen_before(self) -> bool:
        if self._visited is None:
            return False
        state = (
            [
                (name, "gone") if actor.ended or actor.crashed else (name, actor.chain, actor.at, actor.waiting)
                for name, actor in self._actors.items()
            ],
            self._version.value, self._outside.state(), [str(call.point) for call in self._scheduler.late],
            self._current if self._current in self._ready() else None,
            [(kind, n) for kind, n in self._decisions.used.items() if kind != "preemptions"],
        )  # fmt: skip
        key = digest(b"", state)
        used = self._decisions.used["preemptions"]
        if self._visited.get(key, used + 1) <= used:
            return True
        self._visited[key] = used
        return False

    def _judge(self, laws: Callable[[Scene], list[str]]) -> None:
        if not self._decisions.free and not self._explain:
            return  # the run that this one repeats has been judged so far
        living = frozenset(one.boot_id for one in self._processes.values() if one.fate is Liveness.ALIVE)
        scene = Scene(
            self._reader.read(),
            self._outside,
            self._memory,
            dict(self._owners),
            living,
            self._scenario.config,
        )
        if not self._checked:
            self._checked = True
            remember(scene)
        self._result.broken += laws(scene)

    # --- who there is ---------------------------------------------------------------------------------------------

    def _add(self, spec: ActorSpec) -> None:
        how = (spec.name, lambda: self._work(spec), self._back, self._go_on)
        ledger = self._stage.ledger
        actor = WaitingActor(*how, ledger.blocked) if isinstance(ledger, ServerLedger) else ActorThread(*how)
        self._actors[spec.name] = actor
        self._of[spec.name] = spec.process

    def _work(self, spec: ActorSpec) -> None:
        actor = self._actors[spec.name]
        process = self._processes.get(spec.process) or MemoryProcess(0)
        real = self._stage.ledger.open()
        self._databases.append(real)
        wire = HeldWire(self._scheduler, lambda: actor, self._noted)
        around = Surroundings(
            self._outside, list(self._processes.values()), self._stage.template.clock, wire=wire,
            commands=self, waypoints=self._waypoints(), entropy=SeededEntropy(sum(spec.name.encode())), coin=self.coin,
        )  # fmt: skip
        held = HeldStatements if self._stage.ledger.by_statement else HeldDatabase
        database = held(real, self._scheduler, actor, self._version)
        app = Installation(database, process, around)
        self._track(app, spec.name)
        spec.script(app)

    def _waypoints(self) -> Waypoints:
        until = self._scenario.until
        resting = threading.current_thread().name.startswith("rest")
        return StopAt(until, self._scheduler) if until and not resting else self._scheduler

    def _track(self, app: Installation, name: str) -> None:
        real = app.ownership.transition

        @contextmanager
        def tracked(task_id: TaskId, owner: Actor, **named: object) -> Iterator[Lease | None]:
            with real(task_id, owner, **named) as lease:  # type: ignore[arg-type]
                if lease is not None:
                    self._owners[name] = lease
                try:
                    yield lease
                finally:
                    self._owners.pop(name, None)

        app.ownership.transition = tracked  # type: ignore[method-assign]

    def _noted(self) -> None:
        self._acts += 1

    def coin(self, what: str) -> bool:
        """A gate's answer."""
        if threading.current_thread().name.startswith("rest"):
            return True
        answer = self._decisions.choose([(f"{what}: good", ()), (f"{what}: bad", ("coins",))])
        good = answer.endswith("good")
        self._actors[threading.current_thread().name].saw(what, good)
        return good

    def command(self, name: str, effect: Callable[[], None]) -> None:
        """A deploy command: at once, or as a step of its own."""
        if self._decisions.choose([("at once", ()), ("slow", ("slow",))]) == "at once":
            effect()
        else:
            self._scheduler.late.append(LateCall(Point(name, 1, 0, COMMAND), effect))


def settle_everything(app: Installation, ids: Sequence[TaskId]) -> None:
    """What a new life does, until nothing changes any more."""
    before: object = None
    for _ in range(PASSES):
        with app.database.write() as tx:
            for job in jobs.running_of_others(tx, app.process.boot_id, after=0, limit=100):
                jobs.reap_running_job(tx, job, "its process has ended")
        outcomes = [app.drive(task_id, Actor.RECOVERY) for task_id in ids]
        with app.database.read() as tx:
            now = [
                (t.stage, t.round, t.hold, t.hold_reason) for t in (tasks.get(tx, task_id) for task_id in ids)
            ]
        if now == before and not {Outcome.RETRY, Outcome.DEFERRED, Outcome.MOVED} & set(outcomes):
            return
        before = now
