"""A forge elsewhere: everything that is a fact over git, pull requests over its API. Forges differ in how they merge,
and in what their APIs are like.

Must hold: no answer is believed: what has landed is read from git. On failure: ``AuthorityUnreachable`` where the
server cannot be asked, another ``OutsideError`` where it refused.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import RepoName, Sha, TaskId
from orchestrator.domain.installation import InstallationMark, SeenCandidate
from orchestrator.domain.task import Candidate, Landed
from orchestrator.forges.forge import PullRequest, PushCall
from orchestrator.forges.others import Others
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.rest.api import Answer, refusal
from orchestrator.rules.quoting import as_words
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy

TITLE_LIMIT = 255  # characters; the servers take no more
PATIENCE_S = 10.0  # for a merge that the server is not ready for
LATER_S = 0.3


class PullsApi(Protocol):
    """What is asked of an API. The pull requests are those of the repository's own branches against ``base``."""

    def pull(self, number: int, base: str) -> PullRequest | None:
        """One of them, None where there is none of this number."""
        ...

    def pulls_of(self, branch: str, base: str) -> Sequence[PullRequest]:
        """Those whose head is ``branch``, oldest first."""
        ...

    def opened(self, base: str) -> Sequence[PullRequest]:
        """All that are open."""
        ...

    def open(self, branch: str, base: str, title: str, body: str) -> Answer:
        """Ask for one."""
        ...

    def close(self, number: int) -> Answer:
        """Ask for one to be closed."""
        ...

    def read(self, body: object) -> PullRequest:
        """The one that an answer shows.

        :raises AuthorityUnreachable: it shows none.
        """
        ...


