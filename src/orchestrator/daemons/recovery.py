"""Recovery at start is no special path (DESIGN §6): checks and builds of an earlier life are ended, jobs are given back
or adopted, and every open task is looked at through the ordinary door, where unsettled effects come first.

What must hold: only what belongs to a process that has ended is touched, provably or because its term is over; another
one that lives on the same database is left alone.
"""

from collections.abc import Sequence

import structlog

from orchestrator.daemons.lost_jobs import Claimed, Found, LostJobs
from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.db import effects, events, jobs, leases, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId
from orchestrator.domain.job import AgentRun, Job
from orchestrator.domain.lease import Actor
from orchestrator.observability.never_raise import never_raises
from orchestrator.ownership.judge import Judge
from orchestrator.places import INSTALLATION, PROCESS, Folders
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.process import Liveness
from orchestrator.runtime.sweep import sweep
from orchestrator.transition_lease import Ownership
from orchestrator.workspace.folders import remove_tree

log = structlog.get_logger(__name__)

PAGE = 500
FAILED = "failed"
FORGOTTEN_S = (
    7 * 86_400.0
)  # a process of which nothing can be proved is remembered for so long after its last sign


class Recovery:
    """What an earlier life left behind."""

    def __init__(
        self,
        database: Database,
        lost: LostJobs,
        driver: TaskDriver,
        folders: Folders,
        ownership: Ownership,
        *,
        boot_id: BootId,
        judge: Judge,
        process_ttl_s: float,
        max_held_s: float,
        clock: Clock,
    ) -> None:
        self._database = database
        self._lost = lost
        self._driver = driver
        self._folders = folders
        self._ownership = ownership
        self._max_held_s = max_held_s
        self._boot_id = boot_id
        self._judge = judge
        self._ttl_s = process_ttl_s
        self._clock = clock

    def requeue_running_jobs(self) -> int:
        """Give back the checks that ended processes were running (agents' jobs are looked at one by one).

        Whatever is left of them, and of builds, is ended first: nothing of it may run beside its repetition.
        """
        with self._database.read() as tx:
            owners = jobs.others_at_work(tx, self._boot_id)
        ended = owners - self._alive()  # in this order: whoever was at a job was on the list before
        if not self._judge.may_take_over():
            log.warning("nothing of other processes is taken over now; the reaper does it later")
            return 0
        left = self._end_earlier_work()
        if left or not self._judge.may_take_over():  # that may have taken a while
            log.warning("left by an earlier life, and does not end; the reaper looks again", pids=left)
            return 0
        found = []
        with self._database.write() as tx:
            for owner in ended:
                found += jobs.requeue_running_jobs(tx, owner, "the service was restarted")
            for task_id, kind in found:
                data = {"job": kind, "error": "the service was restarted"}
                events.append(
                    tx, EventType.JOB_REQUEUED, Actor.RECOVERY, task=tasks.get(tx, task_id), data=data
                )
        return len(found)

    def recover_on_startup(self) -> dict[str, int]:
        """Clear the leases of the dead; adopt runs, be they over, give back jobs that have none; then have every open
        task looked at (FR-4)."""
        counts = {"looked_at": 0}
        counts["reclaimed"] = self._reclaim()
        counts |= self.adopt()
        counts["looked_at"] = self._look_at_open_tasks()
        self._forget_dead_processes()
        return counts

    def adopt(self) -> dict[str, int]:
        """Watch the runs again that ended processes have left, and give back jobs that have none; all that a worker has
        to recover."""
        counts = dict.fromkeys((*Found, FAILED), 0)
        claimed: list[tuple[Job, AgentRun]] = []
        after = 0
        while page := self._left(after):
            after = page[-1].id
            at_once = self._claim_runs(page)
            claimed += at_once.runs
            counts[Found.OWNER_MAY_LIVE] += len(at_once.others)
            done = {job.id for job, _ in at_once.runs} | at_once.others
            for job in page:
                if job.id not in done:
                    self._count(counts, self._recover(job), job)
        for job, run in claimed:
            self._count(counts, self._resume(job, run), job)
        return counts

    def _left(self, after: int) -> list[Job]:
        with self._database.read() as tx:
            return jobs.running_of_others(tx, self._boot_id, after=after, limit=PAGE)

    def _count(self, counts: dict[str, int], outcome: str, job: Job) -> None:
        counts[outcome] += 1
        if outcome == FAILED:
            log.error("job not recovered; the reaper looks at it again", job=job.id, task=job.task_id)

    def _reclaim(self) -> int:
        """Until a look finds nothing more: one look does not see all of very many."""
        total = 0
        while taken := len(self._ownership.reclaim(Actor.RECOVERY, self._max_held_s)):
            total += taken
        return total

    def _alive(self) -> set[BootId]:
        """Every process that has not ended, this one among them."""
        read_at = self._clock.boottime()
        with self._database.read() as tx:
            rows, now = leases.processes(tx, self._ttl_s), leases.now(tx)
        self._judge.compare(now, read_at)
        others = {row.boot_id for row in rows if self._judge.process(row) is not Liveness.DEAD}
        return others | {self._boot_id}

    def _end_earlier_work(self) -> tuple[int, ...]:
        """What this installation's ended processes have started; what of it does not end. Agents and deploys are not
        ours to end (law 8).

        Who lives is asked after each look at what there is: another process that has just started is on the list before
        it makes anything.
        """
        mark = self._folders.marks()[INSTALLATION]
        left = sweep(
            f"{INSTALLATION}={mark}", spare=lambda: [f"{PROCESS}={boot_id}" for boot_id in self._alive()]
        )
        if left or not self._folders.all_checkouts.is_dir():
            return left
        checkouts = list(self._folders.all_checkouts.iterdir())
        alive = self._alive()
        for checkout in checkouts:
            if checkout.name in alive:
                continue
            try:
                remove_tree(checkout)
            except OutsideError as error:  # only room is lost: no later checkout has its name
                log.warning("checkout of an earlier life not removed", reason=str(error))
        return left

    @never_raises(Claimed(), log)
    def _claim_runs(self, page: Sequence[Job]) -> Claimed:
        """None of them where one cannot be claimed: then they are looked at one by one."""
        return self._lost.claim_runs(page)

    @never_raises(FAILED, log)
    def _resume(self, job: Job, run: AgentRun) -> str:
        self._lost.resume_soon(job, run)
        return Found.ADOPTED

    @never_raises(FAILED, log)
    def _recover(self, job: Job) -> str:
        """One broken task, run folder or repository does not keep the others from starting (law 9)."""
        return self._lost.take_over(job, Actor.RECOVERY)

    def _look_at_open_tasks(self) -> int:
        with self._database.read() as tx:
            unsettled, everything = effects.tasks_unsettled(tx), tasks.open_ids(tx)
        self._driver.settle(unsettled, Actor.RECOVERY)  # before anything else is begun
        self._driver.wake(everything, Actor.RECOVERY)
        return len(everything)

    def _forget_dead_processes(self) -> None:
        """What a lease or a running job names is kept, and so is one that may only be silent: it could come back."""
        if not self._judge.may_take_over():
            return
        with self._database.read() as tx:
            rows = [row for row in leases.processes(tx, FORGOTTEN_S) if row.boot_id != self._boot_id]
        ended = [row for row in rows if self._judge.process(row) is Liveness.DEAD]
        with self._database.write() as tx:
            named = {row.owner_boot_id for row in leases.all_rows(tx)}
            named |= jobs.others_at_work(tx, self._boot_id)
            for process in ended:
                if process.boot_id not in named:
                    leases.forget_process(tx, process.boot_id)
