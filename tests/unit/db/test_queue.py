"""The queue: every change is one statement, and how many rows it changed says who won."""

import pytest

from orchestrator.db import jobs, tasks
from orchestrator.db.jobs import NewJob
from orchestrator.domain.errors import ConstraintRefused
from orchestrator.domain.ids import SHARED_HOME, BootId, Home
from orchestrator.domain.job import Job, JobKind, JobStatus, RunOutcome, RunResult, Usage
from orchestrator.domain.lease import BELIEVABLE
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from tests.fixtures_db import Store

ME, OTHER = BootId("me"), BootId("other")


def enqueue(
    store: Store, kind: JobKind = JobKind.DEVELOPER, *, priority: int = 0, attempts: int = 3
) -> tuple[Task, Job]:
    task = store.new_task(stage=Stage.DEVELOPMENT, priority=priority)
    with store.database.write() as tx:
        job_id = jobs.enqueue(tx, task, NewJob(kind, "a subject", "a brief", attempts))
        return task, jobs.get(tx, job_id)


def claim(store: Store, by: BootId = ME, *, agents: bool = True, checks: bool = True) -> Job | None:
    with store.database.write() as tx:
        return jobs.claim_next_job(tx, by, agents=agents, checks=checks)


def claimed(store: Store, by: BootId = ME) -> Job:
    job = claim(store, by)
    assert job is not None
    return job


def state_of(store: Store, job: Job) -> Job:
    with store.database.read() as tx:
        return jobs.get(tx, job.id)


def test_a_queued_job_is_about_the_tasks_stage_and_round(store: Store) -> None:
    task, job = enqueue(store)
    assert (job.task_id, job.stage, job.round) == (task.id, task.stage, task.round)
    assert (job.kind, job.status, job.attempts, job.max_attempts) == (
        JobKind.DEVELOPER,
        JobStatus.QUEUED,
        0,
        3,
    )
    assert (job.subject, job.brief, job.claimed_by, job.error) == ("a subject", "a brief", None, None)


def test_nothing_is_started_for_a_task_at_an_epoch_that_is_not_believed(store: Store) -> None:
    task, _ = enqueue(store)
    _, job = enqueue(store)
    store.raw(f"UPDATE transition_epoch SET epoch = {BELIEVABLE} WHERE task_id = {task.id}")
    assert claimed(store).id == job.id
    assert claim(store) is None


@pytest.mark.parametrize("hold", list(Hold))
def test_nothing_is_started_for_a_task_that_is_held(store: Store, hold: Hold) -> None:
    """Its pull request was closed, or a restore has taken it out, while the job was in the queue."""
    task, job = enqueue(store)
    with store.database.write() as tx:
        assert tasks.hold(tx, task.id, hold, "closed by hand")
    assert claim(store) is None
    _, other = enqueue(store)
    assert claimed(store).id == other.id
    with store.database.write() as tx:
        assert tasks.release_hold(tx, task.id)
    assert claimed(store).id == job.id


def test_the_attempt_is_counted_at_the_claim(store: Store) -> None:
    """A job that kills its worker has spent an attempt all the same."""
    _, job = enqueue(store)
    taken = claimed(store)
    assert (taken.id, taken.status, taken.attempts, taken.claimed_by) == (job.id, JobStatus.RUNNING, 1, ME)
    assert taken.claimed_at == "2026-01-05T10:00:00.000000Z"
    assert claim(store, OTHER) is None


def test_an_empty_queue_gives_nothing(store: Store) -> None:
    assert claim(store) is None


def test_priority_goes_before_age(store: Store) -> None:
    _, first = enqueue(store)
    _, urgent = enqueue(store, priority=5)
    _, second = enqueue(store)
    with store.database.read() as tx:
        assert [job.id for job in jobs.queued(tx)] == [urgent.id, first.id, second.id]
    assert [claimed(store).id for _ in range(3)] == [urgent.id, first.id, second.id]


def test_a_job_is_not_claimed_before_its_time(store: Store) -> None:
    _, job = enqueue(store)
    with store.database.write() as tx:
        taken = jobs.claim_next_job(tx, ME)
        assert taken is not None
        assert jobs.requeue(tx, taken, ME, error="busy", brief="again", delay_s=60)
    assert claim(store) is None
    store.clock.advance(59.9)
    assert claim(store) is None
    store.clock.advance(0.1)
    again = claimed(store)
    assert (again.id, again.attempts, again.brief, again.error) == (job.id, 2, "again", None)