class RemoteForge(ABC):
    """One repository; see :class:`~orchestrator.forges.forge.Forge`. Safe for many threads and processes."""

    def __init__(
        self,
        git: RemoteGit,
        pulls: PullsApi,
        others: Others,
        *,
        clock: Clock,
        entropy: Entropy,
        patience_s: float,
    ) -> None:
        """``patience_s`` is for how long, in seconds, one merge asks again while the server asks for patience."""
        self.others = others
        self.repo: RepoName = git.repo
        self.default_branch = git.default_branch
        self.git = git
        self._pulls = pulls
        self._clock = clock
        self._entropy = entropy
        self._patience_s = patience_s

    @abstractmethod
    def merge(
        self, candidate: Candidate, pr_number: int | None, *, held: InstallationMark | None = None
    ) -> None:
        """Move main to M, or have the server do it.

        :raises OutsideError: refused or failed; says nothing about the outcome.
        """

    # -- what git alone does: see RemoteGit --------------------------------------------------------------------

    def fetch_url(self) -> str:
        """The repository's address."""
        return self.git.mirror.access.url

    def installation(self) -> InstallationMark | None:
        """Which start of which database claimed the repository last; None where none ever has."""
        return self.git.installation()

    def claim_installation(self, held: InstallationMark | None, mark: InstallationMark) -> None:
        """Set the mark iff it still is ``held`` (None: absent).

        :raises InstallationChanged: it is another one.
        """
        self.git.claim_installation(held, mark)

    def merged_since(self, known: Sequence[Sha]) -> Sequence[SeenCandidate]:
        """Candidates of anybody's on main that no commit in ``known`` contains, oldest first."""
        return self.git.merged_since(known)

    def candidates(self) -> Sequence[SeenCandidate]:
        """Every candidate that was ever prepared here."""
        return self.git.candidates()

    def highest_fence(self, tasks: Sequence[TaskId] | None = None) -> int:
        """The highest ledger number in a fence of these tasks, or of any; 0 where there is none."""
        return self.git.highest_fence(tasks)

    def tip(self, branch: str) -> Sha | None:
        """The branch's tip, None where there is no such branch."""
        return self.git.tip(branch)

    def contains(self, descendant: Sha, ancestor: Sha) -> bool:
        """True iff ``ancestor`` is ``descendant`` or one of its ancestors; an unknown ancestor is none."""
        return self.git.contains(descendant, ancestor)

    def push(
        self, source: Path, sha: Sha, branch: str, expected: Sha | None, *, call: PushCall | None = None
    ) -> None:
        """Set a branch, never the default one, to ``sha`` iff it still is at ``expected``; repeating is harmless.

        :raises OutsideError: the branch has moved, the push was given up, or the objects are not complete.
        """
        self.git.push(source, sha, branch, expected, call=call)

    def revoke_push(self, call: PushCall, token: str, *, held: InstallationMark | None = None) -> None:
        """Move the task's push fence on to this call. Safe to repeat.

        :raises OutsideError: could not be done; nothing may be concluded.
        """
        self.git.revoke_push(call, token, held=held)

    def delete_branch(self, branch: str, expected: Sha) -> None:
        """Remove a branch, never the default one, iff it still is at ``expected``; an absent one is left alone.

        :raises OutsideError: the branch has moved.
        """
        self.git.delete_branch(branch, expected)

    def prepare_merge(
        self, candidate: Candidate, source: Path, branch: str, *, held: InstallationMark | None = None
    ) -> None:
        """Have M kept at the forge, and the task's fence stand at it. Safe to repeat; never un-revokes.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: M is not what the candidate says, or was given up already.
        """
        self.git.prepare(candidate, source, held=held)

    def prepared(self, candidate: Candidate) -> bool:
        """Whether M is kept and the task's fence stands at it: what was revoked is not prepared any more."""
        return self.git.prepared(candidate)

    def landed(self, candidates: Sequence[Candidate]) -> Landed | None:
        """The last of these that is on main: by its nonce in a first-parent commit of main, or as an ancestor."""
        return self.git.landed(candidates)

    def revoke_merge(self, candidate: Candidate, token: str, *, held: InstallationMark | None = None) -> None:
        """Move the fence on, take M from the pull request's head, and wait for what has begun. Safe to repeat.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: could not be done; nothing may be concluded.
        """
        self.git.revoke(candidate, token, held=held)

    # -- pull requests -----------------------------------------------------------------------------------------

    def pull_request(self, number: int) -> PullRequest | None:
        """One pull request, however old, None where there is none of this number against the default branch."""
        return self._pulls.pull(number, self.default_branch)

    def pull_requests(self, branch: str) -> Sequence[PullRequest]:
        """The pull requests whose head is ``branch``, oldest first; of the closed ones maybe only the last."""
        return self._pulls.pulls_of(branch, self.default_branch)

    def open_pr(self, branch: str, title: str, body: str) -> PullRequest:
        """Open a pull request against the default branch, or have the one that is open already.

        Two calls at once may open two: not every server looks twice. Whoever has asked looks afterwards.

        :raises OutsideError: there is no such branch, or the server refused.
        """
        if self.tip(branch) is None:
            raise OutsideError(
                f"There is no branch {branch} to open a pull request for.", hint="Push it first."
            )
        answer = self._pulls.open(branch, self.default_branch, title[:TITLE_LIMIT], as_words(body))
        if answer.status == HTTPStatus.CREATED:
            return self._pulls.read(answer.body)
        opened = next((pull for pull in self.pull_requests(branch) if pull.state == "open"), None)
        if opened is None:
            raise refusal(answer, f"open a pull request for {branch}")
        return opened

    def close_pr(self, number: int) -> None:
        """Close one without merging; closing a closed one does nothing.

        :raises OutsideError: there is none of this number, or the server refused.
        """
        answer = self._pulls.close(number)
        if answer.ok:
            return
        known = self.pull_request(number)
        if known is None:
            raise OutsideError(f"There is no pull request {number}.")
        if known.state == "open":
            raise refusal(answer, f"close pull request {number}")

    # -- for the merge -----------------------------------------------------------------------------------------

    def pull_for(self, candidate: Candidate, number: int | None) -> PullRequest:
        """The pull request that is to bring M; one that was merged by hand brought something else.

        :raises OutsideError: there is none, or it is closed.
        """
        if number is not None:
            pull = self.pull_request(number)
        else:
            heads = (candidate.sha, candidate.head_sha)
            known = self._pulls.opened(self.default_branch)
            pull = next((one for one in known if one.head_sha in heads), None)
        if pull is None or pull.state == "closed":
            shown = f"Pull request {number} is {pull.state}" if pull else "There is no pull request"
            raise OutsideError(f"{shown}; {candidate.sha} cannot be merged.")
        return pull

    def show(self, candidate: Candidate, pull: PullRequest, held: InstallationMark | None) -> PullRequest:
        """Make M the head of a pull request that can be merged: of this one, or of its successor.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: M was given up, or main or the branch has moved.
        """
        self.git.show(candidate, pull.branch, held=held)
        if pull.state == "merged":  # by hand, with an earlier head; a server merges none twice
            pull = self.open_pr(pull.branch, pull.title, "")
        main = self.tip(self.default_branch)
        if main != candidate.base_sha:
            raise OutsideError(f"{self.default_branch} is at {main}, not at {candidate.base_sha}.")
        return pull

    def merged(self, number: int, ask: Callable[[], Answer], later: Callable[[Answer], bool]) -> None:
        """Ask for the merge, again for a bounded time while the answer says "later".

        :raises OutsideError: refused or failed; says nothing about the outcome.
        """
        deadline = self._clock.boottime() + self._patience_s
        while True:
            answer = ask()
            if answer.status == HTTPStatus.OK:
                return
            if not later(answer) or self._clock.boottime() >= deadline:
                raise refusal(answer, f"merge pull request {number}")
            self._clock.wait(threading.Event(), self._entropy.jitter(LATER_S))
            self._pulls.pull(number, self.default_branch)  # has it look again
