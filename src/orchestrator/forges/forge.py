"""The forge as the product needs it: the authority for branches, pull requests and the merge.

Every method raises :class:`~orchestrator.domain.errors.AuthorityUnreachable` where the forge cannot be asked. No answer
of ``push``, ``open_pr``, ``merge`` or ``revoke_merge`` settles anything: only the reading methods state facts (law 4).

What prepares, makes or revokes a merge carries the installation's mark as this process ``held`` it, and is refused with
:class:`~orchestrator.domain.errors.InstallationChanged` where the forge has another one (None: any at all).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.domain.ids import RepoName, Sha, TaskId
from orchestrator.domain.installation import InstallationMark, SeenCandidate
from orchestrator.domain.task import Candidate, Landed


@dataclass(frozen=True, slots=True)
class PullRequest:
    """One pull request as the forge shows it."""

    number: int
    branch: str
    head_sha: Sha
    state: str  # "open" | "merged" | "closed"
    title: str
    url: str


@dataclass(frozen=True, slots=True)
class PushCall:
    """Which push of the ledger a call is: the task and the intent's number, which only rises."""

    task_id: TaskId
    sequence: int


class Forge(Protocol):
    """One repository at one forge."""

    repo: RepoName
    default_branch: str

    def fetch_url(self) -> str:
        """What ``git fetch`` is given to read the repository; holds no secret."""
        ...

    def installation(self) -> InstallationMark | None:
        """Which start of which database claimed the repository last; None where none ever has.

        :raises OutsideError: what stands there was not written by us.
        """
        ...

    def claim_installation(self, held: InstallationMark | None, mark: InstallationMark) -> None:
        """Set the mark iff it still is ``held`` (None: absent).

        :raises InstallationChanged: it is another one.
        """
        ...

    def merged_since(self, known: Sequence[Sha]) -> Sequence[SeenCandidate]:
        """Commits on first-parent main that carry a candidate's trailers, whoever's, oldest first, but for those that
        a commit in ``known`` contains; one that the forge does not have is no bound."""
        ...

    def candidates(self) -> Sequence[SeenCandidate]:
        """Every candidate that was ever prepared here and that the forge still shows."""
        ...

    def highest_fence(self, tasks: Sequence[TaskId] | None = None) -> int:
        """The highest ledger number at which a merge or a push of one of these tasks, or of any, is fenced; 0 where
        none is, or the forge cannot tell."""
        ...

    def tip(self, branch: str) -> Sha | None:
        """The branch's tip, None where there is no such branch."""
        ...

    def push(
        self, source: Path, sha: Sha, branch: str, expected: Sha | None, *, call: PushCall | None = None
    ) -> None:
        """Set ``branch`` to ``sha`` out of the git folder ``source`` iff it still is at ``expected`` (None: absent).

        :raises OutsideError: refused or failed; so is a ``call`` that has been revoked.
        """
        ...

    def revoke_push(self, call: PushCall, token: str, *, held: InstallationMark | None = None) -> None:
        """Make this push, and every earlier one of its task, impossible, wherever it is under way. Safe to repeat.

        :raises OutsideError: could not be done; nothing may be concluded.
        """
        ...

    def delete_branch(self, branch: str, expected: Sha) -> None:
        """Remove a branch iff it still is at ``expected``."""
        ...

    def pull_request(self, number: int) -> PullRequest | None:
        """One pull request, however old, None where there is none of this number against the default branch."""
        ...

    def pull_requests(self, branch: str) -> Sequence[PullRequest]:
        """All pull requests whose head is ``branch``, oldest first."""
        ...

    def open_pr(self, branch: str, title: str, body: str) -> PullRequest:
        """Open a pull request against the default branch."""
        ...

    def close_pr(self, number: int) -> None:
        """Close one without merging; closing a closed one does nothing."""
        ...

    def prepare_merge(
        self, candidate: Candidate, source: Path, branch: str, *, held: InstallationMark | None = None
    ) -> None:
        """Make M known to the forge and set up its fence, before anything may merge it. Safe to repeat.

        Local: M's objects, the fence ref at ``candidate.fence``. Remote: M pushed as the pull request's head.
        """
        ...

    def prepared(self, candidate: Candidate) -> bool:
        """Whether :meth:`prepare_merge` has taken place for this candidate, and it has not been revoked since.

        :raises AuthorityUnreachable: the forge cannot be asked.
        """
        ...

    def merge(
        self, candidate: Candidate, pr_number: int | None, *, held: InstallationMark | None = None
    ) -> None:
        """Move main to M: only from M's first parent, only while the candidate's fence and the mark stand (law 5).

        :raises OutsideError: refused or failed; says nothing about the outcome.
        """
        ...

    def landed(self, candidates: Sequence[Candidate]) -> Landed | None:
        """The last of these that is on main: its nonce stands in a first-parent commit of main, or it is an ancestor.

        With it the first-parent commit that brought it there, and that commit's tree.
        """
        ...

    def revoke_merge(self, candidate: Candidate, token: str, *, held: InstallationMark | None = None) -> None:
        """Make every merge call ever sent for this candidate impossible; ``token`` is newer than all. Safe to repeat.

        :raises OutsideError: could not be done; nothing may be concluded.
        """
        ...

    def contains(self, descendant: Sha, ancestor: Sha) -> bool:
        """True iff ``ancestor`` is ``descendant`` or one of its ancestors."""
        ...
