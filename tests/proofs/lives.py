"""Lives of one installation: real processes, forked from a parent that has imported everything already.

A life opens the state folder, runs the whole :class:`~orchestrator.main.Service`, lets a person act, and ends at rest,
unless its policy or its parent ends or stops it first. What must hold: the parent has one thread, so that it may fork;
a life never returns into its parent's code.
"""

import os
import random
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NoReturn

from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.gate import GateResult, failed
from orchestrator.main import Service
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.process import ProcessIdentity
from orchestrator.stage_engine import work
from orchestrator.wiring import App
from tests.proofs.outside import ScheduledProcesses, scheduled_app
from tests.proofs.scheduler import Free, Point, Policy, Scheduler, Step
from tests.proofs.world import FastClock, World, at_rest

DEADLINE_S = 60.0  # of a life without a kill; beyond it something hangs
POLL_S = 0.02
AT_REST, CAME_TO_NO_REST, NOT_STARTED, FAILED = 0, 3, 4, 70
FICKLE = ("check_candidate", "check_staging", "check_staging_log", "check_testing", "check_review")

Script = Callable[[App], None]


def nothing(_: App) -> None:
    """A person who only looks on."""


class Ending(StrEnum):
    """How a life ended, or whether it goes on."""

    REST = "rest"
    KILLED = "killed"
    RESTLESS = "restless"
    NOT_STARTED = (
        "not started"  # the database took the first of its transactions away; whoever keeps it up tries again
    )
    FAILED = "failed"
    STOPPED = "stopped"
    LIVING = "living"


@dataclass(frozen=True)
class Life:
    """What is to become of one life."""

    policy: Policy = field(default_factory=Free)
    script: Script = nothing
    kill_after: float | None = None  # seconds until the parent kills it, wherever it is
    meanwhile: tuple[float, Callable[[], object]] | None = (
        None  # (after so many seconds, the parent does this)
    )
    polite: bool = False  # stop as SIGTERM does, once at rest
    namespace: str | None = None  # as if in a container of its own: other lives cannot look at its process
    restarts: bool = False  # ends at once when a deploy of ourselves asks for it
    patience_s: float = DEADLINE_S
    fickle: int | None = None  # seed of gates that now and then change their mind
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Whether there may be others at the same time."""
        return self.namespace is not None


@dataclass(frozen=True)
class Lived:
    """How it went; ``told`` are the points at which something was done."""

    ending: Ending
    told: tuple[str, ...]
    seconds: float


class Living:
    """A life that goes on."""

    def __init__(self, world: World, life: Life) -> None:
        self._clock = SystemClock()
        self._began = self._clock.boottime()
        self._listen, tell = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._listen)
            _be(world, life, tell)
        os.close(tell)
        self._ending = Ending.LIVING
        self._told: tuple[str, ...] = ()

    def look(self) -> Ending:
        """How it stands now."""
        if self._ending not in (Ending.LIVING, Ending.STOPPED):
            return self._ending
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid == 0:
            return self._ending
        self._ending = _ending(status)
        return self._ending

    def until(self, wanted: Callable[[Ending], bool], seconds: float) -> Ending:
        """Wait until it stands as wanted, or for so long; how it stands then."""
        end, never = self._clock.boottime() + seconds, threading.Event()
        while not wanted(self.look()) and self._clock.boottime() < end:
            never.wait(POLL_S / 4)
        return self.look()

    def signal(self, signum: int) -> None:
        """Send it a signal, if it is still there."""
        if self.look() in (Ending.LIVING, Ending.STOPPED):
            os.kill(self.pid, signum)

    def end(self) -> Lived:
        """Kill it, where it still lives; how it went."""
        self.signal(signal.SIGKILL)
        if self._ending in (Ending.LIVING, Ending.STOPPED):
            self._ending = _ending(os.waitpid(self.pid, 0)[1])
        return self.lived()

    def lived(self) -> Lived:
        """How it went, once it has ended."""
        if self._listen >= 0:
            self._told = tuple(os.read(self._listen, 65536).decode().splitlines())
            os.close(self._listen)
            self._listen = -1
        return Lived(self._ending, self._told, self._clock.boottime() - self._began)


def live(world: World, life: Life) -> Lived:
    """One life, from its start to its end."""
    clock, living = SystemClock(), Living(world, life)
    began, meanwhile = clock.boottime(), life.meanwhile
    handle = os.pidfd_open(living.pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        while True:
            ends = [life.patience_s if life.kill_after is None else life.kill_after]
            if meanwhile is not None:
                ends.append(meanwhile[0])
            if poll.poll(max(0.0, began + min(ends) - clock.boottime()) * 1000):
                break
            if meanwhile is not None and clock.boottime() - began >= meanwhile[0]:
                meanwhile[1]()
                meanwhile = None
                continue
            lived = living.end()
            return lived if life.kill_after is not None else replace(lived, ending=Ending.RESTLESS)
    finally:
        os.close(handle)
    return living.end()


def _ending(status: int) -> Ending:
    if os.WIFSTOPPED(status):
        return Ending.STOPPED
    if os.WIFCONTINUED(status):
        return Ending.LIVING
    if os.WIFSIGNALED(status):
        return Ending.KILLED
    known = {AT_REST: Ending.REST, CAME_TO_NO_REST: Ending.RESTLESS, NOT_STARTED: Ending.NOT_STARTED}
    return known.get(os.WEXITSTATUS(status), Ending.FAILED)


def _be(world: World, life: Life, tell: int) -> NoReturn:
    """Live. Never returns."""
    code = FAILED
    try:
        with open(world.root / "lives.log", "ab", buffering=0) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        threading.current_thread().name = "life"
        code = _run(world, life, tell)
    except BaseException:  # noqa: BLE001 - whatever it is, it must not run on in the parent's code
        traceback.print_exc()
    finally:
        os._exit(code)


class _Processes(ScheduledProcesses):
    """The machine's, of which one says that it lives in another pid namespace: nobody can look at it there."""

    namespace: str | None = None

    def own(self) -> ProcessIdentity:
        own = super().own()
        return own if self.namespace is None else replace(own, pid_namespace=self.namespace)


