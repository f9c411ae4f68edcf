"""Durable ownership of a task's transition (law 1)."""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.ids import BootId, RunId, TaskId
from orchestrator.domain.stage import Stage


class Actor(StrEnum):
    """Whoever may move a task; the ``owner`` of a lease."""

    MONITOR = "monitor"
    REAPER = "reaper"
    RECONCILER = "reconciler"
    WEBHOOK = "webhook"
    FINALIZER = "finalizer"
    RECOVERY = "recovery"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Lease:
    """Proof of ownership: whoever holds it may write under ``epoch`` and under no other."""

    task_id: TaskId
    owner: Actor
    boot_id: BootId
    epoch: int
    stage: Stage
    run_id: RunId | None = None
