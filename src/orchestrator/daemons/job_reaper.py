"""The reaper: tier 1 a dead owner, tier 2 a run that nobody watches any more, tier 3 the backstop (S-07). And the net
under a lost word that what this process is at has been cancelled.

It never acts beside a live owner; every change is a rowcount guard that somebody else may have won. Each job is judged
by itself: one that cannot be judged is told, and the pass goes on (law 9).
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

import structlog

from orchestrator.daemons.lost_jobs import Found, LostJobs, requeue
from orchestrator.daemons.queue_worker import QueueWorker
from orchestrator.db import events, jobs, tasks
from orchestrator.db.database import Database
from orchestrator.domain.ids import BootId
from orchestrator.domain.job import AgentRun, Job
from orchestrator.domain.lease import Actor
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.launcher import Launcher
from orchestrator.monitor import FREE_STARTS
from orchestrator.observability.never_raise import never_raises
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.wakeups import Wakeups

log = structlog.get_logger(__name__)

PAGE = 1000
ENDED = ("dead_owner", "not_finalised", "backstop")
OUT_OF_SCOPE = "out_of_scope"
LEFT_ALONE = ("owner_may_live", "left_behind", "lost", "within_grace", "at_work", "not_judged", OUT_OF_SCOPE)


class JobReaper:
    """Looks at running jobs."""

    name = "job_reaper"

    def __init__(
        self,
        database: Database,
        launcher: Launcher,
        worker: QueueWorker,
        lost: LostJobs,
        *,
        boot_id: BootId,
        clock: Clock,
        interval_s: float,
        finalize_grace_s: float,
        max_running_s: float,
        wakeups: Wakeups,
        scope: Scope = EVERYTHING,
    ) -> None:
        self.interval_s = interval_s
        self._database = database
        self._launcher = launcher
        self._worker = worker
        self._lost = lost
        self._boot_id = boot_id
        self._clock = clock
        self._grace_s = finalize_grace_s
        self._max_running_s = max_running_s
        self._wakeups = wakeups
        self._scope = scope
        self._counting = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys((*ENDED, *LEFT_ALONE), 0))
        self._noted: set[int] = set()  # jobs whose backstop is in the journal
        self._told: dict[int, float] = {}  # job → when it was first told to end
        self._left_at: dict[int, float] = {}  # job → when nobody was first seen at it
        self._unwanted: set[int] = set()  # jobs of ours that are being ended

    def run_once(self) -> dict[str, int]:
        """One pass over all running jobs."""
        counts = dict.fromkeys(ENDED, 0)
        at_work = self._worker.at_work()  # before the list: what is claimed meanwhile is on it
        running = self._running()
        self._end_unwanted(at_work, running)
        there = {job.id for job in running}
        self._left_at = {job_id: at for job_id, at in self._left_at.items() if job_id in there}
        self._noted &= there
        self._told = {job_id: at for job_id, at in self._told.items() if job_id in self._noted}
        for job in running:
            found = self._look(job)
            if found is None:
                log.warning(
                    "running job not judged; the next pass looks again", task=self._named(job), job=job.id
                )
            if found in counts:
                counts[found] += 1
            else:
                self._left(found or "not_judged")
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

    def _running(self) -> list[Job]:
        """All of them: those at the end of a long list are not left for ever."""
        found: list[Job] = []
        while True:
            with self._database.read() as tx:
                page = jobs.running_page(tx, after=found[-1].id if found else 0, limit=PAGE)
            found += page
            if len(page) < PAGE:
                return found

    def _end_unwanted(self, at_work: Mapping[int, int], running: Sequence[Job]) -> None:
        """End what this process is at for jobs that were cancelled, or given back and claimed anew: whoever did so may
        not have reached us. What another process has adopted is one and the same run, which goes on."""
        wanted: dict[int, int] = {job.id: job.claims for job in running}
        unwanted = {job_id for job_id, claims in at_work.items() if wanted.get(job_id) != claims}
        for job_id in unwanted:
            if job_id not in self._unwanted:
                log.info("what is no longer wanted is ended", job=job_id)
            self._worker.end(job_id, at_work[job_id], "the task no longer wants it")
        self._unwanted = unwanted

    def _left(self, why: str) -> None:
        with self._counting:
            self._counts[why] += 1

    @never_raises("", log)
    def _named(self, job: Job) -> str:
        with self._database.read() as tx:
            return tasks.get(tx, job.task_id).work_item

    @never_raises(None, log)
    def _look(self, job: Job) -> str | None:
        """What was done about one job, or why it was left alone."""
        if not self._covers(job):
            return OUT_OF_SCOPE
        if job.claimed_by != self._boot_id:
            return self._tier_1(job)
        running_for = self._worker.running_for(job.id)
        if running_for is None:
            return self._tier_2(job)
        return self._tier_3(job) if running_for > self._max_running_s else "at_work"

    def _covers(self, job: Job) -> bool:
        if self._scope.everything:  # the usual case: nothing is read for each of thousands
            return True
        with self._database.read() as tx:
            return self._scope.covers(tasks.get(tx, job.task_id).repo)

    def _tier_1(self, job: Job) -> str:
        """Another process has claimed it: where that is dead, its run is watched here (it is never paid for twice), and
        a job that never got so far goes back to the queue."""
        found = self._lost.take_over(job, Actor.REAPER)
        if found is Found.REQUEUED:
            self._wake(job)
        return "dead_owner" if found in (Found.ADOPTED, Found.REQUEUED) else found.value

    def _tier_2(self, job: Job) -> str:
        """Nobody in this process is at it any more: watch its run again after a grace, and finalise it with that.

        One without a run goes back. It costs no attempt, for what it had come to, or its claim, could not be stored.
        """
        now = self._clock.boottime()
        if now - self._left_at.setdefault(job.id, now) < self._grace_s:
            return "within_grace"
        with self._database.read() as tx:
            run = jobs.open_run_of_job(tx, job.id)
        if run is None:
            free = job.claims - job.attempts < FREE_STARTS
            gone = self._reap(job, "nobody was at it any more", None, free=free)
            self._left_at.pop(job.id, None)  # whoever claims it next has a grace of its own
            return "not_finalised" if gone else "lost"
        self._lost.resume(job, run)
        return "not_finalised"

    def _tier_3(self, job: Job) -> str:
        """Hung beyond every bound: end it, whoever holds what.

        First it is told to end, and whoever is at it finalises it. Where that thread hangs as well, the job is taken
        from it after a grace: never while its agent may live, and what the thread still says counts for nothing.
        """
        reason = f"it ran for more than {self._max_running_s:g} s (backstop)"
        self._wakeups.stop(job.id, reason)
        self._note_backstop(job, reason)
        now = self._clock.boottime()
        if now - self._told.setdefault(job.id, now) < self._grace_s:
            return "backstop"
        with self._database.read() as tx:
            run = jobs.open_run_of_job(tx, job.id)
        if (run is None or self._launcher.result(run) is not None) and self._reap(job, reason, run):
            self._worker.give_up(job.id)
            self._wakeups.everything()
        return "backstop"

    def _note_backstop(self, job: Job, reason: str) -> None:
        """One lesson per job, however many passes its end takes."""
        if job.id in self._noted:
            return
        self._noted.add(job.id)
        with self._database.write() as tx:
            work_item = tasks.get(tx, job.task_id).work_item
            events.lesson(tx, "reaped-job", f"{work_item} {job.kind}: {reason}", task_id=job.task_id)

    def _reap(self, job: Job, reason: str, judged: AgentRun | None, *, free: bool = False) -> bool:
        with self._database.write() as tx:
            if requeue(tx, job, reason, Actor.REAPER, judged=judged, free=free) is None:
                return False
        self._wake(job)
        return True

    def _wake(self, job: Job) -> None:
        self._wakeups.everything()
        self._wakeups.tasks([job.task_id], Actor.REAPER)
