"""The product's own way: ownership, epochs, grouped commits, typed rows; the functions that every actor calls."""

from itertools import count

from orchestrator.db import events, jobs, leases, mail, tasks
from orchestrator.db.database import Database
from orchestrator.db.jobs import NewJob
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId, TaskId, TransitionId
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.ownership.term import Term
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.process import SystemProcesses
from orchestrator.transition_lease import Ownership

TERM_S = 24 * 3600.0  # nobody renews it: longer than any measurement


class Product:
    """One process of the product, without its daemons."""

    def __init__(self, database: Database) -> None:
        clock, entropy, processes = SystemClock(), SystemEntropy(), SystemProcesses()
        self._boot_id = BootId(entropy.token())
        self._database = database
        term = Term(clock, TERM_S)
        term.renew(clock.boottime())
        self._ownership = Ownership(
            self._database,
            boot_id=self._boot_id,
            processes=processes,
            clock=clock,
            liveness=FinalizerLiveness(),
            term=term,
        )
        self._serial = count()
        with self._database.write() as tx:
            leases.register_process(tx, self._boot_id, "here", processes.own(), "bench", "")

    def transition(self, task_id: TaskId) -> None:
        """Acquire, then the stage and all that belongs to it, with the release, in one commit."""
        with self._ownership.transition(task_id, Actor.MONITOR) as lease:
            assert lease is not None
            target = Stage.REVIEW if lease.stage is Stage.DEVELOPMENT else Stage.DEVELOPMENT
            transition_id = TransitionId(f"{self._boot_id}-{next(self._serial)}")
            with self._database.write() as tx:
                leases.check(tx, lease)
                task = tasks.get(tx, task_id)
                jobs.cancel_active(tx, task_id, "it moved")
                assert tasks.update_task_stage_cas(tx, task_id, task.stage, target, epoch=lease.epoch)
                moved = tasks.get(tx, task_id)
                events.append(
                    tx,
                    EventType.STAGE_CHANGED,
                    lease.owner,
                    task=task,
                    to_stage=target,
                    epoch=moved.epoch,
                    transition_id=transition_id,
                    data={"reason": "passed"},
                )
                jobs.enqueue(tx, moved, NewJob(JobKind.DEVELOPER))
                mail.send(tx, "tracker.stage", transition_id, {"stage": target}, task_id=task_id)
                self._ownership.release(tx, lease, epoch=moved.epoch)

    def claim_and_finish(self) -> bool:
        """Two commits; False once the queue is empty."""
        with self._database.write() as tx:
            job = jobs.claim_next_job(tx, self._boot_id)
        if job is None:
            return False
        with self._database.write() as tx:
            assert jobs.finish(tx, job, self._boot_id, JobStatus.DONE)
        return True

    def close(self) -> None:
        with self._database.write() as tx:
            leases.forget_process(tx, self._boot_id)
        self._database.close()
