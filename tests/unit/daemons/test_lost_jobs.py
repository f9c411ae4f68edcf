"""Jobs of processes that have ended: taken one by one, and only while anything may be taken over (laws 6, 12)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.daemons.job_reaper import JobReaper
from orchestrator.daemons.lost_jobs import Found, LostJobs
from orchestrator.daemons.recovery import Recovery
from orchestrator.db import events, homes, jobs, leases, tasks
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import SHARED_HOME, BootId, Home, JobId, RunId
from orchestrator.domain.job import AgentRun, Job, JobKind, JobStatus, RunOutcome, RunResult, Usage
from orchestrator.domain.lease import Actor
from orchestrator.domain.scope import Scope
from orchestrator.domain.stage import Stage
from orchestrator.observability.telemetry import Telemetry
from orchestrator.ownership.judge import Judge
from orchestrator.ownership.term import Term
from orchestrator.places import Folders
from orchestrator.runtime.process import ProcessIdentity, SystemProcesses
from orchestrator.runtime.wakeups import Wakeups
from tests.fixtures_db import Store
from tests.fixtures_ownership import ME, OTHER, TTL_S, Logged, ownership, register

BACKSTOP_S = 3600.0
AWAY = Home("a-worker-s")
GONE = 1  # start ticks that no process has


@dataclass
class Hands:
    """The launcher and the worker of the process: what they were asked for."""

    broken: set[RunId] = field(default_factory=set)
    adopted: list[JobId] = field(default_factory=list)
    watched: list[JobId] = field(default_factory=list)

    def adopt(self, job: Job, run: AgentRun) -> object:
        self.adopted.append(job.id)
        if run.id in self.broken:
            raise OutsideError("The run folder cannot be used: No space left on device.")
        return run

    def resume_run(self, job: Job, run: AgentRun) -> None:
        self.resume(job, run, self.adopt(job, run))

    def resume(self, job: Job, run: AgentRun, flight: object) -> None:
        self.watched.append(job.id)

    def at_work(self) -> dict[int, int]:
        return {}

    def running_for(self, job_id: int) -> float | None:
        return 0.0 if job_id in self.watched else None


class Noting(SystemProcesses):
    """Does something whenever it is asked for a process."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], object] = lambda: None

    def liveness(self, identity: ProcessIdentity) -> Any:
        found = super().liveness(identity)
        self.then()
        return found


