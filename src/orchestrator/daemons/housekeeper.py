"""Keeps the repositories fast: joins the many small packs that deliveries leave in each clone and local forge.

Must hold: nothing is lost by it (see :mod:`orchestrator.runtime.git_repack`); never at the start of a service, when
recovery wants the disk. A repository that fails is told of and does not keep the others from their turn.
"""

from collections.abc import Iterator
from pathlib import Path

import structlog

from orchestrator.db import repositories
from orchestrator.db.database import Database
from orchestrator.domain.errors import OrchestratorError
from orchestrator.forges.local import LocalForge
from orchestrator.places import Places
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

    def __init__(self, database: Database, places: Places, git: Git, clock: Clock) -> None:
        self._database = database
        self._places = places
        self._git = git
        self._clock = clock
        self._first = clock.boottime() + FIRST_AFTER_S

    def run_once(self) -> dict[str, int]:
        """Repack what needs it, each repository for a bounded time; nothing before :data:`FIRST_AFTER_S` are over."""
        if self._clock.boottime() < self._first:
            return {"repacked": 0, "failed": 0}
        with self._database.read() as tx:
            known = repositories.all_repositories(tx)
        done = [self._repack(repo.name) for repo in known]
        return {"repacked": sum(one for one, _ in done), "failed": sum(two for _, two in done)}

    def _repack(self, repo: str) -> tuple[int, int]:
        repacked = 0
        try:
            for git_dir in self._folders(repo):
                repacked += repack(self._git, git_dir, self._clock)
        except (OrchestratorError, OSError) as error:
            log.warning("repository not repacked", repo=repo, reason=str(error))
            return repacked, 1
        return repacked, 0

    def _folders(self, repo: str) -> Iterator[Path]:
        place = self._places.of(repo)
        place.clone.before_use()
        yield place.clone.path
        if isinstance(place.forge, LocalForge):
            yield place.forge.path
