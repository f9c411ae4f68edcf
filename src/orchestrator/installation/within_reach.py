"""Which repositories a worker can work for: those whose forge it reaches.

A local forge is a path, and under that path any folder may lie. It is taken for the one that is meant only where it
carries the mark that the database remembers; an orchestrator has to have claimed it before. So a folder that merely is
called the same neither gets anything nor closes the repository for everybody.
"""

from collections.abc import Iterable

import structlog

from orchestrator.db import homes, installation, repositories
from orchestrator.db.database import Database
from orchestrator.domain.errors import OperatorError, OutsideError
from orchestrator.domain.ids import Home, RepoName
from orchestrator.domain.installation import Finding
from orchestrator.places import Places
from orchestrator.repositories import LOCAL

log = structlog.get_logger(__name__)


def refuse_a_strange_home(database: Database, home: Home, unknown: Finding | None) -> None:
    """A worker's folder in which another database's runs lie would look like a restored database to it.

    :raises OperatorError: nothing was written.
    """
    with database.read() as tx:
        strange = unknown is not None and homes.get(tx, home) is None
    if strange and unknown is not None:
        raise OperatorError(
            f"This worker's state folder was used with another database: {unknown.reason}. Nothing was started.",
            hint="Name an empty folder in ORCH_HOME.",
        )


class WithinReach:
    """One worker's choice; what it leaves alone is told once for each reason."""

    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places
        self._told: dict[RepoName, str] = {}

    def __call__(self, repos: Iterable[RepoName]) -> list[RepoName]:
        """Those of these that are within reach now."""
        return [repo for repo in repos if self._reaches(repo)]

    def _reaches(self, repo: RepoName) -> bool:
        why = self._why_not(repo)
        if why is None:
            self._told.pop(repo, None)
        elif self._told.get(repo) != why:
            self._told[repo] = why
            log.warning("no work is taken for a repository", repo=repo, reason=why)
        return why is None

    def _why_not(self, repo: RepoName) -> str | None:
        with self._database.read() as tx:
            local = repositories.get(tx, repo).forge == LOCAL
            known = installation.known(tx)[repo]  # before the forge: it is marked there first
        try:
            forge = self._places.of(repo).forge
            mark = forge.installation() if local else None
        except OutsideError as error:
            return str(error)
        if not local:
            return None
        if known.generation == 0:
            return "no orchestrator has claimed it yet"
        if mark is None or mark.installation != known.installation or mark.generation < known.generation:
            return "the folder at the path of its local forge is not the one that the orchestrators work on"
        return None