class OneByOne(LostJobs):
    """Notes which jobs were looked at by themselves."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.asked: list[JobId] = []

    def take_over(self, job: Job, actor: Actor) -> Found:
        self.asked.append(job.id)
        return super().take_over(job, actor)


@dataclass
class Shop:
    """One process that finds what others have left."""

    store: Store
    home: Path
    hands: Hands = field(default_factory=Hands)
    processes: Noting = field(default_factory=Noting)
    scope: Scope = field(default_factory=Scope)  # of the reaper
    lies: Home = SHARED_HOME  # whose state folder it has

    def __post_init__(self) -> None:
        store, nobody = (
            self.store,
            SimpleNamespace(wake=lambda ids, owner: None, settle=lambda ids, owner: None),
        )
        self.home.mkdir()
        self.term = Term(store.clock, TTL_S)
        owner = ownership(store, term=self.term, processes=self.processes)
        self.term.renew(store.clock.boottime(), store.clock.utc())
        judge: Judge = owner.judge
        hands = cast(Any, self.hands)
        self.lost = lost = OneByOne(
            store.database, hands, hands, boot_id=ME, judge=judge, process_ttl_s=TTL_S, max_running_s=BACKSTOP_S,
            clock=store.clock, telemetry=Telemetry(), home=self.lies,
        )  # fmt: skip
        self.reaper = JobReaper(
            store.database, hands, hands, lost, boot_id=ME, clock=store.clock, interval_s=1.0,
            finalize_grace_s=120.0, max_running_s=BACKSTOP_S, wakeups=Wakeups(), scope=self.scope,
        )  # fmt: skip
        self.recovery = Recovery(
            store.database, lost, cast(Any, nobody), Folders(self.home, ME), owner, boot_id=ME, judge=judge,
            process_ttl_s=TTL_S, max_held_s=3600.0, clock=store.clock,
        )  # fmt: skip

    def left(
        self,
        kind: JobKind = JobKind.ANALYST,
        *,
        run: bool = True,
        by: BootId = OTHER,
        home: Home = SHARED_HOME,
    ) -> Job:
        """A job that somebody has claimed, with a run where it got so far."""
        task = self.store.new_task(stage=Stage.ANALYSIS)
        with self.store.database.write() as tx:
            job_id = jobs.enqueue(tx, tasks.get(tx, task.id), jobs.NewJob(kind))
            job = jobs.claim_next_job(tx, by, home=home)
            assert job is not None and job.id == job_id
            if run:
                jobs.add_run(
                    tx, job, agent="command", model=None, run_dir=str(self.home / f"run-{job.id}"), home=home
                )
        return job

    def job(self, job: Job) -> Job:
        with self.store.database.read() as tx:
            return jobs.get(tx, job.id)

    def owner(self, job: Job) -> BootId | None:
        return self.job(job).claimed_by

    def drift_apart(self) -> None:
        """Somebody sets the calendar, by which the heartbeats of others are judged."""
        self.store.clock.set_utc(self.store.clock.utc() + timedelta(hours=1))

    def beat(self) -> None:
        """A heartbeat of our own."""
        self.term.renew(self.store.clock.boottime())


@pytest.fixture
def shop(store: Store, tmp_path: Path) -> Shop:
    register(store, start_ticks=GONE)
    return Shop(store, tmp_path / "state")


def test_the_reapers_scope_keeps_no_job_from_recovery(store: Store, tmp_path: Path) -> None:
    """S-21: what its passes leave alone, the next start finds."""
    register(store, start_ticks=GONE)
    shop = Shop(store, tmp_path / "state", scope=Scope(repos=frozenset({"another"})))
    job = shop.left()
    assert shop.reaper.run_once() == {"dead_owner": 0, "not_finalised": 0, "backstop": 0}
    assert shop.owner(job) == OTHER
    skipped = shop.reaper.snapshot()["skipped"]
    assert isinstance(skipped, dict) and skipped["out_of_scope"] == 1
    assert shop.recovery.recover_on_startup()["adopted"] == 1
    assert shop.owner(job) == ME


def test_one_bad_run_folder_holds_up_no_other_job(shop: Shop, logged: Logged) -> None:
    bad, good, check = shop.left(), shop.left(), shop.left(JobKind.CI, run=False)
    shop.hands.broken = {RunId(1)}
    assert shop.reaper.run_once()["dead_owner"] == 2
    assert shop.hands.watched == [good.id]
    assert shop.job(check).status is JobStatus.QUEUED
    [told] = [entry for entry in logged if "not judged" in entry["event"]]
    assert (told["log_level"], told["task"], told["job"]) == ("warning", "SMP-1", bad.id)
    assert any("No space left" in str(entry.get("reason")) for entry in logged)
    assert cast(Any, shop.reaper.snapshot())["skipped"]["not_judged"] == 1

    shop.hands.broken = set()  # it was claimed all the same: the second tier goes on with it
    shop.store.clock.advance(1)
    shop.reaper.run_once()
    shop.store.clock.advance(121)
    assert shop.reaper.run_once()["not_finalised"] == 1
    assert shop.hands.watched == [good.id, bad.id]


def test_a_fault_of_ours_in_one_job_holds_up_no_other(shop: Shop) -> None:
    bad, good = shop.left(), shop.left()
    shop.hands.adopt = lambda job, run: 1 / 0 if job.id == bad.id else run  # type: ignore[method-assign]
    assert shop.reaper.run_once()["dead_owner"] == 1
    assert shop.hands.watched == [good.id]


def test_nothing_is_taken_over_while_the_clocks_drift_apart(shop: Shop) -> None:
    run, check = shop.left(), shop.left(JobKind.CI, run=False)
    shop.drift_apart()
    shop.beat()
    assert shop.reaper.run_once()["dead_owner"] == 0
    assert shop.recovery.requeue_running_jobs() == 0
    assert shop.recovery.recover_on_startup()["owner_may_live"] == 2
    assert (shop.owner(run), shop.owner(check), shop.hands.adopted) == (OTHER, OTHER, [])

    shop.store.clock.advance(TTL_S + 1)
    shop.beat()
    assert shop.reaper.run_once()["dead_owner"] == 2


def test_who_does_not_trust_itself_takes_nothing_over(shop: Shop) -> None:
    """A process whose own term has ended may have been taken for dead: it acts no more until it has said that it
    lives."""
    run, check = shop.left(), shop.left(JobKind.CI, run=False)
    shop.store.clock.advance(TTL_S)
    assert shop.reaper.run_once()["dead_owner"] == 0
    assert shop.recovery.requeue_running_jobs() == 0
    assert shop.recovery.recover_on_startup()["owner_may_live"] == 2
    assert (shop.owner(run), shop.owner(check), shop.hands.adopted) == (OTHER, OTHER, [])

    shop.beat()
    assert shop.recovery.requeue_running_jobs() == 1
    assert shop.recovery.recover_on_startup()["adopted"] == 1
    assert shop.hands.watched == [run.id]


def test_a_living_owner_that_is_silent_keeps_its_jobs(shop: Shop) -> None:
    """Its life can be proved: it is slow, and not gone."""
    register(shop.store, BootId("slow"))
    job = shop.left(by=BootId("slow"))
    shop.store.clock.advance(TTL_S * 3)
    shop.beat()
    assert shop.reaper.run_once()["dead_owner"] == 0
    assert shop.owner(job) == "slow"


@pytest.mark.parametrize("beats", [True, False])
def test_a_living_owner_that_hangs_as_a_whole_loses_its_jobs_at_the_backstop(shop: Shop, beats: bool) -> None:
    """One that shows life has a reaper of its own for that."""
    register(shop.store, BootId("hung"))
    job = shop.left(by=BootId("hung"))
    shop.store.clock.advance(BACKSTOP_S + 1)
    if beats:
        with shop.store.database.write() as tx:
            leases.heartbeat(tx, BootId("hung"))
    shop.beat()
    assert shop.reaper.run_once()["dead_owner"] == (0 if beats else 1)
    assert shop.owner(job) == ("hung" if beats else ME)


@pytest.mark.parametrize("run", [True, False])
def test_an_owner_that_was_heard_of_since_it_was_judged_keeps_its_jobs(shop: Shop, run: bool) -> None:
    job = shop.left(JobKind.ANALYST if run else JobKind.CI, run=run)

    def heard() -> None:
        shop.store.clock.advance(1)
        with shop.store.database.write() as tx:
            leases.heartbeat(tx, OTHER)

    shop.processes.then = heard
    assert shop.reaper.run_once()["dead_owner"] == 0
    assert (shop.owner(job), shop.hands.adopted) == (OTHER, [])


def test_an_owner_that_has_started_its_agent_since_it_was_judged_keeps_it(shop: Shop) -> None:
    """It was taken for dead while the database was out of its reach, and went on before it could say that it lives."""
    job = shop.left(run=False)

    def goes_on() -> None:
        shop.processes.then = lambda: None
        with shop.store.database.write() as tx:
            assert jobs.still_claimed(tx, job)
            jobs.add_run(tx, job, agent="command", model=None, run_dir=str(shop.home / "run"))

    shop.processes.then = goes_on
    assert shop.reaper.run_once()["dead_owner"] == 0
    assert (shop.job(job).status, shop.owner(job), shop.hands.watched) == (JobStatus.RUNNING, OTHER, [])
    assert shop.reaper.run_once()["dead_owner"] == 1
    assert (shop.owner(job), shop.hands.watched) == (ME, [job.id])  # the one run there is


def test_two_that_find_a_job_act_once(shop: Shop, store: Store) -> None:
    """The job is claimed before its run is touched."""
    job = shop.left()
    shop.processes.then = lambda: store.raw("UPDATE jobs SET claimed_by = 'third'")
    assert shop.reaper.run_once()["dead_owner"] == 0
    assert (shop.owner(job), shop.hands.adopted) == ("third", [])


def test_a_process_that_starts_meanwhile_keeps_its_check(shop: Shop) -> None:
    """It was not on the list yet when recovery asked who lives: what it has claimed since is nobody's leftover."""
    left = shop.left(JobKind.CI, run=False)
    others: list[Job] = []

    def starts() -> None:
        if not others:
            register(shop.store, BootId("new"))
            others.append(shop.left(JobKind.CI, run=False, by=BootId("new")))

    shop.processes.then = starts
    assert shop.recovery.requeue_running_jobs() == 1
    assert shop.job(left).status is JobStatus.QUEUED
    with shop.store.database.read() as tx:
        story = events.of_task(tx, left.task_id)
    [told] = [one for one in story if one.type is EventType.JOB_REQUEUED]
    assert told.data["job"] == JobKind.CI
    assert (shop.owner(others[0]), shop.job(others[0]).status) == ("new", JobStatus.RUNNING)