@pytest.mark.parametrize(
    ("kind", "agents", "checks", "taken"),
    [
        (JobKind.DEVELOPER, True, False, True),
        (JobKind.DEVELOPER, False, True, False),
        (JobKind.CI, True, False, False),
        (JobKind.CI, False, True, True),
        (JobKind.PRODUCTION_HEALTH, False, True, True),
        (JobKind.DEPLOYER, False, False, False),
    ],
    ids=lambda value: str(value),
)
def test_a_worker_claims_what_it_has_room_for(
    store: Store, kind: JobKind, agents: bool, checks: bool, taken: bool
) -> None:
    enqueue(store, kind)
    assert (claim(store, agents=agents, checks=checks) is not None) is taken


def test_a_busy_kind_does_not_block_the_queue(store: Store) -> None:
    enqueue(store, JobKind.DEVELOPER)
    _, check = enqueue(store, JobKind.CI)
    taken = claim(store, agents=False)
    assert taken is not None
    assert taken.id == check.id


def test_only_the_owner_ends_a_job_and_only_once(store: Store) -> None:
    enqueue(store)
    job = claimed(store)
    with store.database.write() as tx:
        assert not jobs.finish(tx, job, OTHER, JobStatus.DONE)
        assert jobs.finish(tx, job, ME, JobStatus.FAILED, "it broke")
        assert not jobs.finish(tx, job, ME, JobStatus.DONE)
    ended = state_of(store, job)
    assert (ended.status, ended.error, ended.claimed_by) == (JobStatus.FAILED, "it broke", None)


def test_a_free_requeue_costs_no_attempt(store: Store) -> None:
    """A usage limit is nobody's failure, however often it happens."""
    _, job = enqueue(store)
    for _ in range(5):
        taken = claimed(store)
        assert taken.attempts == 1
        with store.database.write() as tx:
            assert jobs.requeue(tx, taken, ME, error="limit", brief="", free=True)
    assert state_of(store, job).attempts == 0


def test_a_requeue_is_the_owners(store: Store) -> None:
    enqueue(store)
    job = claimed(store)
    with store.database.write() as tx:
        assert not jobs.requeue(tx, job, OTHER, error="", brief="")
    assert state_of(store, job).status is JobStatus.RUNNING


def test_a_reaped_job_goes_back_until_its_attempts_are_used_up(store: Store) -> None:
    _, job = enqueue(store, attempts=3)
    ends = []
    for _ in range(3):
        taken = claimed(store)
        with store.database.write() as tx:
            ends.append(jobs.reap_running_job(tx, taken, "its owner died"))
    assert ends == [JobStatus.QUEUED, JobStatus.QUEUED, JobStatus.FAILED]
    assert claim(store) is None
    assert state_of(store, job).error == "its owner died"


def test_reaping_is_guarded_by_who_was_judged(store: Store) -> None:
    """Between the judgement and the act the job was reaped and claimed anew: nothing happens to the new owner."""
    enqueue(store)
    judged = claimed(store)
    with store.database.write() as tx:
        assert jobs.reap_running_job(tx, judged, "dead") is JobStatus.QUEUED
        assert jobs.reap_running_job(tx, judged, "dead") is None
    taken = claimed(store, OTHER)
    with store.database.write() as tx:
        assert jobs.reap_running_job(tx, judged, "dead") is None
        assert not jobs.adopt(tx, judged, ME)
        assert jobs.adopt_all(tx, [judged], BootId(str(judged.claimed_by)), ME) == set()
    assert state_of(store, taken).claimed_by == OTHER


def test_many_are_adopted_at_once_but_for_those_that_are_another_s(store: Store) -> None:
    for _ in range(4):
        enqueue(store)
    first, second, third = claimed(store), claimed(store), claimed(store)
    theirs = claimed(store, OTHER)
    with store.database.write() as tx:
        assert jobs.requeue(tx, third, ME, error="limit", brief="", free=True)
    with store.database.write() as tx:
        found = jobs.adopt_all(tx, [first, second, third, theirs], ME, BootId("new"))
    assert found == {first.id, second.id}
    owners = [state_of(store, job).claimed_by for job in (first, second, third, theirs)]
    assert owners == ["new", "new", None, OTHER]


