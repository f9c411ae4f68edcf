"""Which repositories a worker can work for: those whose forge it reaches.

A local forge is a path, and under that path any folder may lie. It is taken for the one that is meant only where it
carries the mark that the database remembers; an orchestrator has to have claimed it before. So a folder that merely is
called the same neither gets anything nor closes the repository for everybody.
"""

from collections.abc import Iterable
from pathlib import Path

import structlog

from orchestrator.db import installation, repositories
from orchestrator.db.database import Database
from orchestrator.domain.errors import OperatorError, OutsideError
from orchestrator.domain.ids import RepoName
from orchestrator.installation.comparison import Traces
from orchestrator.places import Places
from orchestrator.repositories import LOCAL

log = structlog.get_logger(__name__)


def refuse_a_strange_home(unknown: Traces, *, folder: Path, host: str) -> None:
    """A worker does not begin in a folder with runs that the database does not know, also where it knows the folder:
    the database may be a copy from before. These are agents' runs only, and nobody else's work depends on them, so
    nothing is closed for others: what shows them a restored database lies at the forges and in their folder.

    :raises OperatorError: nothing was written.
    """
    if unknown.finding is None:
        return
    kind, name = ("run", unknown.runs[0]) if unknown.runs else ("start", unknown.deploys[0])
    raise OperatorError(
        f"This worker's state folder, {folder} on {host}, holds a {kind}, {name}, that the database does not know: the "
        "folder was used with another database, or this one was restored from a backup. An agent of such a run may "
        "still be at work on this host. Nothing was started, and nothing is closed for others.",
        hint="Name another folder in ORCH_HOME, a new, empty one. An agent that nobody looks after ends by itself "
        "after ORCH_RUN_ORPHAN_TTL_S; what the database knows of this folder is done anew once it counts as lost.",
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
