"""The reaper: tier 1 a dead owner, tier 2 a run that ended and was not finalised, tier 3 the backstop (S-07).

It never acts beside a live owner; every change is a rowcount guard that somebody else may have won.
"""

import threading
from collections import Counter
from dataclasses import replace

from orchestrator.daemons.queue_worker import QueueWorker
from orchestrator.db import events, jobs, leases, tasks
from orchestrator.db.database import Database
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId
from orchestrator.domain.job import Job
from orchestrator.domain.lease import Actor
from orchestrator.launcher import Launcher
from orchestrator.monitor import Monitor
from orchestrator.places import PROCESS
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.process import Liveness, Processes
from orchestrator.runtime.sweep import sweep
from orchestrator.runtime.wakeups import Wakeups

ENDED = ("dead_owner", "not_finalised", "backstop")
LEFT_ALONE = ("owner_may_live", "agent_may_live", "within_grace", "at_work")


class JobReaper:
    """Looks at running jobs."""

    name = "job_reaper"

    def __init__(
        self,
        database: Database,
        launcher: Launcher,
        monitor: Monitor,
        worker: QueueWorker,
        *,
        boot_id: BootId,
        processes: Processes,
        clock: Clock,
        interval_s: float,
        process_ttl_s: float,
        finalize_grace_s: float,
        max_running_s: float,
        wakeups: Wakeups,
    ) -> None:
        self.interval_s = interval_s
        self._database = database
        self._launcher = launcher
        self._monitor = monitor
        self._worker = worker
        self._boot_id = boot_id
        self._processes = processes
        self._clock = clock
        self._ttl_s = process_ttl_s
        self._grace_s = finalize_grace_s
        self._max_running_s = max_running_s
        self._wakeups = wakeups
        self._counting = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys((*ENDED, *LEFT_ALONE), 0))
        self._noted: set[int] = set()  # jobs whose backstop is in the journal
        self._told: dict[int, float] = {}  # job → when it was first told to end
        self._ended: dict[int, float] = {}  # job → when its run was first seen to have ended

    def run_once(self) -> dict[str, int]:
        """One pass over all running jobs."""
        counts = dict.fromkeys(ENDED, 0)
        with self._database.read() as tx:
            running = jobs.running(tx)
        self._ended = {
            job_id: at for job_id, at in self._ended.items() if any(j.id == job_id for j in running)
        }
        self._noted &= {job.id for job in running}
        self._told = {job_id: at for job_id, at in self._told.items() if job_id in self._noted}
        for job in running:
            if job.claimed_by != self._boot_id:
                counts["dead_owner"] += self._tier_1(job)
                continue
            running_for = self._worker.running_for(job.id)
            if running_for is None:
                counts["not_finalised"] += self._tier_2(job)
            elif running_for > self._max_running_s:
                counts["backstop"] += self._tier_3(job)
            else:
                self._left("at_work")
        with self._counting:
            self._counts.update(counts)
        return counts

    def snapshot(self) -> dict[str, object]:
        """What ``GET /queue`` shows, counted since the start: jobs ended by tier, and why others were left alone."""
        with self._counting:
            return {
                "ended": {name: self._counts[name] for name in ENDED},
                "skipped": {name: self._counts[name] for name in LEFT_ALONE},
            }

    def _left(self, why: str) -> int:
        with self._counting:
            self._counts[why] += 1
        return 0

    def _tier_1(self, job: Job) -> int:
        """The process that claimed it is dead: finalise a run that has ended (it is never paid for twice), wait for one
        that may live, and give a job that never got so far back to the queue."""
        with self._database.read() as tx:
            owner = leases.process(tx, job.claimed_by, self._ttl_s) if job.claimed_by else None
            run = jobs.open_run_of_job(tx, job.id)
        if (
            owner is not None
            and self._processes.liveness(owner.identity) is not Liveness.DEAD
            and not owner.silent
        ):
            return self._left("owner_may_live")
        if run is None:
            sweep(f"{PROCESS}={job.claimed_by}")  # nothing of a check may run beside its repetition
            return self._reap(job, "its owner is dead")
        result = self._launcher.result(run)
        if result is None:
            return self._left("agent_may_live")  # its supervisor's own term decides
        with self._database.write() as tx:
            if not jobs.adopt(tx, job, self._boot_id):
                return 0
        self._monitor.conclude(replace(job, claimed_by=self._boot_id), run.id, result, owner=Actor.REAPER)
        return 1

    def _tier_2(self, job: Job) -> int:
        """Nobody in this process is at it any more: finalise what has ended, after a grace."""
        with self._database.read() as tx:
            run = jobs.open_run_of_job(tx, job.id)
        now = self._clock.boottime()
        since = self._ended.setdefault(job.id, now)
        if now - since < self._grace_s:
            return self._left("within_grace")
        if run is None:
            return self._reap(job, "nobody was at it any more")
        result = self._launcher.result(run)
        if result is None:
            return self._left("agent_may_live")
        self._monitor.conclude(job, run.id, result, owner=Actor.REAPER)
        return 1

    def _tier_3(self, job: Job) -> int:
        """Hung beyond every bound: end it, whoever holds what.

        First it is told to end, and whoever is at it finalises it. Where that thread hangs as well, the job is taken
        from it after a grace: never while its agent may live, and what the thread still says counts for nothing.
        """
        reason = f"it ran for more than {self._max_running_s:g} s (backstop)"
        self._wakeups.stop(job.task_id, reason)
        self._note_backstop(job, reason)
        now = self._clock.boottime()
        if now - self._told.setdefault(job.id, now) < self._grace_s:
            return 1
        with self._database.read() as tx:
            run = jobs.open_run_of_job(tx, job.id)
        if (run is None or self._launcher.result(run) is not None) and self._reap(job, reason):
            self._worker.give_up(job.id)
            self._wakeups.everything()
        return 1

    def _note_backstop(self, job: Job, reason: str) -> None:
        """One lesson per job, however many passes its end takes."""
        if job.id in self._noted:
            return
        self._noted.add(job.id)
        with self._database.write() as tx:
            work_item = tasks.get(tx, job.task_id).work_item
            events.lesson(tx, "reaped-job", f"{work_item} {job.kind}: {reason}", task_id=job.task_id)

    def _reap(self, job: Job, reason: str) -> int:
        with self._database.write() as tx:
            status = jobs.reap_running_job(tx, job, reason)
            if status is None:
                return 0
            task = tasks.get(tx, job.task_id)
            data = {"job": job.kind, "error": reason, "status": status}
            events.append(tx, EventType.JOB_REQUEUED, Actor.REAPER, task=task, data=data)
            events.lesson(tx, "reaped-job", f"{task.work_item} {job.kind}: {reason}", task_id=task.id)
        self._wakeups.everything()
        self._wakeups.tasks([job.task_id])
        return 1