def test_an_adopted_job_keeps_its_attempt(store: Store) -> None:
    enqueue(store)
    job = claimed(store)
    with store.database.write() as tx:
        assert jobs.adopt(tx, job, OTHER)
        assert not jobs.adopt(tx, job, OTHER)
    adopted = state_of(store, job)
    assert (adopted.claimed_by, adopted.attempts, adopted.status) == (OTHER, 1, JobStatus.RUNNING)


def test_at_start_checks_of_earlier_lives_are_given_back(store: Store) -> None:
    """Not agents' jobs, whose runs may live; and never what another process has begun (case 6)."""
    mine, theirs, agents, spent = (
        enqueue(store, kind, attempts=attempts)[1]
        for kind, attempts in ((JobKind.CI, 2), (JobKind.CI, 2), (JobKind.DEVELOPER, 2), (JobKind.CI, 1))
    )
    for by in (ME, OTHER, OTHER, OTHER):
        claimed(store, by)
    with store.database.write() as tx:
        given_back = jobs.requeue_running_jobs(tx, OTHER, "the process had ended")
    assert sorted(given_back) == sorted([(theirs.task_id, theirs.kind), (spent.task_id, spent.kind)])
    assert [state_of(store, job).status for job in (mine, theirs, agents, spent)] == [
        JobStatus.RUNNING,
        JobStatus.QUEUED,
        JobStatus.RUNNING,
        JobStatus.FAILED,
    ]
    with store.database.write() as tx:
        assert jobs.requeue_running_jobs(tx, OTHER, "again") == []
        assert [job.id for job in jobs.running_of_others(tx, ME, after=0, limit=9)] == [agents.id]
        assert [job.id for job in jobs.running(tx)] == [mine.id, agents.id]


@pytest.mark.parametrize("kind", [JobKind.STAGING_HEALTH, JobKind.PRODUCTION_HEALTH])
def test_a_look_that_our_own_end_interrupts_costs_no_attempt(store: Store, kind: JobKind) -> None:
    """A new version of ourselves that crashes again and again is judged by its runner, not by how often we began."""
    _, job = enqueue(store, kind, attempts=1)
    for _ in range(3):
        claimed(store, OTHER)
        with store.database.write() as tx:
            assert jobs.requeue_running_jobs(tx, OTHER, "the process had ended") == [(job.task_id, kind)]
        taken = claimed(store, OTHER)
        with store.database.write() as tx:
            status = jobs.reap_running_job(tx, taken, "its owner died", free=taken.kind.only_looks)
        assert status is JobStatus.QUEUED
    assert state_of(store, job).attempts == 0
    taken = claimed(store)
    with store.database.write() as tx:
        assert jobs.reap_running_job(tx, taken, "it hung") is JobStatus.FAILED


def test_one_active_job_for_a_task(store: Store) -> None:
    task, job = enqueue(store)
    with pytest.raises(ConstraintRefused, match="jobs.enqueue"), store.database.write() as tx:
        jobs.enqueue(tx, task, NewJob(JobKind.REVIEWER))
    with store.database.write() as tx:
        assert jobs.cancel_active(tx, task.id, "it moved") == [job.id]
        assert jobs.cancel_active(tx, task.id, "it moved") == []
        assert jobs.active_of_task(tx, task.id) is None
        jobs.enqueue(tx, task, NewJob(JobKind.REVIEWER))
    assert state_of(store, job).status is JobStatus.CANCELLED
    with store.database.read() as tx:
        assert [found.kind for found in jobs.of_task(tx, task.id)] == [JobKind.REVIEWER, JobKind.DEVELOPER]


def test_a_step_finds_the_newest_job_of_its_round(store: Store) -> None:
    task, job = enqueue(store)
    taken = claimed(store)
    with store.database.write() as tx:
        jobs.finish(tx, taken, ME, JobStatus.DONE)
        newer = jobs.enqueue(tx, task, NewJob(JobKind.DEVELOPER))
        found = jobs.of_step(tx, task, JobKind.DEVELOPER)
        assert found is not None
        assert (found.id, found.id > job.id) == (newer, True)
        assert jobs.of_step(tx, task, JobKind.REVIEWER) is None
        tasks.update_task_stage_cas(tx, task.id, task.stage, Stage.REVIEW, epoch=task.epoch)
        moved = tasks.get(tx, task.id)
        assert jobs.of_step(tx, moved, JobKind.DEVELOPER) is None


