"""Tidies up after tasks that have ended: workspace, private homes of their runs, the pull requests of a cancelled one.

Never destroys work: the workspace is rescued first (refs/orch/rescue). Each task is tidied once,
and not before its last run has ended; a failure is repeated, and holds up no other task.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from orchestrator.db import events, jobs, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import SHARED_HOME, RepoName, TaskId
from orchestrator.domain.job import AgentRun
from orchestrator.domain.stage import Stage
from orchestrator.launcher import Launcher
from orchestrator.observability.never_raise import never_raises
from orchestrator.places import Places
from orchestrator.workspace.folders import remove_tree

log = structlog.get_logger(__name__)

KEPT_OF_A_RUN = frozenset({"brief.json", "prompt.md", "exit.json", "output.log", "STARTED"})


class Cleaner:
    """The one who sweeps."""

    name = "cleaner"

    def __init__(
        self,
        database: Database,
        places: Places,
        launcher: Launcher,
        open_repositories: Callable[[], frozenset[RepoName]],
        *,
        interval_s: float,
    ) -> None:
        self.interval_s = interval_s
        self._database = database
        self._places = places
        self._launcher = launcher
        self._open_repositories = open_repositories

    def run_once(self) -> dict[str, int]:
        """Tidy up after a page of ended tasks."""
        with self._database.read() as tx:
            ended = tasks.untidied(tx)
        return {"tidied": sum(self._tidy(task_id) for task_id in ended)}

    @never_raises(False, log)
    def _tidy(self, task_id: TaskId) -> bool:
        """One task that cannot be tidied up does not keep the others from it (law 9)."""
        with self._database.read() as tx:
            task = tasks.get(tx, task_id)
            runs = jobs.runs_of_task(tx, task_id)
        if task.repo not in self._open_repositories():
            return False
        try:
            if not all(self._over(run) for _, run in runs):
                return False
            place = self._places.of(task.repo)
            removed = place.workspaces.remove(task.work_item)
            for _, run in runs:
                if run.home == SHARED_HOME:
                    strip_run(Path(run.run_dir))
            if task.stage is Stage.CANCELLED and task.branch is not None:
                for opened in place.forge.pull_requests(task.branch):  # also what a late call has opened
                    if opened.state == "open":
                        place.forge.close_pr(opened.number)
        except OutsideError as error:
            log.warning("task not tidied up", task=task.work_item, reason=str(error))
            return False
        with self._database.write() as tx:
            tasks.tidied(tx, task_id)
            if removed.stray:
                data = {"rescued": [stray.ref for stray in removed.stray]}
                events.append(tx, EventType.NOTE, "cleaner", task=task, data=data)
        return True

    def _over(self, run: AgentRun) -> bool:
        """Whether a run has ended; one that nobody watches any more is ended and its row closed. A worker's is that
        worker's business, as what it has left is."""
        if run.outcome is not None or run.home != SHARED_HOME:
            return True
        result = self._launcher.settle(run)
        if result is None:
            return False
        with self._database.write() as tx:
            jobs.finish_run(tx, run.id, result)
        return True


def strip_run(run_dir: Path) -> None:
    """Keep what tells the run's story; the agent's private home and temporary files go."""
    if not run_dir.is_dir():
        return
    for entry in run_dir.iterdir():
        if entry.name not in KEPT_OF_A_RUN:
            remove_tree(entry)
