"""Notices repositories that were renamed or transferred at their servers, and tells a person, once for each new place.

Nothing follows them by itself: the new place is a person's to confirm (`orch repo move`), for the token would go there.
"""

import structlog

from orchestrator.db import alerts
from orchestrator.db.database import Database
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.repositories import Repositories

log = structlog.get_logger(__name__)

LOOK_S = 600.0  # a rename is rare, and its tasks say by themselves that they cannot go on


class RepositoryWatch:
    """Asks each server what it calls our repositories."""

    name = "repository_watch"

    def __init__(
        self,
        database: Database,
        places: Repositories,
        *,
        interval_s: float = LOOK_S,
        scope: Scope = EVERYTHING,
    ) -> None:
        self.interval_s = interval_s
        self._database = database
        self._places = places
        self._scope = scope

    def run_once(self) -> dict[str, int]:
        """One look at every repository; how many lie elsewhere, and how often a person was told of one."""
        moved = told = 0
        for repo, server, full_name in self._places.elsewhere():
            if not self._scope.covers(repo.name):
                continue
            try:
                now = server.whereabouts(full_name)
            except OutsideError as error:  # away, or gone: its tasks tell of that
                log.info("repository not looked for", repo=repo.name, reason=str(error))
                continue
            if now == full_name:
                continue
            moved += 1
            text = (
                f"{repo.name} is called {now} at {server.server.url} now, and was {full_name}: nothing is done for it "
                f"there. If that is right: orch repo move {repo.name} --to {now}"
            )
            with self._database.write() as tx:
                told += alerts.call(tx, text, "moved", repo.name, full_name, now)
        return {"moved": moved, "told": told}
