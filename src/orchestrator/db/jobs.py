"""The job queue. Every change is one statement whose rowcount says who won; nothing here talks to a network (S-04)."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.db import lanes, tasks
from orchestrator.db.database import Row, Tx
from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import SHARED_HOME, BootId, Home, JobId, RunId, TaskId
from orchestrator.domain.job import (
    UNKNOWN_PROGRAM,
    AgentRun,
    Job,
    JobKind,
    JobStatus,
    RunOutcome,
    RunResult,
    Usage,
)
from orchestrator.domain.lease import BELIEVABLE
from orchestrator.domain.shares import PRIORITY_STEP_S
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be queued in a transition's commit."""

    kind: JobKind
    subject: str | None = None
    brief: str = ""
    max_attempts: int = 3
    undo: int | None = None  # see Job
    agent: str = UNKNOWN_PROGRAM  # which program is to do an agent's job


def enqueue(
    tx: Tx, task: Task, job: NewJob, *, stage: Stage | None = None, round: int | None = None
) -> JobId:
    """Queue a job for the task's stage and round.

    :raises ConstraintRefused: the task has an active job already.
    """
    stage, agent = stage or task.stage, job.agent if job.kind.agent else ""
    row = tx.one(
        "jobs.enqueue",
        task_id=task.id,
        stage=stage,
        agent=agent,
        round=round or task.round,
        kind=job.kind,
        max_attempts=job.max_attempts,
        subject=job.subject,
        brief=job.brief,
        undo=job.undo,
        not_before=None,
    )
    queued = _must(row)
    if queued["lane"] is None:  # the first of its kind
        lanes.enter(tx, task.id, JobId(queued["id"]), stage, agent)
    return JobId(queued["id"])


def claim_next_job(
    tx: Tx,
    boot_id: BootId,
    *,
    agents: bool = True,
    checks: bool = True,
    repos: Collection[str] | None = None,
    limits: Mapping[str, int] | None = None,
    step_s: float = PRIORITY_STEP_S,
    home: Home = SHARED_HOME,
) -> Job | None:
    """Take the next due job for this process and count the attempt, in one statement (S-04).

    ``repos`` are those that work may be done for; None: all. ``limits`` are the caps by the names of their shares, over
    all processes that claim by them: they take turns, for what runs is counted by the statement itself. Waiting for
    ``step_s`` seconds is worth one step of priority. A task whose work lies in another ``home`` is left there.
    """
    if limits:
        lanes.one_claim_at_a_time(tx)
    row = tx.one(
        "jobs.claim_next_job",
        boot_id=boot_id,
        agents_allowed=agents,
        checks_allowed=checks,
        believable=BELIEVABLE,
        repos=None if repos is None else json.dumps(sorted(repos)),
        limits=json.dumps(limits or {}),
        step_s=step_s,
        home=home,
    )
    if row is None:
        return None
    lanes.served(tx, row["lane"])
    return _job(row)


def finish(tx: Tx, job: Job, boot_id: BootId, status: JobStatus, error: str | None = None) -> bool:
    """End a job that this process runs; False where it no longer does, or has claimed it anew since."""
    ended = tx.execute(
        "jobs.finish", job_id=job.id, boot_id=boot_id, claims=job.claims, status=status, error=error
    )
    return ended == 1


def requeue(
    tx: Tx, job: Job, boot_id: BootId, *, error: str, brief: str, delay_s: float = 0.0, free: bool = False
) -> bool:
    """Give a job back; ``free`` costs no attempt (usage limits). False where this process no longer runs it."""
    changed = tx.execute(
        "jobs.requeue",
        job_id=job.id,
        boot_id=boot_id,
        claims=job.claims,
        error=error,
        brief=brief,
        delay_s=delay_s,
        free_attempts=1 if free else 0,
    )
    return changed == 1


def reap_running_job(tx: Tx, job: Job, reason: str, *, free: bool = False) -> JobStatus | None:
    """Take a job from an owner that is dead: back to the queue, or failed once its attempts are used up (FR-3).

    ``free`` gives the attempt back. None where somebody else was first: the rowcount guard.
    """
    row = tx.one(
        "jobs.reap_running_job",
        job_id=job.id,
        claimed_by=job.claimed_by,
        claims=job.claims,
        error=reason,
        free_attempts=1 if free else 0,
    )
    return JobStatus(row["status"]) if row else None


