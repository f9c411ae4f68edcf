"""Compares the database with what lies outside of it: forges and state folder (DESIGN §6, "Restored or cloned").

What must hold: the service may be at work meanwhile, and what it does itself must never look like a restore. Everything
is written down in the database before it is done outside. So what the outside has to show (a mark, a merge) is read
from the database first, and what may account for something outside (starts, numbers, candidates, runs) last.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.db import installation, repositories, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import NotFound
from orchestrator.domain.ids import RepoName
from orchestrator.domain.installation import Cause, Finding, Known, Seen
from orchestrator.forges.forge import Forge
from orchestrator.installation.traces import begun_deploys, started_runs
from orchestrator.places import Folders, Places
from orchestrator.rules.installation import judge


@dataclass(frozen=True, slots=True)
class Compared:
    """One repository: what the database remembers, what the forge shows, and what follows."""

    known: Known
    seen: Seen
    finding: Finding | None


@dataclass(frozen=True, slots=True)
class Traces:
    """What the state folder has that the database does not know."""

    deploys: Sequence[str]  # ``environment/generation-sha``
    runs: Sequence[str]

    @property
    def finding(self) -> Finding | None:
        """What it shows of the database."""
        for kind, found in (("a start", self.deploys), ("a run", self.runs)):
            if found:
                return Finding(
                    Cause.DATABASE,
                    f"the state folder holds {kind}, {found[0]}, that this database does not know: "
                    "it was restored from a backup, or it is not the one that belongs here",
                )
        return None


class Comparison:
    """Reads, and changes nothing. Takes as long as a forge takes to answer: never asked under a lock."""

    def __init__(
        self,
        database: Database,
        places: Places,
        folders: Folders,
        *,
        within: Callable[[Iterable[RepoName]], list[RepoName]] = list,
        own_folder: bool = False,
    ) -> None:
        """``within`` chooses the repositories that this process works for. ``own_folder``: the state folder is a
        worker's; that is judged when it starts, for itself alone."""
        self._within = within
        self._own_folder = own_folder
        self._database = database
        self._places = places
        self._folders = folders

    def repositories(self) -> list[RepoName]:
        """All that this process works for; not what was disconnected and has no task that goes on."""
        with self._database.read() as tx:
            idle = repositories.idle(tx)
            registered = [repo for repo in installation.known(tx) if repo not in idle]
        return self._within(registered)

    def traces(self) -> Traces:
        """What lies in the state folder and is unknown.

        :raises AuthorityUnreachable: it cannot be read.
        """
        deploys, runs = begun_deploys(self._folders.deploys), started_runs(self._folders.runs)
        with self._database.read() as tx:
            known_runs, known_deploys = (
                installation.known_runs(tx, runs),
                installation.known_deploys(tx, deploys),
            )
        return Traces(
            deploys=[name for name in deploys if name not in known_deploys],
            runs=[name for name in runs if name not in known_runs],
        )

    def shown_at_home(self) -> Finding | None:
        """What the state folder shows of the database, for everybody; nothing where it is one worker's own.

        :raises AuthorityUnreachable: it cannot be read.
        """
        return None if self._own_folder else self.traces().finding

    def accepted(self) -> Traces:
        """What lies in the state folder and was accepted without being taken over: nobody knew its repository then.

        :raises AuthorityUnreachable: it cannot be read.
        """
        deploys, runs = begun_deploys(self._folders.deploys), started_runs(self._folders.runs)
        with self._database.read() as tx:
            accepted = installation.accepted_folders(tx)
        return Traces(
            deploys=[name for name in deploys if name in accepted],
            runs=[name for name in runs if name in accepted],
        )

    def of(self, repo: RepoName, home: Finding | None, *, at: Forge | None = None) -> Compared:
        """One repository as it stands. ``home`` is what the state folder shows; ``at`` is another forge than its own
        that is to be compared.

        :raises NotFound: it is not registered.
        :raises OutsideError: its forge cannot be read.
        """
        with self._database.read() as tx:
            expected = _known(installation.known(tx), repo)
            open_here = tasks.open_ids(tx, repo)
        forge = at or self._places.of(repo).forge
        mark, main = forge.installation(), forge.tip(forge.default_branch)
        bounds = [sha for sha in {expected.main, expected.merged} if sha is not None]
        # Mostly nothing is new since the last look: then nobody is asked.
        since = [] if main in bounds else forge.merged_since(bounds)
        merged = [one for one in since if one.installation == expected.installation]
        lost = expected.merged not in (None, main) and not (main and forge.contains(main, expected.merged))
        fence = forge.highest_fence(open_here)
        with self._database.read() as tx:
            later = _known(installation.known(tx), repo)
            unknown = installation.unknown_nonces(tx, (one.nonce for one in merged))
        known = replace(expected, starts=later.starts, sequence=later.sequence)
        seen = Seen(mark, main, [one for one in merged if one.nonce in unknown], lost, fence)
        return Compared(known, seen, home or judge(known, seen))

    def all(self, repos: Iterable[RepoName]) -> dict[RepoName, Compared]:
        """Every one of these as it stands.

        :raises OutsideError: the state folder, or one of the forges, cannot be read.
        """
        home = self.shown_at_home()
        return {repo: self.of(repo, home) for repo in repos}

    def forge(self, repo: RepoName) -> Forge:
        """Where a repository's mark stands.

        :raises OutsideError: it cannot be opened.
        """
        return self._places.of(repo).forge


def _known(all_of_them: dict[RepoName, Known], repo: RepoName) -> Known:
    if repo not in all_of_them:
        raise NotFound(f"The repository {repo} is not registered.")
    return all_of_them[repo]
