"""Keeps repositories fast and the disk free: joins the small packs that deliveries leave, lets old logs and copies go.

Must hold: no object is lost (see :mod:`orchestrator.runtime.git_repack`) and no fact (see :mod:`retention`); never at
the start of a service, when recovery wants the disk. A repository that fails is told of and does not keep the others
from their turn.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import structlog

from orchestrator.daemons.retention import Retention
from orchestrator.db import repositories, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import OrchestratorError
from orchestrator.domain.ids import RepoName
from orchestrator.domain.task import Task
from orchestrator.forges.local import LocalForge
from orchestrator.places import Folders, Places
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.git import Git
from orchestrator.runtime.git_repack import repack

log = structlog.get_logger(__name__)

INTERVAL_S = 3600.0  # a look costs milliseconds; thirty agents leave some hundred packs in an hour
FIRST_AFTER_S = 600.0


class Housekeeper:
    """The one who puts things together."""

    name = "housekeeper"
    interval_s = INTERVAL_S

    def __init__(
        self,
        database: Database,
        places: Places,
        folders: Folders,
        git: Git,
        clock: Clock,
        *,
        only: Callable[[], Collection[RepoName]] | None = None,
    ) -> None:
        """``only``: the repositories of a process that does not work for all."""
        self._only = only
        self._database = database
        self._places = places
        self._folders = folders
        self._git = git
        self._clock = clock
        self._first = clock.boottime() + FIRST_AFTER_S

    def run_once(self) -> dict[str, int]:
        """Repack what needs it, each repository for a bounded time, and prune; nothing in the first minutes."""
        if self._clock.boottime() < self._first:
            return {"repacked": 0, "pruned": 0, "failed": 0}
        with self._database.read() as tx:
            known = repositories.all_repositories(tx)
        chosen = None if self._only is None else self._only()
        done = [self._repack(repo.name) for repo in known if chosen is None or repo.name in chosen]
        done_pruning, pruned = self._prune()
        return {
            "repacked": sum(one for one, _ in done),
            "pruned": pruned,
            "failed": sum(two for _, two in done) + (not done_pruning),
        }

    def _prune(self) -> tuple[bool, int]:
        try:
            return True, Retention(self._folders, self._open_tasks(), self._clock.utc()).prune()
        except (OrchestratorError, OSError, ValueError) as error:
            log.warning("old files not pruned", reason=str(error))
            return False, 0

    def _open_tasks(self) -> list[Task]:
        found = list[Task]()
        with self._database.read() as tx:
            while page := tasks.list_open(tx, after=found[-1].id if found else 0):
                found += page
        return found

    def _repack(self, repo: str) -> tuple[int, int]:
        repacked = 0
        try:
            for git_dir in self._git_dirs(repo):
                repacked += repack(self._git, git_dir, self._clock)
        except (OrchestratorError, OSError) as error:
            log.warning("repository not repacked", repo=repo, reason=str(error))
            return repacked, 1
        return repacked, 0

    def _git_dirs(self, repo: str) -> Iterator[Path]:
        place = self._places.of(repo)
        place.clone.before_use()
        yield place.clone.path
        yield place.forge.path if isinstance(place.forge, LocalForge) else self._folders.mirror(repo)
