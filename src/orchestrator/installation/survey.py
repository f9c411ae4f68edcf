"""What the outside shows of the time that a restored database knows nothing of. Reads only."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.db import installation, repositories, slots, tasks
from orchestrator.db.database import Database
from orchestrator.deploy.records import DeployStart, Exit, Started, exit_record, read_start, started
from orchestrator.domain.ids import RepoName, Sha, WorkItem
from orchestrator.domain.installation import Cause, Finding, SeenCandidate
from orchestrator.domain.task import Task
from orchestrator.forges.forge import Forge
from orchestrator.installation.comparison import Compared, Comparison
from orchestrator.places import Folders

_RUN = re.compile(r"(.+)-\d+-\d+-[0-9a-f]+")  # as the launcher names a run's folder


@dataclass(frozen=True, slots=True)
class FoundStart:
    """A start of an environment that the database does not know."""

    name: str  # ``environment/generation-sha``
    start: DeployStart | None
    claim: Started | None
    exit: Exit | None


@dataclass(frozen=True, slots=True)
class Found:
    """One repository that is closed, or is closed with the others."""

    repo: repositories.Repository
    compared: Compared
    candidates: Sequence[SeenCandidate] = ()  # unknown ones of our installation
    merged: Sequence[SeenCandidate] = ()  # those of them that are on main, oldest first
    unfinished: Sequence[Task] = ()
    fence: int = 0  # the highest number in a fence of any task: also of one that the database has lost
    baseline: slots.Baseline | None = None

    @property
    def finding(self) -> Finding | None:
        """Why it is closed; None where only another one is."""
        return self.compared.finding

    @property
    def lost(self) -> Sha | None:
        """The newest merge of ours that main lacks."""
        return self.compared.known.merged if self.compared.seen.lost else None


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that was found, and what accepting it concerns."""

    found: Mapping[RepoName, Found] = field(default_factory=dict)  # empty: nothing is wrong
    starts: Sequence[FoundStart] = ()
    runs: Sequence[str] = ()
    accepted_runs: Sequence[str] = ()  # of an earlier acceptance: they still tell what numbers were given

    def work_items(self) -> Iterable[WorkItem]:
        """Everything that anything found is about."""
        for one in self.found.values():
            yield from (seen.work_item for seen in one.candidates)
        yield from (one.start.work_item for one in self.starts if one.start is not None)
        yield from (
            WorkItem(match[1])
            for name in (*self.runs, *self.accepted_runs)
            if (match := _RUN.fullmatch(name))
        )


class Surveyor:
    """Looks at forges and state folder with the database in hand."""

    def __init__(self, database: Database, folders: Folders, comparison: Comparison) -> None:
        self._database = database
        self._folders = folders
        self._comparison = comparison

    def look(self) -> Survey:
        """What is closed, and what is there that the database does not know.

        :raises OutsideError: a forge, or a record, cannot be read: nothing may be concluded then.
        """
        with self._database.read() as tx:
            repos = repositories.all_repositories(tx)
        compared = self._comparison.all(repo.name for repo in repos)
        findings = [one.finding for one in compared.values() if one.finding is not None]
        restored = any(finding.cause is Cause.DATABASE for finding in findings)
        concerned = [repo for repo in repos if restored or compared[repo.name].finding is not None]
        if not concerned:
            return Survey()
        found = {repo.name: self._found(repo, compared[repo.name]) for repo in concerned}
        if not restored:
            return Survey(found)
        traces, accepted = self._comparison.traces(), self._comparison.accepted()
        starts = [_start(self._folders.deploys, name) for name in traces.deploys]
        earlier = [_start(self._folders.deploys, name) for name in accepted.deploys]
        starts += [one for one in earlier if _of(concerned, one)]
        return Survey(found, starts, traces.runs, accepted.runs)

    def _found(self, repo: repositories.Repository, compared: Compared) -> Found:
        forge = self._comparison.forge(repo.name)
        candidates, merged = self._candidates(forge, compared.known.installation)
        fence = forge.highest_fence()
        with self._database.read() as tx:
            unfinished = list(tasks.every_open(tx, repo.name))
            baseline = slots.baseline(tx, repo.name)
        return Found(repo, compared, candidates, merged, unfinished, fence, baseline)

    def _candidates(self, forge: Forge, ours: str) -> tuple[Sequence[SeenCandidate], Sequence[SeenCandidate]]:
        """Unknown candidates of ours, in the order of the ledger, and those of them on main, in main's."""
        on_main = [one for one in forge.merged_since([]) if one.installation == ours]
        seen = {one.sha: one for one in on_main}
        seen |= {one.sha: one for one in forge.candidates() if one.installation == ours}
        with self._database.read() as tx:
            unknown = installation.unknown_nonces(tx, (one.nonce for one in seen.values()))
        candidates = sorted(
            (one for one in seen.values() if one.nonce in unknown), key=lambda one: one.sequence
        )
        return candidates, [seen[one.sha] for one in on_main if one.nonce in unknown]


def _of(repos: Iterable[repositories.Repository], found: FoundStart) -> bool:
    """Whether a start that was nobody's is one of these repositories': it may have been registered since."""
    prefix = found.start.work_item.rpartition("-")[0] if found.start is not None else None
    return any(repo.prefix == prefix for repo in repos)


def _start(root: Path, name: str) -> FoundStart:
    folder = root / name
    return FoundStart(name, read_start(folder), started(folder), exit_record(folder))
