"""What a transition has cancelled is ended in its thread: that job and no other, and also where it has just been
claimed."""

import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from orchestrator.check_runner import Interrupted
from orchestrator.daemons.job_reaper import JobReaper
from orchestrator.daemons.queue_worker import QueueWorker
from orchestrator.db import jobs, tasks
from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.ids import BootId, JobId, RunId, Sha, TaskId
from orchestrator.domain.job import JobKind, JobStatus, RunOutcome, RunResult, Usage
from orchestrator.domain.stage import Stage
from orchestrator.launcher import Flight
from orchestrator.monitor import FREE_STARTS
from orchestrator.observability.telemetry import Telemetry
from orchestrator.runtime.wakeups import Wakeups
from tests.fixtures_db import REPO, Store
from tests.waiting import PATIENCE_S, wait_until

ME, GRACE_S = BootId("me"), 120.0


@dataclass
class Looks:
    """Look until they are told to end."""

    began: list[JobId] = field(default_factory=list)
    ended: list[JobId] = field(default_factory=list)

    def run(self, job: jobs.Job, task: object, config: object, stop: threading.Event) -> None:
        self.began.append(job.id)
        assert stop.wait(PATIENCE_S)
        self.ended.append(job.id)
        raise Interrupted


class Runs:
    """One run, which goes on until it is told to end."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.looked_at = threading.Event()

    def has_ended(self, flight: object) -> bool:
        return False

    def keep(self, flight: object, kept_at: float | None) -> float:
        self.looked_at.set()
        return 0.0

    def wait(self, flight: object, stop: threading.Event) -> RunResult | None:
        wait_until(lambda: stop.is_set() or self.told.is_set())
        return RunResult(RunOutcome.KILLED, None, Usage()) if self.told.is_set() else None

    def stop_job(self, job_id: JobId, reason: str) -> bool:
        return False

    def end(self, flight: object, reason: str) -> None:
        self.told.set()


class Anything:
    """Answers no to whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class Bench:
    """A worker with room for two looks."""

    def __init__(self, store: Store) -> None:
        self.store, self.wakeups, self.looks, self.runs = store, Wakeups(), Looks(), Runs()
        nobody, runs = cast(Any, Anything()), cast(Any, self.runs)
        self.worker = QueueWorker(
            store.database, nobody, runs, nobody, cast(Any, self.looks), nobody, boot_id=ME, max_agents=1,
            max_checks=2, interval_s=1.0, clock=store.clock, wakeups=self.wakeups, telemetry=Telemetry(),
            open_repositories=lambda: frozenset({REPO}),
        )  # fmt: skip
        self.reaper = JobReaper(
            store.database, runs, self.worker, nobody, boot_id=ME, clock=store.clock, interval_s=1.0,
            finalize_grace_s=GRACE_S, max_running_s=3600.0, wakeups=self.wakeups,
        )  # fmt: skip
        task = store.new_task(stage=Stage.DEVELOPMENT)
        with store.database.write() as tx:
            tasks.set_branch(tx, task.id, "orch/smp-1", Sha("b" * 40))
        self.task: TaskId = task.id

    def queue(self) -> JobId:
        with self.store.database.write() as tx:
            return jobs.enqueue(tx, tasks.get(tx, self.task), jobs.NewJob(JobKind.CI))

    def cancel(self) -> list[JobId]:
        with self.store.database.write() as tx:
            return jobs.cancel_active(tx, self.task, "it moved")


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store)


def test_the_cancelled_job_is_ended_and_not_what_the_task_began_since(bench: Bench) -> None:
    first = bench.queue()
    assert bench.worker.run_once() == {"started": 1}
    wait_until(lambda: bench.looks.began == [first])
    assert bench.cancel() == [first]
    second = bench.queue()
    assert bench.worker.run_once() == {"started": 1}
    wait_until(lambda: bench.looks.began == [first, second])

    bench.wakeups.stop(first)
    wait_until(lambda: not bench.worker.handles(first))
    assert bench.looks.ended == [first]
    assert bench.worker.handles(second)
    bench.worker.stop()
    assert bench.worker.join(PATIENCE_S)


