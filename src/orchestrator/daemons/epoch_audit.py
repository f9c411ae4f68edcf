"""Epochs from the future: a task whose ledger or story shows a higher epoch than the task itself has. Only a hand in
the database does that.

Where an epoch was set back, it would come by again to the one under which an earlier owner still believes to act. Safe
default: it goes on above whatever was seen. A task that is itself at a number to which no counting leads stands still,
for near the end it could not rise any more. A person is told once, for nobody else knows what else was changed.
"""

import structlog

from orchestrator.db import alerts, events, leases, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.db.leases import Beyond, FallenBehind
from orchestrator.domain.event import EventType
from orchestrator.domain.lease import BELIEVABLE, Actor, why_not_believed
from orchestrator.observability.never_raise import never_raises

log = structlog.get_logger(__name__)


class EpochAudit:
    """Compares the epochs of open tasks with what was done under them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @never_raises(0, log)
    def run_once(self) -> int:
        """How many were found and told."""
        with self._database.read() as tx:
            if not leases.fallen_behind(tx) and not leases.beyond(tx):
                return 0
        with self._database.write() as tx:
            told = sum(self._tell(tx, each) for each in leases.beyond(tx))
            return told + sum(self._set_right(tx, each) for each in leases.fallen_behind(tx))

    def _tell(self, tx: Tx, beyond: Beyond) -> bool:
        task = tasks.get(tx, beyond.task_id)
        text = (
            f"{task.work_item}: {why_not_believed(beyond.epoch)}. Nothing is done for it, and what it holds stays "
            "taken. Put the database back from a backup; or file the ticket anew."
        )
        about = ("epoch beyond", task.id, beyond.epoch)
        if not alerts.call(tx, text, *about, task_id=task.id, work_item=task.work_item):
            return False
        data = {"text": text}
        events.append(tx, EventType.NOTE, Actor.RECONCILER, task=task, epoch=beyond.seen, data=data)
        log.warning("an epoch that is not believed", task=task.work_item, epoch=beyond.epoch)
        return True

    def _set_right(self, tx: Tx, behind: FallenBehind) -> bool:
        task = tasks.get(tx, behind.task_id)
        lifted = behind.seen + 1 < BELIEVABLE and leases.lift(tx, behind, behind.seen + 1)
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
