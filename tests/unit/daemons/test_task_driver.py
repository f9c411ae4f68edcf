"""The driver: each look is on behalf of whoever asked for it, and stays so until it has come to an end."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import Actor
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.wakeups import Wakeups
from orchestrator.stage_engine.situation import Outcome
from tests.waiting import wait_until

TASK, OTHER = TaskId(1), TaskId(2)


@dataclass
class Engine:
    """Writes down who comes; each look ends as it is told, and waits for ``go_on`` before."""

    ends: list[Outcome] = field(default_factory=list)
    looks: list[tuple[TaskId, str]] = field(default_factory=list)
    settled: list[TaskId] = field(default_factory=list)  # looks that were to be no more than that
    go_on: threading.Event = field(default_factory=threading.Event)

    def look(self, task_id: TaskId, owner: Actor) -> Outcome:
        self.looks.append((task_id, owner.value))
        self.settled.append(task_id)
        return Outcome.MOVED

    def advance_if_gate_passed(self, task_id: TaskId) -> Outcome:
        return self.advance_stage(task_id, Actor.RECONCILER)

    def advance_stage(self, task_id: TaskId, owner: Actor) -> Outcome:
        self.looks.append((task_id, owner.value))
        assert self.go_on.wait(60)
        return self.ends.pop(0) if self.ends else Outcome.HELD


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def driver(engine: Engine) -> Iterator[TaskDriver]:
    made = TaskDriver(
        engine,  # type: ignore[arg-type]
        threads=1,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        wakeups=Wakeups(),
    )
    yield made
    engine.go_on.set()
    made.stop()
    made.join(60)


def test_the_net_does_not_hide_who_asked(driver: TaskDriver, engine: Engine) -> None:
    engine.go_on.set()
    driver.wake([TASK])
    driver.wake([TASK], Actor.RECOVERY)
    driver.wake([TASK, OTHER])
    driver.start()
    wait_until(lambda: len(engine.looks) == 2)
    assert sorted(engine.looks) == [(TASK, "recovery"), (OTHER, "reconciler")]


def test_a_look_that_is_repeated_stays_its_owners(driver: TaskDriver, engine: Engine) -> None:
    engine.ends = [Outcome.DEFERRED, Outcome.RETRY]
    engine.go_on.set()
    driver.start()
    driver.wake([TASK], Actor.REAPER)
    wait_until(lambda: len(engine.looks) == 3)
    driver.wake([TASK])
    wait_until(lambda: len(engine.looks) == 4)
    assert [owner for _, owner in engine.looks] == ["reaper", "reaper", "reaper", "reconciler"]


def test_who_comes_meanwhile_is_next(driver: TaskDriver, engine: Engine) -> None:
    driver.start()
    driver.wake([TASK], Actor.MONITOR)
    wait_until(lambda: engine.looks)
    driver.wake([TASK], Actor.WEBHOOK)
    engine.go_on.set()
    wait_until(lambda: len(engine.looks) == 2)
    assert [owner for _, owner in engine.looks] == ["monitor", "webhook"]


def test_what_is_unsettled_is_settled_everywhere_before_anything_is_driven_on(
    driver: TaskDriver, engine: Engine
) -> None:
    engine.go_on.set()
    driver.settle([TASK, OTHER], Actor.RECOVERY)
    driver.start()
    wait_until(lambda: len(engine.looks) == 4)
    assert [task for task, _ in engine.looks] == [TASK, OTHER, TASK, OTHER]
    assert engine.settled == [TASK, OTHER]
    assert {owner for _, owner in engine.looks} == {"recovery"}