def test_what_is_cancelled_before_its_thread_can_be_told_does_not_begin(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = bench.wakeups.register_stop

    def late(job_id: int, stop: Any) -> None:
        assert bench.cancel() == [job_id]
        bench.wakeups.stop(job_id)  # nobody is known yet who could be told
        register(job_id, stop)

    monkeypatch.setattr(bench.wakeups, "register_stop", late)
    job = bench.queue()
    assert bench.worker.run_once() == {"started": 1}
    wait_until(lambda: not bench.worker.handles(job))
    assert bench.looks.began == []


def test_a_run_whose_job_is_cancelled_before_it_is_watched_again_is_ended(bench: Bench) -> None:
    job_id = bench.queue()
    with bench.store.database.write() as tx:
        job = jobs.claim_next_job(tx, ME, agents=True, checks=True)
    assert job is not None
    assert bench.cancel() == [job_id]
    bench.wakeups.stop(job_id)  # nobody is known yet who could be told
    bench.worker.resume(job, cast(Any, None), Flight(RunId(1), job, cast(Any, None)))
    wait_until(bench.runs.told.is_set)
    wait_until(lambda: not bench.worker.handles(job_id))


def test_a_check_whose_cancel_was_not_heard_is_ended_by_the_reaper(bench: Bench) -> None:
    """Another service has cancelled it, and its word was lost on the way."""
    first = bench.queue()
    assert bench.worker.run_once() == {"started": 1}
    wait_until(lambda: bench.looks.began == [first])
    bench.reaper.run_once()
    assert bench.worker.handles(first)
    assert bench.cancel() == [first]
    second = bench.queue()
    assert bench.worker.run_once() == {"started": 1}
    bench.reaper.run_once()
    wait_until(lambda: not bench.worker.handles(first))
    assert bench.looks.ended == [first]
    assert bench.worker.handles(second)
    bench.worker.stop()
    assert bench.worker.join(PATIENCE_S)


@pytest.mark.parametrize("then", ["nothing", "adopted", "cancelled", "claimed anew"])
def test_an_agent_whose_cancel_was_not_heard_is_ended_by_the_reaper(bench: Bench, then: str) -> None:
    """Where another process has adopted it, it is watched there: one and the same run."""
    job_id = bench.queue()
    with bench.store.database.write() as tx:
        job = jobs.claim_next_job(tx, ME)
    assert job is not None
    bench.worker.resume(job, cast(Any, None), Flight(RunId(1), job, cast(Any, None)))
    assert bench.runs.looked_at.wait(PATIENCE_S)  # from here on the watch asks no more whether it is wanted
    with bench.store.database.write() as tx:
        if then == "adopted":
            assert jobs.adopt(tx, job, BootId("another"))
        elif then == "cancelled":
            assert jobs.cancel_active(tx, bench.task, "it moved") == [job_id]
        elif then == "claimed anew":
            assert jobs.reap_running_job(tx, job, "its owner died") is JobStatus.QUEUED
            assert jobs.claim_next_job(tx, BootId("another")) is not None
    bench.reaper.run_once()
    ended = then in ("cancelled", "claimed anew")
    if ended:
        wait_until(lambda: not bench.worker.handles(job_id))
    assert bench.runs.told.is_set() is ended
    bench.worker.stop()
    assert bench.worker.join(PATIENCE_S)


@pytest.mark.parametrize("at", ["conclude", "wait"])
def test_a_run_whose_end_cannot_be_stored_is_left_to_whoever_looks_next(store: Store, at: str) -> None:
    """It is paid for: neither given back nor failed, be the database there again a moment later (law 8)."""
    asked: list[str] = []

    class Noted(Anything):
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return super().__getattr__(name)

        def advance_stage(self, *args: object) -> None:
            """A look does no harm."""

    class Away(Anything):
        def __getattr__(self, name: str) -> Any:
            if name == at:
                return self._fail
            return lambda *args, **kwargs: RunResult(RunOutcome.DONE, 0, Usage())

        def start(self, job: jobs.Job, task: object, config: object) -> Flight:
            return Flight(RunId(1), job, cast(Any, None))

        def _fail(self, *args: object) -> None:
            raise DatabaseError("The server closed the connection.")

    bench = Bench(store)
    away = cast(Any, Away())
    worker = QueueWorker(
        store.database, cast(Any, Noted()), away, away, cast(Any, None), cast(Any, Anything()), boot_id=ME,
        max_agents=1, max_checks=0, interval_s=1.0, clock=store.clock, wakeups=Wakeups(), telemetry=Telemetry(),
        open_repositories=lambda: frozenset({REPO}),
    )  # fmt: skip
    with store.database.write() as tx:
        job = jobs.enqueue(tx, tasks.get(tx, bench.task), jobs.NewJob(JobKind.DEVELOPER))
    assert worker.run_once() == {"started": 1}
    wait_until(lambda: not worker.handles(job))
    assert [name for name in asked if name != "advance_stage"] == []
    with store.database.read() as tx:
        assert jobs.get(tx, job).status is JobStatus.RUNNING


@pytest.mark.parametrize("kind", [JobKind.CI, JobKind.DEVELOPER])
def test_a_database_that_is_away_for_a_moment_fails_no_job(store: Store, kind: JobKind) -> None:
    """A check that has passed, or an agent that could not be recorded, is begun anew; at its last attempt, too."""
    said: list[JobStatus] = []

    class Engine(Anything):
        def finish_job(self, job: jobs.Job, status: JobStatus, **how: object) -> bool:
            said.append(status)
            if status is JobStatus.DONE:
                raise DatabaseError("The server closed the connection.")
            return True

    class Away(Anything):
        def start(self, *args: object) -> Flight:
            raise DatabaseError("The server closed the connection.")

    bench, nobody = Bench(store), cast(Any, Anything())
    worker = QueueWorker(
        store.database, cast(Any, Engine()), cast(Any, Away()), nobody, nobody, nobody, boot_id=ME, max_agents=1,
        max_checks=1, interval_s=1.0, clock=store.clock, wakeups=Wakeups(), telemetry=Telemetry(),
        open_repositories=lambda: frozenset({REPO}),
    )  # fmt: skip
    reaper = JobReaper(
        store.database, nobody, worker, nobody, boot_id=ME, clock=store.clock, interval_s=1.0,
        finalize_grace_s=GRACE_S, max_running_s=3600.0, wakeups=Wakeups(),
    )  # fmt: skip
    with store.database.write() as tx:
        job = jobs.enqueue(tx, tasks.get(tx, bench.task), jobs.NewJob(kind, max_attempts=1))
    assert worker.run_once() == {"started": 1}
    wait_until(lambda: not worker.handles(job))
    assert said == ([JobStatus.DONE] if kind is JobKind.CI else [])
    reaper.run_once()
    store.clock.advance(GRACE_S + 1)
    assert reaper.run_once()["not_finalised"] == 1
    with store.database.read() as tx:
        found = jobs.get(tx, job)
    assert (found.status, found.attempts) == (JobStatus.QUEUED, 0)


def test_a_job_that_is_always_left_ends_all_the_same(store: Store) -> None:
    """It might be what keeps its end from being stored."""
    bench = Bench(store)
    with store.database.write() as tx:
        job = jobs.enqueue(tx, tasks.get(tx, bench.task), jobs.NewJob(JobKind.CI, max_attempts=1))
    for claim in range(1, FREE_STARTS + 2):
        with store.database.write() as tx:
            assert jobs.claim_next_job(tx, ME) is not None
        bench.reaper.run_once()
        store.clock.advance(GRACE_S + 1)
        assert bench.reaper.run_once()["not_finalised"] == 1
        with store.database.read() as tx:
            status = jobs.get(tx, job).status
        assert status is (JobStatus.QUEUED if claim <= FREE_STARTS else JobStatus.FAILED)
