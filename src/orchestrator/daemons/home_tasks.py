"""The net of a worker: tasks of which work lies in its home are looked at, and agents that nobody wants any more end.

What is signalled gets there earlier; this finds what was not, and what could not be done when it was.
"""

import structlog

from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.db import jobs, tasks
from orchestrator.db.database import Database
from orchestrator.domain.ids import Home
from orchestrator.launcher import Launcher

log = structlog.get_logger(__name__)


class HomeTasks:
    """Looks after what lies in one home."""

    name = "home_tasks"

    def __init__(
        self, database: Database, driver: TaskDriver, launcher: Launcher, home: Home, *, interval_s: float
    ) -> None:
        self.interval_s = interval_s
        self._database = database
        self._driver = driver
        self._launcher = launcher
        self._home = home

    def run_once(self) -> dict[str, int]:
        """One look at all of them."""
        flying = self._launcher.flying()
        with self._database.read() as tx:
            here = tasks.away_at(tx, self._home)
            unwanted = [flight for flight in flying if not jobs.still_claimed(tx, flight.job)]
        self._driver.wake(here)
        for flight in unwanted:  # cancelled, or given to another while nothing was heard of us
            log.info("agent is ended: its job is no longer ours", job=flight.job.id)
            self._launcher.end(flight, "its job is no longer wanted from here")
        return {"looked_at": len(here), "ended": len(unwanted)}
