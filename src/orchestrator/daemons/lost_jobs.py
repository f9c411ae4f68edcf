"""Jobs that nobody is at any more, at start and in ordinary running alike: a run is watched again, be it over or not; a
job that has none goes back to the queue (laws 6, 8). A run in a worker's home is that worker's alone to adopt; it is
given up once nothing has been heard of that home for so long that its agent has been ended there.

Must hold: only what a process has left that has ended or hangs is taken, while this one may take anything over at all,
and only if nothing has been heard of the other since it was judged. A job is claimed before its run is touched, so that
of two that find it one acts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import structlog

from orchestrator.daemons.queue_worker import QueueWorker
from orchestrator.db import events, homes, jobs, leases, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.db.leases import ProcessRow
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import SHARED_HOME, BootId, Home, JobId
from orchestrator.domain.job import AgentRun, Job, JobStatus, RunOutcome, RunResult, Usage
from orchestrator.domain.lease import Actor
from orchestrator.launcher import Launcher
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.ownership.judge import Judge
from orchestrator.places import PROCESS
from orchestrator.runtime.clock import Clock, parse_stamp
from orchestrator.runtime.sweep import sweep

log = structlog.get_logger(__name__)


class Found(StrEnum):
    """What became of a job that was looked at."""

    ADOPTED = "adopted"  # its run is watched here, and finalised if it has ended
    REQUEUED = "requeued"
    LOST = "lost"  # somebody else was first
    OWNER_MAY_LIVE = "owner_may_live"
    LEFT_BEHIND = "left_behind"  # something that its owner had started does not end


@dataclass(frozen=True, slots=True)
class Claimed:
    """What became of a page of jobs."""

    runs: Sequence[tuple[Job, AgentRun]] = ()  # ours now
    others: frozenset[JobId] = frozenset()  # of owners that are heard of


class LostJobs:
    """Takes jobs from owners that have ended."""

    def __init__(
        self,
        database: Database,
        launcher: Launcher,
        worker: QueueWorker,
        *,
        boot_id: BootId,
        judge: Judge,
        process_ttl_s: float,
        max_running_s: float,
        clock: Clock,
        telemetry: Telemetry,
        home: Home = SHARED_HOME,
    ) -> None:
        """``home``: the state folder of this process."""
        self._home = home
        self._database = database
        self._launcher = launcher
        self._worker = worker
        self._boot_id = boot_id
        self._judge = judge
        self._ttl_s = process_ttl_s
        self._max_running_s = max_running_s
        self._clock = clock
        self._telemetry = telemetry

    def take_over(self, job: Job, actor: Actor) -> Found:
        """Take a job from another process, where that has ended, or hangs as a whole beyond the backstop.

        :raises OutsideError: its run folder cannot be used. The job is then ours, and is looked at again.
        """
        read_at = self._clock.boottime()
        with self._database.read() as tx:
            now, owner = leases.now(tx), self._process(tx, job.claimed_by)
            run = jobs.open_run_of_job(tx, job.id)
        if not (self._judge.ended(owner, now, read_at) or self._hangs(job, owner, now)):
            return Found.OWNER_MAY_LIVE
        if run is not None and run.home != self._home:
            return self._given_up(job, run, owner, actor)
        if run is None and self._home != SHARED_HOME and not job.kind.agent:
            return Found.OWNER_MAY_LIVE  # what is left of a check is found where checks run
        if run is None:
            return self._give_back(job, owner, actor)
        with self._database.write() as tx:
            if self._process(tx, job.claimed_by) != owner or not jobs.adopt(tx, job, self._boot_id):
                return Found.LOST
        self.resume(replace(job, claimed_by=self._boot_id), run)
        return Found.ADOPTED

    def claim_runs(self, left: Sequence[Job]) -> Claimed:
        """Claim in one commit those of these jobs that have a run here and whose owner has ended; each is then to be
        resumed. Those of owners that are heard of are left alone.

        Whatever the others need is :meth:`take_over`'s to do, one by one.
        """
        read_at = self._clock.boottime()
        with self._database.read() as tx:
            now = leases.now(tx)
            owners = {boot_id: self._process(tx, boot_id) for boot_id in {job.claimed_by for job in left}}
            runs = jobs.open_runs_of_jobs(tx, [job.id for job in left])
        ended = {boot_id for boot_id, owner in owners.items() if self._judge.ended(owner, now, read_at)}
        found = [job for job in left if job.id in runs and runs[job.id].home == self._home]
        taken: set[JobId] = set()
        with self._database.write() as tx:
            for boot_id in ended:
                its = [job for job in found if job.claimed_by == boot_id]
                if boot_id and its and self._process(tx, boot_id) == owners[boot_id]:
                    taken |= jobs.adopt_all(tx, its, boot_id, self._boot_id)
        ours = [(replace(job, claimed_by=self._boot_id), runs[job.id]) for job in found if job.id in taken]
        heard = {boot for boot, owner in owners.items() if owner and not owner.silent} - ended
        return Claimed(tuple(ours), frozenset(job.id for job in left if job.claimed_by in heard))

    def resume_soon(self, job: Job, run: AgentRun) -> None:
        """Watch the run of a job of ours; its folder is looked into later."""
        self._telemetry.count(Metric.RUNS_ADOPTED)
        self._worker.resume_run(job, run)

    def resume(self, job: Job, run: AgentRun) -> None:
        """Watch the run of a job of ours that no thread is at.

        :raises OutsideError: its folder cannot be used.
        """
        flight = self._launcher.adopt(job, run)
        self._telemetry.count(Metric.RUNS_ADOPTED)
        self._worker.resume(job, run, flight)

    def _given_up(self, job: Job, run: AgentRun, owner: ProcessRow | None, actor: Actor) -> Found:
        """Its agent has been ended by its own supervisor, if it was not before. A late word of the worker counts for
        nothing but what it has cost."""
        if self._home != SHARED_HOME:
            return Found.OWNER_MAY_LIVE
        with self._database.write() as tx:
            home = homes.get(tx, run.home)
            if home is not None and not home.lost:
                return Found.OWNER_MAY_LIVE
            if self._process(tx, job.claimed_by) != owner:
                return Found.LOST
            reason = f"its worker is lost: {home or 'it is not known'}"
            status = requeue(tx, job, reason, actor, judged=run)
            if status is not None:
                jobs.finish_run(tx, run.id, RunResult(RunOutcome.LOST, None, Usage(), reason))
        return Found.REQUEUED if status is not None else Found.LOST

    def _give_back(self, job: Job, owner: ProcessRow | None, actor: Actor) -> Found:
        """Nothing of a check may run beside its repetition."""
        left = sweep(f"{PROCESS}={job.claimed_by}")
        if left:
            log.warning("left by a process that has ended, and does not end", pids=left, job=job.id)
            return Found.LEFT_BEHIND
        if not self._judge.may_take_over():  # that may have taken a while
            return Found.OWNER_MAY_LIVE
        with self._database.write() as tx:
            if self._process(tx, job.claimed_by) != owner:
                return Found.LOST
            status = requeue(tx, job, "its owner died", actor, judged=None, free=job.kind.only_looks)
        return Found.REQUEUED if status is not None else Found.LOST

    def _hangs(self, job: Job, owner: ProcessRow | None, now: str) -> bool:
        """Whether its owner lives, and is beyond the backstop without a sign of life: its own reaper hangs with it."""
        if owner is None or not owner.silent or job.claimed_at is None:
            return False
        held_s = (parse_stamp(now) - parse_stamp(job.claimed_at)).total_seconds()
        return held_s > self._max_running_s and self._judge.may_take_over()

    def _process(self, tx: Tx, boot_id: BootId | None) -> ProcessRow | None:
        return leases.process(tx, boot_id, self._ttl_s) if boot_id else None


def requeue(
    tx: Tx, job: Job, reason: str, actor: Actor, *, judged: AgentRun | None, free: bool = False
) -> JobStatus | None:
    """Take a running job from whoever has it: back to the queue, or failed where its attempts are used up, told in the
    task's story. None where somebody else was first, be it its owner that has started an agent since the job's run was
    ``judged``."""
    if not jobs.still_claimed(tx, job):  # which holds the job: from here on no run is added
        return None
    run = jobs.open_run_of_job(tx, job.id)
    if run is not None and (judged is None or run.id != judged.id):
        return None
    status = jobs.reap_running_job(tx, job, reason, free=free)
    if status is None:
        return None
    task = tasks.get(tx, job.task_id)
    kind = EventType.JOB_REQUEUED if status is JobStatus.QUEUED else EventType.JOB_FINISHED
    data = {"job": job.kind, "error": reason, "status": status}
    events.append(tx, kind, actor, task=task, data=data)
    if actor is Actor.REAPER:
        events.lesson(tx, "reaped-job", f"{task.work_item} {job.kind}: {reason}", task_id=task.id)
    return status