def requeue_running_jobs(tx: Tx, owner: BootId, reason: str) -> list[tuple[TaskId, JobKind]]:
    """Give back every check that a process which has ended was running; agents' jobs are adopted or reaped one by one
    instead, for their runs may live.

    A look at an environment costs no attempt: it cannot be what has ended the process, as a check of a change can.
    """
    checks = tx.all("jobs.requeue_running_checks", owner=owner, error=reason)
    looks = tx.all("jobs.requeue_running_looks", owner=owner, error=reason)
    return [(TaskId(row["task_id"]), JobKind(row["kind"])) for row in (*checks, *looks)]


def adopt(tx: Tx, job: Job, boot_id: BootId) -> bool:
    """Take over a running job whose agent survived its owner (law 8)."""
    return job.claimed_by is not None and job.id in adopt_all(tx, [job], job.claimed_by, boot_id)


def adopt_all(tx: Tx, taken: Sequence[Job], claimed_by: BootId, boot_id: BootId) -> set[JobId]:
    """As :func:`adopt`, many jobs of one owner at once; those that are ours now."""
    rows = tx.all(
        "jobs.adopt_all",
        boot_id=boot_id,
        claimed_by=claimed_by,
        jobs=json.dumps([job.id for job in taken]),
        claims=json.dumps([f"{job.id}:{job.claims}" for job in taken]),
    )
    return {JobId(row["id"]) for row in rows}


def cancel_active(tx: Tx, task_id: TaskId, reason: str) -> list[JobId]:
    """End whatever is queued or running for a task; a thread may still be at it, and is to be told."""
    return [JobId(row["id"]) for row in tx.all("jobs.cancel_active", task_id=task_id, reason=reason)]


def still_claimed(tx: Tx, job: Job) -> bool:
    """Whether a job is still claimed as it was: neither cancelled nor reaped since. In a ``write`` that stays so until
    the transaction ends."""
    now = _must(tx.one("jobs.claim_of", job_id=job.id))
    return (now["claimed_by"], now["claims"]) == (job.claimed_by, job.claims)


def get(tx: Tx, job_id: JobId) -> Job:
    """One job."""
    return _job(_must(tx.one("jobs.get", job_id=job_id)))


def of_step(tx: Tx, task: Task, kind: JobKind) -> Job | None:
    """The newest job of a kind in the task's stage and round."""
    row = tx.one("jobs.of_step", task_id=task.id, stage=task.stage, round=task.round, kind=kind)
    return _job(row) if row else None


def active_of_task(tx: Tx, task_id: TaskId) -> Job | None:
    """The task's one queued or running job."""
    row = tx.one("jobs.active_of_task", task_id=task_id)
    return _job(row) if row else None


def at_work_for(tx: Tx, ids: Collection[TaskId]) -> frozenset[TaskId]:
    """Those of these tasks that have a queued or running job."""
    rows = tx.all("jobs.at_work_for", tasks=json.dumps(sorted(ids)))
    return frozenset(TaskId(row["task_id"]) for row in rows)


def running(tx: Tx) -> list[Job]:
    """Every running job."""
    return [_job(row) for row in tx.all("jobs.running")]


def running_page(tx: Tx, *, after: int, limit: int) -> list[Job]:
    """Running jobs with higher numbers than ``after``, in their order."""
    return [_job(row) for row in tx.all("jobs.running_page", after=after, limit=limit)]


def running_of_others(tx: Tx, boot_id: BootId, *, after: int, limit: int) -> list[Job]:
    """Running jobs that another process (or another life of this one) has claimed, with higher numbers than ``after``,
    in their order."""
    rows = tx.all("jobs.running_of_others", boot_id=boot_id, after=after, limit=limit)
    return [_job(row) for row in rows]


def others_at_work(tx: Tx, boot_id: BootId) -> set[BootId]:
    """The other processes that have claimed jobs which run."""
    return {BootId(row["claimed_by"]) for row in tx.all("jobs.others_at_work", boot_id=boot_id)}


def queued(tx: Tx) -> list[Job]:
    """Queued jobs, the highest priority first, then the oldest."""
    return [_job(row) for row in tx.all("jobs.queued")]


def of_task(tx: Tx, task_id: TaskId, *, limit: int = 100) -> list[Job]:
    """A task's jobs, newest first."""
    return [_job(row) for row in tx.all("jobs.of_task", task_id=task_id, limit=limit)]


