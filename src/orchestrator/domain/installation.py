"""Which database, and which start of it, may act on a forge (DESIGN §6, "Restored or cloned")."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.ids import RepoName, Sha, TaskId, WorkItem


class Cause(StrEnum):
    """What must have happened where a repository is closed."""

    DATABASE = "database"  # restored from a backup, or copied
    FORGE = "forge"  # restored from a backup, or its references were changed
    STRANGER = "stranger"  # another database works on the same forge


@dataclass(frozen=True, slots=True)
class InstallationMark:
    """What ``refs/orch/installation`` says: the start that claimed the repository last."""

    installation: str
    generation: int  # rises with every start
    start_id: str  # random, so that a copy of a database cannot know the other's next start


@dataclass(frozen=True, slots=True)
class SeenCandidate:
    """A merge commit with a candidate's trailers, as a forge shows it."""

    sha: Sha
    tree: Sha
    base_sha: Sha
    head_sha: Sha
    title: str
    work_item: WorkItem
    nonce: str
    installation: str
    sequence: int
    task_id: TaskId | None = None  # where the forge keeps it by task and round
    round: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What the database remembers of one repository's forge."""

    repo: RepoName
    installation: str
    starts: frozenset[str]  # its own starts, each remembered before it claimed anything
    generation: int  # of the last claim that it remembers; 0: none
    start_id: str | None
    sequence: int  # the ledger's last number
    main: Sha | None = None  # main's tip when it was last compared
    merged: Sha | None = None  # the newest merge that it has settled as applied


@dataclass(frozen=True, slots=True)
class Seen:
    """What the forge shows of itself."""

    mark: InstallationMark | None
    main: Sha | None
    unknown: Sequence[SeenCandidate]  # on main, with the trailers of our installation, and not in the ledger
    lost: bool  # the newest merge that the ledger has is not on main
    fence: int  # the highest ledger number in a fence of a task that is open


@dataclass(frozen=True, slots=True)
class Finding:
    """Why nothing is done for a repository."""

    cause: Cause
    reason: str
