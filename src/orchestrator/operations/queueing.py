"""What waits in the queue and for what: caps, places of a process, a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from orchestrator.db import homes, lanes, leases, repositories
from orchestrator.db.database import Tx
from orchestrator.db.homes import WorkerHome
from orchestrator.domain.ids import SHARED_HOME, Home, TaskId
from orchestrator.domain.job import Job
from orchestrator.domain.shares import Lane, Share, Shares, taken
from orchestrator.domain.task import Task


@dataclass(frozen=True, slots=True)
class Queueing:
    """How the places are taken, as one snapshot shows it."""

    shares: Mapping[str, Share]
    waiting: Mapping[int, Lane]
    here: Mapping[str, object]  # what the worker of this process is at; empty where none runs
    now: str
    homes: Mapping[Home, WorkerHome]  # of workers

    def at_a_worker(self, task: Task | None) -> str:
        """Where work of a task lies that only one worker sees; empty where everybody does."""
        home = self.homes.get(task.work_home) if task is not None and task.work_home else None
        return str(home) if home is not None else ""

    def waits_for(self, job: Job, task: Task | None) -> str:
        """What keeps a queued job from being claimed; empty where only its turn has to come."""
        if lies := self.at_a_worker(task):
            return f"its work lies at the worker in {lies}"
        if task is not None and task.work_home == SHARED_HOME and self.here.get("max_agents") == 0:
            return "its work lies in the services' folder, and no agents run there (ORCH_MAX_AGENTS)"
        if job.not_before is not None and job.not_before > self.now:
            return f"not before {job.not_before}"
        lane = self.waiting.get(job.lane) if job.lane is not None else None
        full = [self.shares[name] for name in lane.shares if name in self.shares] if lane else []
        capped = next((share for share in full if share.full), None)
        return str(capped) if capped is not None else self._room(job)

    def shown(self) -> list[dict[str, object]]:
        """The caps and their use, for ``GET /queue``."""
        return [
            {"share": share.name, "running": share.running, "limit": share.limit}
            for share in self.shares.values()
        ]

    def _room(self, job: Job) -> str:
        kind = "agents" if job.kind.agent else "checks"
        at_work, most = (cast(int, self.here.get(name, 0)) for name in (kind, f"max_{kind}"))
        return f"{at_work} of {most} {kind} run here (ORCH_MAX_{kind.upper()})" if 0 < most <= at_work else ""


def queueing(tx: Tx, shares: Shares, here: object) -> Queueing:
    """Read it; ``here`` is the worker's block of ``GET /queue``."""
    repos = [repository.name for repository in repositories.all_repositories(tx)]
    return Queueing(
        taken(shares.limits(repos), lanes.running(tx)),
        lanes.waiting(tx),
        here if isinstance(here, Mapping) else {},
        leases.now(tx),
        {one.home: one for one in homes.all_homes(tx)},
    )


def row(job: Job, open_tasks: Mapping[TaskId, Task], at: Queueing) -> dict[str, object]:
    """A job as ``GET /queue`` shows it."""
    task = open_tasks.get(job.task_id)
    waits = job.claimed_by is None
    return {
        "task": task.work_item if task else job.task_id,
        "repo": task.repo if task else None,
        "kind": job.kind,
        "status": job.status,
        "attempt": job.attempts,
        "since": job.claimed_at,
        "not_before": job.not_before,
        "priority": job.priority,
        "queued_at": job.created_at,
        "worker": at.at_a_worker(task) or None,
        "waits_for": (at.waits_for(job, task) or None) if waits else None,
    }


def what_it_does(job: Job, task: Task, at: Queueing) -> str:
    """What ``orch why`` says of a task's job."""
    work = f"{job.kind}, attempt {max(job.attempts, 1)}"
    if job.claimed_by is not None:
        lies = at.at_a_worker(task)
        return f"runs {work}" + (f", at the worker in {lies}" if lies else "")
    reason = at.waits_for(job, task)
    return f"waits for a free worker: {work}" + (f"; {reason}" if reason else "")
