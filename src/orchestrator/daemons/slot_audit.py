"""Slots and freezes that contradict the tasks they name: only a hand in the database, or a fault of ours, does that.

Safe defaults: a slot whose holder cannot be using it is freed, under a freeze for the freeze; a freeze whose task has
ended stays, for nobody can say whether production is well. A person is told once of each; the queue goes on (law 9).
"""

from collections.abc import Iterator

import structlog

from orchestrator.db import alerts, effects, events, slots, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import TaskId, WorkItem
from orchestrator.domain.lease import Actor
from orchestrator.observability.never_raise import never_raises
from orchestrator.stage_engine import serial_gate

log = structlog.get_logger(__name__)

Complaint = tuple[
    str, str, TaskId | None, WorkItem | None
]  # what makes it the same one, text, whom it is about


class SlotAudit:
    """Compares slots and freezes with the stages of their tasks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @never_raises((0, []), log)
    def run_once(self) -> tuple[int, list[TaskId]]:
        """How many contradictions were found and told, and whose turn has come by it."""
        with self._database.read() as tx:
            if not any(True for _ in self._found(tx)):
                return 0, []
        told = 0
        with self._database.write() as tx:
            for key, text, task_id, work_item in list(self._found(tx)):
                if alerts.call(tx, text, "slots", key, task_id=task_id, work_item=work_item):
                    log.warning("slots contradict the tasks", reason=text, task=work_item)
                    events.lesson(tx, "slots", text, task_id=task_id)
                    told += 1
            wake = self._mend(tx)
        return told, wake

    def _found(self, tx: Tx) -> Iterator[Complaint]:
        frozen = {freeze.repo: freeze for freeze in slots.freezes(tx)}
        for slot, stage in slots.unfit(tx):
            text = f"The slot {slot.name} named {slot.work_item}, which is {stage} and has no use for it. It is freed."
            yield f"{slot.name}:{slot.task_id}:{slot.taken_at}", text, slot.task_id, slot.work_item
        for slot in slots.all_slots(tx):
            if slot.frozen and slot.repo not in frozen:
                text = f"The slot {slot.name} was kept for a freeze that is gone. It is freed."
                yield f"{slot.name}:{slot.taken_at}", text, None, None
        for freeze in frozen.values():
            yield from self._of_a_freeze(tx, freeze)

    def _of_a_freeze(self, tx: Tx, freeze: slots.Freeze) -> Iterator[Complaint]:
        key = f"{freeze.repo}:{freeze.frozen_at}"
        if slots.get(tx, slots.merge_slot(freeze.repo)) is None:
            text = f"{freeze.repo} was frozen with a free merge slot. The freeze keeps it now."
            yield f"free:{key}", text, freeze.task_id, freeze.work_item
        borrower = tasks.get(tx, freeze.lent_to) if freeze.lent_to is not None else None
        if borrower is not None and borrower.stage.terminal:
            text = f"The merge slot of {freeze.repo} was lent to {borrower.work_item}, which is {borrower.stage}."
            yield f"loan:{key}:{borrower.id}", text, borrower.id, borrower.work_item
        cause = tasks.get(tx, freeze.task_id) if freeze.task_id is not None else None
        if cause is None or cause.stage.terminal:
            why = f"{cause.work_item}, which froze it, is {cause.stage}" if cause else "no task has frozen it"
            text = (
                f"{freeze.repo} is frozen ({freeze.reason}), but {why}: nothing will lift that by itself. Look at "
                f"production, then: orch unfreeze {freeze.repo}"
            )
            yield f"freeze:{key}", text, freeze.task_id, freeze.work_item

    def _mend(self, tx: Tx) -> list[TaskId]:
        repos = set()
        for slot, _ in slots.unfit(tx):
            if slot.task_id is not None and not effects.unsettled(tx, slot.task_id):
                serial_gate.give_back(tx, tasks.get(tx, slot.task_id), Actor.RECONCILER)
                repos.add(slot.repo)
        frozen = {freeze.repo: freeze for freeze in slots.freezes(tx)}
        for slot in slots.all_slots(tx):
            if slot.frozen and slot.repo not in frozen:
                slots.free_of_freeze(tx, slot.repo)
                events.append(tx, EventType.SLOT_FREED, Actor.RECONCILER, data={"slot": slot.name})
                repos.add(slot.repo)
        for freeze in frozen.values():
            slots.keep_for_freeze(tx, freeze.repo)
            if freeze.lent_to is not None and tasks.get(tx, freeze.lent_to).stage.terminal:
                slots.end_loan(tx, freeze.lent_to)
        return [task_id for repo in sorted(repos) for task_id in serial_gate.whose_turn(tx, repo)]
