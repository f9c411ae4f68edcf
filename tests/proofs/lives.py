"""Lives of one installation: real processes, forked from a parent that has imported everything already.

A life opens the state folder, runs the whole :class:`~orchestrator.main.Service`, lets a person act, and ends at rest,
unless its policy or its parent ends it first. What must hold: the parent has one thread, so that it may fork; a life
never returns into its parent's code.
"""

import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from orchestrator.main import Service
from orchestrator.runtime.clock import SystemClock
from orchestrator.wiring import App
from tests.proofs.outside import ScheduledProcesses, scheduled_app
from tests.proofs.scheduler import Free, Point, Policy, Scheduler, Step
from tests.proofs.world import FastClock, World, at_rest

DEADLINE_S = 60.0  # of a life without a kill; beyond it something hangs
POLL_S = 0.02
AT_REST, CAME_TO_NO_REST, FAILED = 0, 3, 70

Script = Callable[[App], None]


def nothing(_: App) -> None:
    """A person who only looks on."""


class Ending(StrEnum):
    """How a life ended."""

    REST = "rest"
    KILLED = "killed"
    RESTLESS = "restless"
    FAILED = "failed"


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
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lived:
    """How it went; ``told`` are the points at which something was done."""

    ending: Ending
    told: tuple[str, ...]
    seconds: float


def live(world: World, life: Life) -> Lived:
    """Fork a life and wait for its end."""
    began = SystemClock().boottime()
    listen, tell = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(listen)
        _be(world, life, tell)
    os.close(tell)
    try:
        status = _wait(pid, life, began)
        told = os.read(listen, 65536).decode().splitlines()
    finally:
        os.close(listen)
    return Lived(_ending(status), tuple(told), SystemClock().boottime() - began)


def _wait(pid: int, life: Life, began: float) -> int:
    clock = SystemClock()
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    meanwhile = life.meanwhile
    try:
        while True:
            now = clock.boottime() - began
            ends = [DEADLINE_S if life.kill_after is None else life.kill_after]
            if meanwhile is not None:
                ends.append(meanwhile[0])
            if poll.poll(max(0.0, min(ends) - now) * 1000):
                break
            if meanwhile is not None and clock.boottime() - began >= meanwhile[0]:
                meanwhile[1]()
                meanwhile = None
                continue
            os.kill(pid, signal.SIGKILL)
            if life.kill_after is None:
                os.waitpid(pid, 0)
                return CAME_TO_NO_REST << 8
    finally:
        os.close(handle)
    return os.waitpid(pid, 0)[1]


def _ending(status: int) -> Ending:
    if os.WIFSIGNALED(status):
        return Ending.KILLED
    known = {AT_REST: Ending.REST, CAME_TO_NO_REST: Ending.RESTLESS}
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


def _run(world: World, life: Life, tell: int) -> int:
    def say(point: Point, step: Step) -> None:
        os.write(tell, f"{point} {type(step).__name__}\n".encode())

    scheduler = Scheduler(life.policy, tell=say)
    processes = ScheduledProcesses(scheduler, world.root / "stopped")
    clock = FastClock()
    with scheduled_app(
        world.settings(**life.settings), world.environ, scheduler, clock=clock, processes=processes
    ) as app:
        service = Service(app)
        service.start()
        life.script(app)
        code = AT_REST if wait_for_rest(world, clock) else CAME_TO_NO_REST
        if not life.polite:
            os._exit(code)  # as sudden as a kill; there is nothing left to do
        service.stop()
    return code


def wait_for_rest(world: World, clock: FastClock) -> bool:
    """Wait until nothing moves by itself any more."""
    end = clock.boottime() + DEADLINE_S * 10
    never = threading.Event()
    calm = 0
    while clock.boottime() < end:
        calm = calm + 1 if at_rest(world) else 0
        if calm == 3:
            return True
        never.wait(POLL_S)
    return False
