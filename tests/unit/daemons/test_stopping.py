"""A stop is heard at whatever moment it comes; unheard, the end of the service takes all the time it has."""

import threading
from typing import Any, cast

from orchestrator.daemons.daemon import Loop
from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.observability.telemetry import Telemetry
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.wakeups import Wakeups
from tests.waiting import PATIENCE_S, wait_until

SOON_S = 20.0


class Idle:
    """Nothing to do, for an hour."""

    name = "idle"
    interval_s = 3600.0

    def run_once(self) -> dict[str, int]:
        return {}


def test_a_loop_that_is_stopped_right_before_it_looks_at_its_wake() -> None:
    class Late(threading.Event):
        def clear(self) -> None:
            loop.stop()
            super().clear()

    loop = Loop(Idle(), clock=SystemClock(), entropy=SystemEntropy(), telemetry=Telemetry(), wake=Late())
    loop.start()
    assert loop.join(SOON_S)


def test_a_driver_of_which_one_thread_has_not_yet_begun_to_wait() -> None:
    there, go = threading.Event(), threading.Event()

    class Slow(SystemClock):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            if threading.current_thread().name == "orch-driver-1":
                there.set()
                assert go.wait(PATIENCE_S)
            return super().wait(event, seconds)

    driver = TaskDriver(cast(Any, None), threads=2, clock=Slow(), entropy=SystemEntropy(), wakeups=Wakeups())
    driver.start()
    assert there.wait(PATIENCE_S)
    driver.stop()
    wait_until(lambda: "orch-driver-0" not in [thread.name for thread in threading.enumerate()])
    go.set()
    assert driver.join(SOON_S)
