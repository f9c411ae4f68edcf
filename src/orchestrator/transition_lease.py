"""Durable ownership of a task's transition (laws 1 and 6, FR-1).

``with ownership.transition(task_id, Actor.MONITOR) as lease`` yields a lease, or None where another owns the task.
At most one live lease per task; the epoch rises at every acquisition; a lease is live iff its process is.
Public functions never raise: an error is a WARNING and "busy" (nothing is done rather than done twice).
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog

from orchestrator.db import leases, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.db.leases import Held
from orchestrator.domain.errors import LostRace, OrchestratorError, OutsideError
from orchestrator.domain.ids import BootId, JobId, RunId, TaskId
from orchestrator.domain.lease import Actor, Lease, why_not_believed
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.domain.task import Task
from orchestrator.finalizer_liveness import FinalizerLiveness, Finalizing
from orchestrator.observability.never_raise import never_raises
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.ownership.judge import Judge, age_s, warn_if_odd
from orchestrator.ownership.reclaims import Case, Reclaimed, Reclaims, Why, tell
from orchestrator.ownership.term import Term
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.process import Liveness, Processes

log = structlog.get_logger(__name__)


class Ownership:
    """Acquires, gives back and judges leases for one process."""

    def __init__(
        self,
        database: Database,
        *,
        boot_id: BootId,
        processes: Processes,
        clock: Clock,
        liveness: FinalizerLiveness,
        term: Term,
        scope: Scope = EVERYTHING,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.boot_id = boot_id
        self._database = database
        self._term = term
        self._telemetry = telemetry or Telemetry()
        self.judge = Judge(boot_id=boot_id, processes=processes, clock=clock, term=term)
        self._pid = processes.own().pid  # shown to people; the boot id is what identifies us
        self._clock = clock
        self._liveness = liveness
        self._scope = scope
        self._counting = threading.Lock()
        self._defers: dict[str, int] = {}
        self._released: set[Lease] = set()  # given back by a transition's commit
        self._reclaims = Reclaims(
            database,
            boot_id=boot_id,
            judge=self.judge,
            liveness=liveness,
            term=term,
            scope=scope,
            clock=clock,
            telemetry=self._telemetry,
        )

    @contextmanager
    def transition(
        self, task_id: TaskId, owner: Actor, *, run_id: RunId | None = None, job_id: JobId | None = None
    ) -> Iterator[Lease | None]:
        """Own the task for the length of the block; None where it is busy, gone or ended (deferred and counted).

        The lease is given back on every way out, unless the block's own commit has already done so. ``run_id`` and
        ``job_id`` say whose end is being worked on, where it is one's.
        """
        entry = Finalizing(owner, run_id, self._clock.boottime(), job_id)
        lease = self._acquire(task_id, entry)
        if lease is None:
            self._defer(task_id, owner)
            yield None
            return
        try:
            yield lease
        except BaseException:
            self._released.discard(lease)  # the commit that was to give it back may have failed
            raise
        finally:
            if lease not in self._released:
                self._give_back(lease)
            self._released.discard(lease)
            self._liveness.end(task_id, entry)

    def release(self, tx: Tx, lease: Lease, *, epoch: int) -> None:
        """Give the lease back inside the transition's own commit, under the epoch that the stage write has raised.

        Where that fails, the commit decides about the transition, and the lease is given back like any other.
        """
        if not lease.durable or self._release_in(tx, lease, epoch):
            self._released.add(lease)

    @never_raises((), log)
    def reclaim(self, actor: Actor, max_held_s: float, *, of: Scope = EVERYTHING) -> Sequence[Reclaimed]:
        """Take every lease whose owner is dead, and every one that was held for longer than the backstop, from whoever
        has it (FR-3, tier 3). ``of``: whose tasks are looked at; the leases of no task always are."""
        return self._reclaims.sweep(actor, max_held_s, of)

    def covers(self, repo: str) -> bool:
        """Whether a repository's tasks are leased at all (FR-7)."""
        return self._scope.covers(repo)

    def owner_of(self, task: Task) -> str | None:
        """Who owns a task now, by its lease or by what a thread of this process does; None: nobody, or unknown."""
        case = self._reclaims.of_person(task.id, "", "")
        return case.owner() if case is not None else None

    def release_by_person(self, task_id: TaskId, *, person: str, reason: str) -> Reclaimed | None:
        """Take a task from its owner because a person says so; None where nobody has it, or it could not be stored."""
        case = self._reclaims.of_person(task_id, person, reason)
        return self._reclaims.take_away(case) if case is not None else None

    def free(self, task_id: TaskId, asker: Actor) -> bool:
        """Whether nobody owns the task just now; False also where that cannot be told (FR-5). A no is counted.

        An answer, no ownership: whoever wants to move the task asks for :meth:`transition`.
        """
        leased = self._liveness.get(task_id) is not None or self._leased(task_id)
        if leased is None:
            log.warning("lease not read", task_id=task_id, owner=asker.value)
        free = leased is False
        if not free:
            self._defer(task_id, asker)
        return free

    @never_raises(None, log)
    def owners(self) -> dict[int, Liveness] | None:
        """Whether the owner of each leased task lives; one of our own that no thread holds is as good as dead, for
        giving it back had failed. None: the leases cannot be read."""
        busy = self._liveness.snapshot()
        judged: dict[int, Liveness] = {}
        if self._scope.enabled:
            with self._database.read() as tx:
                for row in leases.all_rows(tx):
                    if row.repo is None or self._scope.covers(row.repo):
                        ours = row.owner_boot_id == self.boot_id
                        judged[row.task_id] = (
                            Liveness.DEAD if ours else self.judge.owner(row, self._process(tx, row))
                        )
        return judged | dict.fromkeys(busy, Liveness.ALIVE)

    def snapshot(self) -> dict[str, object]:
        """What ``GET /queue`` shows of ownership: holders (None: not readable), defers, reclaims (FR-6)."""
        taken = self._reclaims.counts()
        with self._counting:
            return {
                "enabled": self._scope.enabled,
                "scope": sorted(self._scope.named()),
                "holders": self._holders(),
                "deferred": dict(self._defers),
                "stale_reclaims": taken[Why.STALE],
                "forced_reclaims": taken[Why.FORCED],
                "finalizing": self._liveness.jobs(),
                "term": self._term.snapshot(),
            }

    @never_raises(None, log)
    def _acquire(self, task_id: TaskId, entry: Finalizing) -> Lease | None:
        if not self._liveness.begin(task_id, entry):
            return None
        lease = None
        try:
            lease = self._take_if_free(task_id, entry)
        except LostRace as lost:
            log.info(
                "lease lost to another actor", task_id=task_id, owner=entry.owner.value, reason=str(lost)
            )
        except OrchestratorError as error:
            log.warning("lease not acquired", task_id=task_id, owner=entry.owner.value, reason=str(error))
        finally:
            if lease is None:
                self._liveness.end(task_id, entry)
        if lease is None:
            return None
        self._telemetry.count(Metric.LEASE_ACQUIRED, entry.owner)
        if self._liveness.get(task_id) is entry:
            return lease
        self._give_back(lease)  # this very thread was taken for hung while it waited
        return None

    @never_raises(None, log)
    def _leased(self, task_id: TaskId) -> bool | None:
        """None: that cannot be told."""
        with self._database.read() as tx:
            covered = self._scope.covers(tasks.get(tx, task_id).repo)
            held = leases.held(tx, task_id, self._term.process_ttl_s) if covered else None
        if held is None or held.row.owner_boot_id == self.boot_id:
            return False  # ours, and no thread holds it: giving it back had failed
        return self.judge.owner(held.row, held.process) is not Liveness.DEAD

    def _take_if_free(self, task_id: TaskId, entry: Finalizing) -> Lease | None:
        """Take it at once where nobody has it. Else judge who has it, outside of any transaction, and then take over
        exactly what was judged."""
        read_at = self._clock.boottime()
        taken = self._take(task_id, entry, None)
        if not isinstance(taken, Held):
            return taken
        warn_if_odd(taken.row)
        # One of our own that no thread holds: giving it back had failed (the registry was entered just now).
        ours = taken.row.owner_boot_id == self.boot_id
        if not ours and not self.judge.replaceable(taken, read_at):
            return None
        reason = "nobody of its process is at it any more" if ours else "its owner is dead"
        case = Case(task_id, entry.owner, Why.STALE, reason, taken, None)
        lease = self._take(task_id, entry, case)
        if isinstance(lease, Held):
            return None
        if lease is not None:
            self._reclaims.count(case)
        return lease

    def _take(self, task_id: TaskId, entry: Finalizing, case: Case | None) -> Lease | Held | None:
        """The lease; or who holds it, where that is not what was judged; or None: ended, lost, or not ours to take."""
        term, judged = self._term.number(), case.held if case else None
        with self._database.write() as tx:
            task = tasks.get(tx, task_id)
            if task.stage.terminal:
                return None
            if (odd := why_not_believed(task.epoch)) is not None:
                raise OutsideError(f"{task.work_item}: {odd}")
            entry.stage = task.stage
            durable = self._scope.covers(task.repo)
            lease = Lease(
                task_id,
                entry.owner,
                self.boot_id,
                task.epoch + 1,
                task.stage,
                entry.run_id,
                durable,
                term or 0,
            )
            if not durable:  # switch and scope turn off law 1 only: the epoch rises all the same
                return lease if leases.raise_epoch(tx, lease) else None
            if term is None:
                raise OutsideError(f"{task.work_item}: this process's own term has ended")
            found = leases.held(tx, task_id, self._term.process_ttl_s)
            if found != judged:
                return found
            if not leases.acquire(tx, lease, self._pid, judged.row if judged else None):
                return None
            if case is not None:
                tell(tx, case, task, lease.epoch)
            return lease

    @never_raises(None, log)
    def _holders(self) -> list[dict[str, object]] | None:
        with self._database.read() as tx:
            now = leases.now(tx)
            return [self._holder(tx, row, now) for row in leases.all_rows(tx)]

    def _holder(self, tx: Tx, row: leases.LeaseRow, now: str) -> dict[str, object]:
        age = age_s(row, now)
        return {
            "task": row.work_item or row.task_id,
            "owner": row.owner,
            "stage": row.stage,
            "since": row.acquired_at,
            "age_s": None if age is None else int(age),
            "liveness": self.judge.owner(row, self._process(tx, row)).value,
        }

    def _process(self, tx: Tx, row: leases.LeaseRow) -> leases.ProcessRow | None:
        return leases.process(tx, row.owner_boot_id, self._term.process_ttl_s) if row.owner_boot_id else None

    @never_raises(False, log)
    def _release_in(self, tx: Tx, lease: Lease, epoch: int) -> bool:
        tx.execute("leases.release", task_id=lease.task_id, boot_id=self.boot_id, epoch=epoch)
        return True

    @never_raises(None, log)
    def _give_back(self, lease: Lease) -> None:
        """What cannot be given back is taken over by whoever of this process comes next."""
        if not lease.durable:
            return
        try:
            with self._database.write() as tx:
                leases.release(tx, lease)
        except OrchestratorError as error:
            log.warning("lease not given back", task_id=lease.task_id, reason=str(error))

    def _defer(self, task_id: TaskId, owner: Actor) -> None:
        log.debug("stood back from a task", task_id=task_id, owner=owner.value)
        with self._counting:
            self._defers[owner.value] = self._defers.get(owner.value, 0) + 1
        self._telemetry.count(Metric.LEASE_DEFERRED, owner)
