"""Who is finalising a task inside this process: the fast answer before the durable one (S-08, ORCH-113).

Process-local, under a lock, never raises. The durable layer over it is :mod:`orchestrator.transition_lease`.
"""

import threading
from dataclasses import dataclass

from orchestrator.domain.ids import RunId, TaskId
from orchestrator.domain.lease import Actor


@dataclass(frozen=True, slots=True)
class Finalizing:
    """One entry of the registry."""

    owner: Actor
    run_id: RunId | None
    started: float  # seconds of CLOCK_BOOTTIME


class FinalizerLiveness:
    """The registry of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[TaskId, Finalizing] = {}

    def begin(self, task_id: TaskId, entry: Finalizing) -> bool:
        """Enter a task; False where another thread of this process has it."""
        with self._lock:
            if task_id in self._entries:
                return False
            self._entries[task_id] = entry
            return True

    def end(self, task_id: TaskId) -> None:
        """Take a task off; one that is not there is no error."""
        with self._lock:
            self._entries.pop(task_id, None)

    def get(self, task_id: TaskId) -> Finalizing | None:
        """Who has the task, None where nobody of this process does."""
        with self._lock:
            return self._entries.get(task_id)

    def snapshot(self) -> dict[TaskId, Finalizing]:
        """All entries."""
        with self._lock:
            return dict(self._entries)
