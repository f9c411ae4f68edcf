"""Tidies up in a worker's home after tasks that have ended: the workspace, and the private homes of their runs.

As :mod:`orchestrator.daemons.cleaner` does where the orchestrators are: work is rescued first, nothing goes before the
last run has ended, and a failure is repeated and holds up no other task.
"""

from pathlib import Path

import structlog

from orchestrator.daemons.cleaner import strip_run
from orchestrator.db import jobs, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Home, TaskId
from orchestrator.domain.job import AgentRun, RunOutcome
from orchestrator.launcher import Launcher
from orchestrator.observability.never_raise import never_raises
from orchestrator.places import Places

log = structlog.get_logger(__name__)


class HomeCleaner:
    """The one who sweeps at a worker's."""

    name = "home_cleaner"

    def __init__(
        self, database: Database, places: Places, launcher: Launcher, home: Home, *, interval_s: float
    ) -> None:
        self.interval_s = interval_s
        self._database = database
        self._places = places
        self._launcher = launcher
        self._home = home

    def run_once(self) -> dict[str, int]:
        """Tidy up after a page of ended tasks."""
        with self._database.read() as tx:
            ended = jobs.untidied_at(tx, self._home)
        return {"tidied": sum(self._tidy(task_id) for task_id in ended)}

    @never_raises(False, log)
    def _tidy(self, task_id: TaskId) -> bool:
        with self._database.read() as tx:
            task = tasks.get(tx, task_id)
            runs = [run for _, run in jobs.runs_of_task(tx, task_id) if run.home == self._home]
        try:
            if not all(self._over(run) for run in runs):
                return False
            self._places.of(task.repo).workspaces.remove(task.work_item)
            for run in runs:
                strip_run(Path(run.run_dir))
        except OutsideError as error:
            log.warning("task not tidied up here", task=task.work_item, reason=str(error))
            return False
        with self._database.write() as tx:
            jobs.tidied_at(tx, self._home, task_id)
        return True

    def _over(self, run: AgentRun) -> bool:
        """Whether a run has ended; one that nobody watches any more is ended, and its row closed."""
        if run.outcome not in (None, RunOutcome.LOST):
            return True
        result = self._launcher.settle(run)
        if result is None:
            return False
        with self._database.write() as tx:
            jobs.finish_run(tx, run.id, result)
        return True