def test_a_run_is_stored_once_and_summed_up(store: Store) -> None:
    """How a run ended is written once: its tokens are never counted twice (law 8)."""
    task, _ = enqueue(store)
    job = claimed(store)
    with store.database.write() as tx:
        run = jobs.add_run(tx, job, agent="scripted", model=None, run_dir="/runs/1")
        again = jobs.add_run(tx, job, agent="scripted", model=None, run_dir="/runs/2")
        opened = jobs.open_run_of_job(tx, job.id)
        assert opened is not None
        assert opened.id == again
    result = RunResult(RunOutcome.DONE, 0, Usage(10, 5, 2, 1, 0.25), "said", "session", "model-1")
    with store.database.write() as tx:
        assert jobs.finish_run(tx, run, result)
        assert not jobs.finish_run(tx, run, RunResult(RunOutcome.CRASHED, 1, Usage(999)))
        assert jobs.finish_run(tx, again, RunResult(RunOutcome.STALLED, None, Usage(1)))
        assert jobs.open_run_of_job(tx, job.id) is None
        spent = jobs.spent(tx, task.id)
        assert (spent.input_tokens, spent.cost_usd) == (19, 0.25)
        (kind, stored), _ = jobs.runs_of_task(tx, task.id)
    assert (kind, stored.outcome, stored.exit_code, stored.usage) == (
        JobKind.DEVELOPER,
        RunOutcome.DONE,
        0,
        result.usage,
    )
    assert (stored.summary, stored.session_id, stored.model, stored.attempt) == (
        "said",
        "session",
        "model-1",
        1,
    )


def test_what_an_earlier_claim_still_says_counts_for_nothing(store: Store) -> None:
    """A process may claim a job anew, after a free requeue even as the same attempt: only that claim counts."""
    enqueue(store)
    first = claimed(store)
    with store.database.write() as tx:
        assert jobs.requeue(tx, first, ME, error="limit", brief="", free=True)
    second = claimed(store)
    assert (first.attempts, second.attempts, first.claims, second.claims) == (1, 1, 1, 2)
    with store.database.write() as tx:
        assert not jobs.finish(tx, first, ME, JobStatus.FAILED, "late")
        assert not jobs.requeue(tx, first, ME, error="late", brief="")
        assert jobs.reap_running_job(tx, first, "late") is None
        assert not jobs.adopt(tx, first, OTHER)
        assert jobs.adopt_all(tx, [first], ME, OTHER) == set()
    assert state_of(store, second).status is JobStatus.RUNNING
    with store.database.write() as tx:
        assert jobs.finish(tx, second, ME, JobStatus.DONE)


def test_a_look_after_an_undo_is_no_start_and_waits_for_no_hold(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        jobs.enqueue(tx, task, NewJob(JobKind.PRODUCTION_HEALTH, undo=7))
        tasks.hold(tx, task.id, Hold.ESCALATED, "production was rolled back")
    assert claimed(store).kind is JobKind.PRODUCTION_HEALTH


def test_work_that_no_forge_has_is_gone_on_with_where_it_lies(store: Store) -> None:
    """By the orchestrators, whose folder is theirs together, or by one worker; pushed, it is everybody's."""
    task, _ = enqueue(store)
    worker, another = Home("worker"), Home("another")

    def who(home: Home) -> bool:
        with store.database.write() as tx:
            job = jobs.claim_next_job(tx, ME, home=home)
            return job is not None and jobs.requeue(tx, job, ME, error="", brief="", free=True)

    for home, claim in (
        (None, [True, True, True]),
        (SHARED_HOME, [True, False, False]),
        (worker, [False, True, False]),
    ):
        with store.database.write() as tx:
            tasks.set_work_home(tx, task.id, home)
        assert [who(home) for home in (SHARED_HOME, worker, another)] == claim
    job = claimed_at(store, worker)
    with store.database.write() as tx:
        jobs.add_run(tx, job, agent="scripted", model=None, run_dir="/runs/1", home=another)
        assert tasks.get(tx, task.id).work_home == another
        assert tasks.away_at(tx, another) == [task.id]


def claimed_at(store: Store, home: Home) -> Job:
    with store.database.write() as tx:
        job = jobs.claim_next_job(tx, ME, home=home)
    assert job is not None
    return job