def _run(world: World, life: Life, tell: int) -> int:
    def say(point: Point, step: Step) -> None:
        os.write(tell, f"{point} {type(step).__name__}\n".encode())

    scheduler = Scheduler(life.policy, tell=say)
    processes = _Processes(scheduler, world.root / "stopped")
    processes.namespace = life.namespace
    if life.fickle is not None:
        _make_gates_fickle(life.fickle)
    if life.restarts:
        threading.Thread(target=_end_when_asked, args=(world,), daemon=True).start()
    clock = FastClock()
    settings, more = world.settings(**life.settings), {"processes": processes, "shared": life.shared}
    with ExitStack() as stack:
        try:
            made = scheduled_app(settings, world.environ, scheduler, clock=clock, **more)
            app = stack.enter_context(made)
            service = Service(app)
            service.start()
        except DatabaseError:  # a person, or a service manager, starts it again
            traceback.print_exc()
            return NOT_STARTED
        life.script(app)
        code = AT_REST if wait_for_rest(world, clock, life.patience_s) else CAME_TO_NO_REST
        if not life.polite:
            os._exit(code)  # as sudden as a kill; there is nothing left to do
        service.stop()
    return code


def _end_when_asked(world: World) -> NoReturn:
    """A deploy of ourselves restarts the service, as a service manager does."""
    never = threading.Event()
    while not (world.root / "restart").exists():
        never.wait(POLL_S / 2)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody is here any more")


def _make_gates_fickle(seed: int) -> None:
    """Every gate answers a seeded coin on each evaluation; three times in a life the answer is no."""
    chance, left = random.Random(seed), [3]

    def fickle(judge: Any) -> Any:
        def judged(seen: Any) -> GateResult:
            result: GateResult = judge(seen)
            if result.passed and left[0] and chance.random() < 0.5:
                left[0] -= 1
                return failed("It has changed its mind.")
            return result

        return judged

    kept: Any = work
    kept.QG_CHECKS = {n: fickle(gate) if n in FICKLE else gate for n, gate in work.QG_CHECKS.items()}


def wait_for_rest(world: World, clock: FastClock, patience_s: float = DEADLINE_S) -> bool:
    """Wait until nothing moves by itself any more."""
    end = clock.boottime() + patience_s * 10
    never = threading.Event()
    calm = 0
    while clock.boottime() < end:
        calm = calm + 1 if at_rest(world) else 0
        if calm == 3:
            return True
        never.wait(POLL_S)
    return False
