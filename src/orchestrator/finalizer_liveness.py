"""Who is finalising what inside this process: the fast answer before the durable one (S-08, ORCH-113).

Process-local, under a lock, never raises. The durable layer over it is :mod:`orchestrator.transition_lease`.
"""

import threading
from dataclasses import dataclass

from orchestrator.domain.ids import JobId, RunId, TaskId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage


@dataclass(slots=True, eq=False)
class Finalizing:
    """One entry of the registry. It is equal to itself alone, so that whoever comes late ends no other one's entry."""

    owner: Actor
    run_id: RunId | None
    started_ts: float  # seconds of CLOCK_BOOTTIME
    job_id: JobId | None = None
    stage: Stage | None = None  # known once the task has been read


class FinalizerLiveness:
    """The registry of one process: one entry for a task, whoever asks first."""

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

    def end(self, task_id: TaskId, entry: Finalizing) -> bool:
        """Take exactly this entry off; False where it is not there any more."""
        with self._lock:
            if self._entries.get(task_id) is not entry:
                return False
            del self._entries[task_id]
            return True

    def get(self, task_id: TaskId) -> Finalizing | None:
        """Who has the task, None where nobody of this process does."""
        with self._lock:
            return self._entries.get(task_id)

    def snapshot(self) -> dict[TaskId, Finalizing]:
        """All entries."""
        with self._lock:
            return dict(self._entries)

    def jobs(self) -> dict[JobId, dict[str, object]]:
        """The seed's view: ``{job_id: {"run_id", "stage", "started_ts"}}`` of jobs whose end is being worked on."""
        return {
            entry.job_id: {"run_id": entry.run_id, "stage": entry.stage, "started_ts": entry.started_ts}
            for entry in self.snapshot().values()
            if entry.job_id is not None
        }