@pytest.mark.parametrize("silent_s", [899.0, 961.0])
def test_a_run_in_a_workers_home_is_left_to_the_worker_until_nothing_can_run_there(
    shop: Shop, silent_s: float
) -> None:
    """Its folder is not looked at; what it has cost is kept, should the worker come back and say so."""
    with shop.store.database.write() as tx:
        homes.enter(tx, AWAY, host="one", folder="/state", lost_after_s=960.0)
    job = shop.left(home=AWAY)
    assert shop.reaper.run_once()["dead_owner"] == 0
    shop.store.clock.advance(silent_s)
    shop.beat()
    lost = silent_s > 960.0
    assert shop.reaper.run_once()["dead_owner"] == (1 if lost else 0)
    assert shop.hands.adopted == []
    assert shop.job(job).status is (JobStatus.QUEUED if lost else JobStatus.RUNNING)
    late = RunResult(RunOutcome.DONE, 0, Usage(7))
    with shop.store.database.write() as tx:
        assert jobs.finish_run(tx, RunId(1), late)
        assert not jobs.finish_run(tx, RunId(1), late)
        assert jobs.spent(tx, job.task_id).input_tokens == 7
        assert jobs.finish(tx, job, OTHER, JobStatus.DONE) is not lost


def test_a_worker_adopts_the_runs_of_its_own_home_alone(store: Store, tmp_path: Path) -> None:
    register(store, start_ticks=GONE)
    shop = Shop(store, tmp_path / "state", lies=AWAY)
    own, others = shop.left(home=AWAY), shop.left()
    agent, check = shop.left(run=False), shop.left(JobKind.CI, run=False)
    found = shop.recovery.adopt()
    assert (found["adopted"], found["requeued"], found["owner_may_live"]) == (1, 1, 2)
    assert shop.hands.watched == [own.id]
    assert (shop.owner(others), shop.owner(check)) == (OTHER, OTHER)
    assert shop.job(agent).status is JobStatus.QUEUED


