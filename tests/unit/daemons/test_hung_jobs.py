"""A thread that hangs at a job, whatever it is told, loses the job at the backstop, and its place is free again."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from orchestrator.daemons.job_reaper import JobReaper
from orchestrator.daemons.queue_worker import QueueWorker
from orchestrator.db import jobs, tasks
from orchestrator.domain.ids import BootId, Sha
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.observability.telemetry import Telemetry
from orchestrator.runtime.wakeups import Wakeups
from tests.fixtures_db import REPO, Store
from tests.waiting import wait_until

ME, BACKSTOP_S, GRACE_S = BootId("me"), 3600.0, 120.0


class Nobody:
    """Does nothing, whatever it is asked for, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def do(*args: object, **kwargs: object) -> None:
            self.asked.append(name)

        return do


class HangingChecks:
    """Hear of nothing until they are let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.began: list[int] = []

    def run(self, job: jobs.Job, task: object, config: object, stop: threading.Event) -> None:
        self.began.append(job.id)
        assert self.go_on.wait(60)


@pytest.fixture
def checks() -> Iterator[HangingChecks]:
    made = HangingChecks()
    yield made
    made.go_on.set()


def test_the_only_place_for_checks_is_freed(store: Store, checks: HangingChecks) -> None:
    wakeups, engine = Wakeups(), Nobody()
    worker = QueueWorker(
        store.database, cast(Any, engine), cast(Any, Nobody()), cast(Any, Nobody()), cast(Any, checks),
        cast(Any, Nobody()), boot_id=ME, max_agents=1, max_checks=1, interval_s=1.0, clock=store.clock,
        wakeups=wakeups, telemetry=Telemetry(), open_repositories=lambda: frozenset({REPO}),
    )  # fmt: skip
    reaper = JobReaper(
        store.database, cast(Any, Nobody()), worker, cast(Any, Nobody()), boot_id=ME, clock=store.clock,
        interval_s=1.0, finalize_grace_s=GRACE_S, max_running_s=BACKSTOP_S, wakeups=wakeups,
    )  # fmt: skip
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        tasks.set_branch(tx, task.id, "orch/smp-1", Sha("b" * 40))
        jobs.enqueue(tx, tasks.get(tx, task.id), jobs.NewJob(JobKind.CI))
    assert worker.run_once() == {"started": 1}
    wait_until(lambda: len(checks.began) == 1)

    store.clock.advance(BACKSTOP_S + 1)
    assert reaper.run_once()["backstop"] == 1  # told to end; a living thread would
    assert worker.run_once() == {"started": 0}
    store.clock.advance(GRACE_S + 1)
    assert reaper.run_once()["backstop"] == 1  # it was told long enough ago
    assert worker.snapshot()["checks"] == 0
    assert worker.run_once() == {"started": 1}
    wait_until(lambda: len(checks.began) == 2)

    checks.go_on.set()  # both go on; of the first one nothing counts but that it has ended
    wait_until(lambda: worker.snapshot()["checks"] == 0)
    assert worker.join(20)


def test_what_a_version_without_lanes_has_queued_is_claimed(store: Store, checks: HangingChecks) -> None:
    """That version was finishing its work while this one brought the lanes; nobody else would take it."""
    worker = QueueWorker(
        store.database, cast(Any, Nobody()), cast(Any, Nobody()), cast(Any, Nobody()), cast(Any, checks),
        cast(Any, Nobody()), boot_id=ME, max_agents=1, max_checks=1, interval_s=1.0, clock=store.clock,
        wakeups=Wakeups(), telemetry=Telemetry(), open_repositories=lambda: frozenset({REPO}),
    )  # fmt: skip
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        tasks.set_branch(tx, task.id, "orch/smp-1", Sha("b" * 40))
        jobs.enqueue(tx, tasks.get(tx, task.id), jobs.NewJob(JobKind.CI))
    store.raw("UPDATE jobs SET lane = NULL")
    assert worker.run_once() == {"started": 1}
    checks.go_on.set()
    assert worker.join(20)
