"""Epochs from the future: a task whose ledger or story shows a higher epoch than the task itself has. Only a hand in
the database does that.

Where an epoch was set back, it would come by again to the one under which an earlier owner still believes to act. Safe
default: it goes on above whatever was seen. A person is told once, for nobody else knows what else was changed.
"""

import structlog

from orchestrator.db import alerts, events, leases, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.db.leases import FallenBehind
from orchestrator.domain.event import EventType
from orchestrator.domain.lease import Actor
from orchestrator.observability.never_raise import never_raises

log = structlog.get_logger(__name__)

BELIEVABLE = 2**53  # above that it was no counting that led there, and nothing could be counted on from it


class EpochAudit:
    """Compares the epochs of open tasks with what was done under them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @never_raises(0, log)
    def run_once(self) -> int:
        """How many were found and told."""
        with self._database.read() as tx:
            if not leases.fallen_behind(tx):
                return 0
        with self._database.write() as tx:
            return sum(self._set_right(tx, each) for each in leases.fallen_behind(tx))

    def _set_right(self, tx: Tx, behind: FallenBehind) -> bool:
        task = tasks.get(tx, behind.task_id)
        lifted = behind.seen < BELIEVABLE and leases.lift(tx, behind, behind.seen + 1)
        text = (
            f"{task.work_item} is at epoch {behind.epoch}, but something was done under epoch {behind.seen}: the "
            "database was changed by hand. "
            + (f"It goes on at {behind.seen + 1}." if lifted else "That number is not believed.")
            + f" Look whether its story is still true: orch task show {task.work_item} --events"
        )
        if not alerts.call(
            tx, text, "epoch", task.id, behind.seen, task_id=task.id, work_item=task.work_item
        ):
            return False
        events.append(tx, EventType.NOTE, Actor.RECONCILER, task=task, data={"text": text})
        log.warning("an epoch from the future", task=task.work_item, epoch=behind.epoch, seen=behind.seen)
        return True