def add_run(
    tx: Tx, job: Job, *, agent: str, model: str | None, run_dir: str, home: Home = SHARED_HOME
) -> RunId:
    """Record that an agent is about to start for a job, in a state folder: what it will do lies there until a forge has
    it."""
    tasks.set_work_home(tx, job.task_id, home)
    row = tx.one(
        "jobs.add_run",
        job_id=job.id,
        task_id=job.task_id,
        attempt=max(job.attempts, 1),
        agent=agent,
        model=model,
        run_dir=run_dir,
        home=home,
    )
    return RunId(_must(row)["id"])


def finish_run(tx: Tx, run_id: RunId, result: RunResult) -> bool:
    """Store how a run ended, once; but one that had been given up for lost may still say it itself."""
    changed = tx.execute(
        "jobs.finish_run",
        run_id=run_id,
        outcome=result.outcome,
        exit_code=result.exit_code,
        model=result.model,
        input_tokens=result.usage.input_tokens,
        output_tokens=result.usage.output_tokens,
        cache_read_tokens=result.usage.cache_read_tokens,
        cache_write_tokens=result.usage.cache_write_tokens,
        cost_usd=result.usage.cost_usd,
        summary=result.summary,
        session_id=result.session_id,
    )
    return changed == 1


def open_run_of_job(tx: Tx, job_id: JobId) -> AgentRun | None:
    """The job's run that has no outcome yet, the last of them."""
    return open_runs_of_jobs(tx, [job_id]).get(job_id)


def open_runs_of_jobs(tx: Tx, jobs: Collection[JobId]) -> dict[JobId, AgentRun]:
    """As :func:`open_run_of_job`, of many at once; those that have one."""
    rows = tx.all("jobs.open_runs_of_jobs", jobs=json.dumps(sorted(jobs)))
    return {JobId(row["job_id"]): _run(row) for row in rows}


def untidied_at(tx: Tx, home: Home, *, limit: int = 50) -> list[TaskId]:
    """Ended tasks that have left something in a worker's home."""
    return [TaskId(row["task_id"]) for row in tx.all("jobs.untidied_at", home=home, limit=limit)]


def tidied_at(tx: Tx, home: Home, task_id: TaskId) -> None:
    """Record that nothing of a task is left to tidy up in a worker's home."""
    tx.execute("jobs.tidied_at", home=home, task_id=task_id)


def runs_of_task(tx: Tx, task_id: TaskId) -> list[tuple[JobKind, AgentRun]]:
    """All runs of a task with the role they had, in order."""
    return [(JobKind(row["kind"]), _run(row)) for row in tx.all("jobs.runs_of_task", task_id=task_id)]


def spent(tx: Tx, task_id: TaskId) -> Usage:
    """Tokens (as input tokens) and money over all of a task's runs."""
    row = _must(tx.one("jobs.spent", task_id=task_id))
    return Usage(input_tokens=int(row["tokens"]), cost_usd=float(row["cost_usd"]))


def _must(row: Row | None) -> Row:
    if row is None:
        raise InvariantError("a statement that returns a row returned none")
    return row


def _job(row: Row) -> Job:
    return Job(
        id=JobId(row["id"]),
        task_id=TaskId(row["task_id"]),
        stage=Stage(row["stage"]),
        round=row["round"],
        kind=JobKind(row["kind"]),
        status=JobStatus(row["status"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        subject=row["subject"],
        brief=row["brief"],
        claimed_by=row["claimed_by"],
        claimed_at=row["claimed_at"],
        not_before=row["not_before"],
        error=row["error"],
        claims=row["claims"],
        undo=row["undo"],
        priority=row["priority"],
        created_at=row["created_at"],
        lane=row["lane"],
    )


def _run(row: Row) -> AgentRun:
    return AgentRun(
        id=RunId(row["id"]),
        job_id=JobId(row["job_id"]),
        task_id=TaskId(row["task_id"]),
        attempt=row["attempt"],
        agent=row["agent"],
        model=row["model"],
        run_dir=row["run_dir"],
        outcome=RunOutcome(row["outcome"]) if row["outcome"] else None,
        exit_code=row["exit_code"],
        usage=Usage(
            row["input_tokens"],
            row["output_tokens"],
            row["cache_read_tokens"],
            row["cache_write_tokens"],
            row["cost_usd"],
        ),
        summary=row["summary"],
        session_id=row["session_id"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        home=Home(row["home"]),
    )
