"""A task: one ticket on its way."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.ids import Home, RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.stage import Stage, Track


class Hold(StrEnum):
    """Why a task does not move although nobody works on it."""

    ESCALATED = "escalated"  # waits for a person's decision: retry or cancel
    BLOCKED = "blocked"  # waits for another task, the tracker, or a pull request to be opened again
    PERSON = "person"  # waits for an approval
    SLOT = "slot"  # waits for a shared place
    FROZEN = "frozen"  # its repository is frozen


class HoldCause(StrEnum):
    """What a hold is about, where what ends it depends on that."""

    PULL_REQUEST = "pull-request"  # it was closed or is gone
    CHECKS = "checks"  # of others, at the forge: they are not done
    REVIEWS = "reviews"  # people at the forge have not approved yet


@dataclass(frozen=True, slots=True)
class Holding:
    """How a task is to be held; the reason is for people."""

    hold: Hold
    reason: str
    cause: HoldCause | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a person asked for. Hostile text: data, never a path, a template or a command (law 10)."""

    title: str
    body: str = ""
    labels: tuple[str, ...] = ()
    tracker: str = "local"
    external_id: str | None = None
    depends_on: tuple[WorkItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One row of ``tasks`` with its epoch; a snapshot, true at the moment it was read."""

    id: TaskId
    work_item: WorkItem
    repo: RepoName
    title: str
    body: str
    labels: tuple[str, ...]
    stage: Stage
    round: int
    epoch: int
    track: Track | None
    hold: Hold | None
    hold_reason: str | None
    hold_since: str | None
    branch: str | None
    base_sha: Sha | None
    head_sha: Sha | None
    gated_sha: Sha | None
    pr_number: int | None
    cancelled_at: str | None
    created_at: str
    updated_at: str
    hold_cause: HoldCause | None = None
    config_sha: Sha | None = (
        None  # the commit of main whose configuration judges the task: its base, or what a retry took
    )
    work_home: Home | None = (
        None  # where work of it lies that its forge does not have; None: the forge has all
    )
    tracker: str = "local"  # where its ticket lies, and what it is called there
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """M: the merge of main's tip and the task's head, built before staging (DESIGN §3)."""

    task_id: TaskId
    round: int
    sha: Sha
    tree: Sha
    base_sha: Sha  # main's tip when M was built: M's first parent
    head_sha: Sha  # the branch's own head: M's second parent
    nonce: str
    sequence: int
    fence: str  # token of the fence ref, created with the candidate


@dataclass(frozen=True, slots=True)
class Landed:
    """A candidate that is on main, and the commit of main's own line that brought it there: M itself, or another's
    merge of it, whose tree need not be the tested one (DESIGN §3)."""

    candidate: Candidate
    sha: Sha
    tree: Sha


@dataclass(frozen=True, slots=True)
class Signal:
    """A person's word, bound to what was on show when it was given (law 7)."""

    kind: str  # "approved" | "confirm-deploy" | "cancel" | "retry" | "reject"
    stage: Stage
    round: int
    subject: str | None  # SHA or document hash that was on show
    person: str
    reason: str = ""
    data: Mapping[str, str] | None = None
