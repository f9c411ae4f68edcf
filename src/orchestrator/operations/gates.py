"""The gates as people see them: what is frozen, lent and held, and who waits, in order."""

from orchestrator.db import slots, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task

FREEZE = "(freeze)"  # holds a slot that no task has


def serial_gate(tx: Tx) -> dict[str, object]:
    """Freezes with their loans, and everyone who waits for a slot, who has waited longest first."""
    waiters = [tasks.get(tx, task_id) for task_id in tasks.waiting_for_slot(tx)]
    return {
        "frozen": [
            {
                "repo": freeze.repo,
                "reason": freeze.reason,
                "task": freeze.work_item,
                "since": freeze.frozen_at,
                "lent_to": freeze.lent_item,
                "holder": _holder(slots.get(tx, slots.merge_slot(freeze.repo))),
            }
            for freeze in slots.freezes(tx)
        ],
        "waiting": [task.work_item for task in waiters],
        "waiters": [
            {"task": t.work_item, "repo": t.repo, "since": t.hold_since, "reason": t.hold_reason}
            for t in waiters
        ],
    }


def merge_gate(tx: Tx) -> dict[str, object]:
    """Every slot that is held: by whom, since when, and to whom a freeze has lent it."""
    lent = {slots.merge_slot(freeze.repo): freeze.lent_item for freeze in slots.freezes(tx)}
    return {
        "slots": [
            {
                "slot": slot.name,
                "repo": slot.repo,
                "task": _holder(slot),
                "since": slot.taken_at,
                "lent_to": lent.get(slot.name),
            }
            for slot in slots.all_slots(tx)
        ]
    }


def at_the_gate(tx: Tx, task: Task) -> str:
    """What to add to a task's reason for waiting: who has the slot, its place in the line, the loan of the freeze."""
    if task.hold is Hold.SLOT:
        holder = slots.get(tx, slots.merge_slot(task.repo))
        by = f", held by {holder.work_item or 'the freeze'}" if holder is not None else ""
        ahead = [t for t in tasks.waiting_for_slot(tx) if t == task.id or tasks.get(tx, t).repo == task.repo]
        return by + (f", number {ahead.index(task.id) + 1} in the line" if task.id in ahead else "")
    frozen = slots.frozen(tx, task.repo)
    if frozen is None or (task.hold is not Hold.FROZEN and task.stage is not Stage.DEPLOY):
        return ""
    if frozen.lent_to is None:
        return "" if task.hold is Hold.FROZEN else "; the freeze keeps the merge slot"
    if frozen.lent_to == task.id:
        return "; the merge slot is lent to it"
    return f"; the merge slot is lent to {frozen.lent_item} ({tasks.get(tx, frozen.lent_to).stage})"


def _holder(slot: slots.Slot | None) -> str | None:
    if slot is None:
        return None
    return slot.work_item or FREEZE