MANY = 1200  # more than any of our statements answers at once


def test_very_many_jobs_of_a_dead_process_are_all_taken_over(shop: Shop) -> None:
    first = shop.left()
    numbers = f"WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < {MANY}) SELECT"
    for statement in (
        "INSERT INTO tasks (id, work_item, repo, title, body, stage, created_at, updated_at) "
        f"{numbers} 1000 + n, 'MANY-' || n, repo, title, body, stage, created_at, updated_at FROM n, tasks "
        f"WHERE tasks.id = {first.task_id}",
        f"INSERT INTO transition_epoch (task_id, epoch) {numbers} 1000 + n, 1 FROM n",
        "INSERT INTO jobs (id, task_id, stage, round, kind, status, attempts, claims, claimed_by, created_at) "
        f"{numbers} 1000 + n, 1000 + n, stage, round, kind, status, attempts, claims, claimed_by, created_at "
        f"FROM n, jobs WHERE jobs.id = {first.id}",
        "INSERT INTO agent_runs (job_id, task_id, attempt, agent, run_dir, home, started_at) "
        f"{numbers} 1000 + n, 1000 + n, 1, agent, run_dir || n, home, started_at FROM n, agent_runs",
    ):
        shop.store.raw(statement)
    found = shop.recovery.recover_on_startup()
    assert found["adopted"] == len(shop.hands.watched) == MANY
    assert shop.store.rows("SELECT count(*) FROM jobs WHERE claimed_by <> 'me'")[0][0] == 0


def test_the_reaper_sees_the_last_of_very_many_jobs(shop: Shop) -> None:
    register(shop.store, BootId("slow"))
    first = shop.left(by=BootId("slow"), run=False)
    for statement in (
        f"WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < {MANY}) "
        "INSERT INTO tasks (work_item, repo, title, body, stage, created_at, updated_at) "
        "SELECT 'MANY-' || n, repo, title, body, stage, created_at, updated_at FROM n, tasks "
        f"WHERE tasks.id = {first.task_id}",
        "INSERT INTO jobs (task_id, stage, round, kind, status, attempts, claims, claimed_by, created_at) "
        "SELECT tasks.id, jobs.stage, jobs.round, kind, status, attempts, claims, claimed_by, jobs.created_at "
        f"FROM tasks, jobs WHERE work_item LIKE 'MANY-%' AND jobs.id = {first.id}",
    ):
        shop.store.raw(statement)
    last = shop.left()
    assert last.id > MANY
    assert shop.reaper.run_once()["dead_owner"] == 1
    assert shop.hands.watched == [last.id]


def test_recovery_does_not_look_one_by_one_at_what_the_living_are_at(shop: Shop) -> None:
    """There may be thousands, and each look costs a way to the database and back."""
    register(shop.store, BootId("lives"))
    theirs, left = shop.left(by=BootId("lives")), shop.left()
    found = shop.recovery.recover_on_startup()
    assert (found["owner_may_live"], found["adopted"]) == (1, 1)
    assert (shop.owner(theirs), shop.owner(left), shop.lost.asked) == ("lives", ME, [])
