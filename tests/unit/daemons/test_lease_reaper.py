"""A hung thread loses its task at the backstop, and another one does what it did not."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from orchestrator.daemons.lease_reaper import LeaseReaper
from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import Actor
from orchestrator.domain.scope import Scope
from orchestrator.domain.stage import Stage
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.wakeups import Wakeups
from orchestrator.stage_engine.situation import Outcome
from orchestrator.transition_lease import Ownership
from tests.fixtures_db import Store
from tests.fixtures_ownership import ownership, plant, register
from tests.waiting import wait_until

BACKSTOP_S = 3600.0


@dataclass
class HangingEngine:
    """Hangs in its first look at each task, under the lease, until it is let go."""

    ownership: Ownership
    go_on: threading.Event = field(default_factory=threading.Event)
    looks: list[tuple[TaskId, str]] = field(default_factory=list)

    def advance_if_gate_passed(self, task_id: TaskId) -> Outcome:
        return self.advance_stage(task_id, Actor.RECONCILER)

    def advance_stage(self, task_id: TaskId, owner: Actor) -> Outcome:
        with self.ownership.transition(task_id, owner) as lease:
            if lease is None:
                return Outcome.DEFERRED
            first = (task_id, "hangs") not in self.looks
            self.looks.append((task_id, "hangs" if first else "goes through"))
            if first:
                assert self.go_on.wait(60)
            return Outcome.WORKING


@dataclass
class Line:
    engine: HangingEngine
    driver: TaskDriver
    reaper: LeaseReaper

    def went_through(self, task_id: TaskId) -> bool:
        return (task_id, "goes through") in self.engine.looks


@pytest.fixture
def line(store: Store) -> Iterator[Line]:
    wakeups, owner = Wakeups(), ownership(store)
    engine = HangingEngine(owner)
    driver = TaskDriver(
        cast(Any, engine), threads=1, clock=SystemClock(), entropy=SystemEntropy(), wakeups=wakeups
    )
    wakeups.on_tasks(driver.wake)
    driver.start()
    yield Line(
        engine,
        driver,
        LeaseReaper(owner, driver, interval_s=1.0, max_held_s=BACKSTOP_S, wakeups=wakeups),
    )
    engine.go_on.set()
    driver.stop()
    assert driver.join(20)


def test_the_only_thread_hangs_and_the_queue_goes_on(store: Store, line: Line) -> None:
    hung, waiting = store.new_task(), store.new_task()
    line.driver.wake([hung.id])
    wait_until(lambda: line.engine.looks == [(hung.id, "hangs")])
    assert line.reaper.run_once() == {"stale": 0, "forced": 0}
    store.clock.advance(BACKSTOP_S + 1)
    line.engine.looks.append((waiting.id, "hangs"))  # it will not
    line.driver.wake([waiting.id])
    assert line.reaper.run_once() == {"stale": 0, "forced": 1}
    wait_until(lambda: line.went_through(hung.id) and line.went_through(waiting.id))
    wait_until(lambda: line.driver.snapshot() == {"busy": 0, "due": 0})

    before = store.epoch(hung.id)
    line.engine.go_on.set()  # the hung thread wakes up, changes nothing and ends
    wait_until(lambda: sum(t.name.startswith("orch-driver") for t in threading.enumerate()) == 1)
    assert store.epoch(hung.id) == before
    assert line.driver.snapshot() == {"busy": 0, "due": 0}


def test_the_task_of_a_dead_owner_is_looked_at(store: Store, line: Line) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    register(store, start_ticks=1)
    plant(store, task)
    line.engine.looks.append((task.id, "hangs"))
    assert line.reaper.run_once() == {"stale": 1, "forced": 0}
    wait_until(lambda: line.went_through(task.id))


def reaper_elsewhere(owner: Ownership) -> LeaseReaper:
    """One that looks after another repository only."""
    driver = TaskDriver(
        cast(Any, None), threads=0, clock=SystemClock(), entropy=SystemEntropy(), wakeups=Wakeups()
    )
    return LeaseReaper(
        owner,
        driver,
        interval_s=1.0,
        max_held_s=BACKSTOP_S,
        wakeups=Wakeups(),
        scope=Scope(repos=frozenset({"another"})),
    )


def test_out_of_its_scope_a_dead_owner_is_replaced_by_whoever_wants_the_task(store: Store) -> None:
    """Law 6 is ownership's, not the reaper's pass."""
    task, ends = store.new_task(stage=Stage.DEVELOPMENT), store.new_task(stage=Stage.DEVELOPMENT)
    register(store, start_ticks=1)
    plant(store, task)
    plant(store, ends)
    mine = ownership(store)
    assert reaper_elsewhere(mine).run_once() == {"stale": 0, "forced": 0}
    with mine.transition(task.id, Actor.RECONCILER) as lease:
        assert lease is not None
    assert [taken.task_id for taken in mine.reclaim(Actor.RECOVERY, BACKSTOP_S)] == [ends.id]


def test_out_of_its_scope_what_hangs_waits_for_a_person(store: Store) -> None:
    """Of this process too, and where there is no row because leases are switched off."""
    task = store.new_task(stage=Stage.DEVELOPMENT)
    for scope in (Scope(), Scope(enabled=False)):
        mine = ownership(store, scope=scope)
        with mine.transition(task.id, Actor.MONITOR) as lease:
            assert lease is not None
            store.clock.advance(BACKSTOP_S + 1)
            assert reaper_elsewhere(mine).run_once() == {"stale": 0, "forced": 0}
            assert mine.release_by_person(task.id, person="ann", reason="it hangs") is not None


def test_the_lease_of_no_task_is_out_of_nobodys_scope(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    register(store, start_ticks=1)
    plant(store, task)
    store.raw("UPDATE transition_lease SET task_id = 4711")
    assert reaper_elsewhere(ownership(store)).run_once() == {"stale": 1, "forced": 0}
