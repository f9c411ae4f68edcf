"""Gitea and Forgejo: pull requests and the merge over the API, everything that is a fact over git.

Must hold: main is moved by the server's merge alone, which is asked for exactly M: the pull request's head has to be M
when the server merges, and is M only while the candidate's fence stands (law 5). No answer is believed: what has landed
is read from git.

M becomes the pull request's head when it is to be merged, not when it is prepared: until then the branch is the task's
own. Why so: docs/decisions/0014-gitea.md.

On failure: ``AuthorityUnreachable`` where the server cannot be asked, another ``OutsideError`` where it refused.
"""

import threading
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import RepoName, Sha, TaskId
from orchestrator.domain.installation import InstallationMark, SeenCandidate
from orchestrator.domain.task import Candidate, Landed
from orchestrator.forges.forge import PullRequest, PushCall
from orchestrator.forges.gitea_api import Answer, GiteaApi, refusal
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy

TITLE_LIMIT = 255  # characters; the server's column holds no more
LATER = "try again later"  # it finds out whether it can merge; or it never will, in the same words
PATIENCE_S = 10.0  # for that
LATER_S = 0.3


class GiteaForge:
    """One repository; see :class:`~orchestrator.forges.forge.Forge`. Safe for many threads and processes."""

    def __init__(
        self,
        git: RemoteGit,
        api: GiteaApi,
        *,
        clock: Clock,
        entropy: Entropy,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """``patience_s`` is for how long, in seconds, one merge asks again while the server asks for patience."""
        self.repo: RepoName = git.repo
        self.default_branch = git.default_branch
        self.git = git
        self._api = api
        self._clock = clock
        self._entropy = entropy
        self._patience_s = patience_s

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

    def pull_requests(self, branch: str) -> Sequence[PullRequest]:
        """The pull requests whose head is ``branch``, oldest first; of the closed ones those that were changed last."""
        known = self._api.pulls(self.default_branch)
        return [known[number] for number in sorted(known) if known[number].branch == branch]

    def open_pr(self, branch: str, title: str, body: str) -> PullRequest:
        """Open a pull request against the default branch, or have the one that is open already.

        Two calls at once may open two: the server does not look twice. Whoever has asked looks afterwards.

        :raises OutsideError: there is no such branch, or the server refused.
        """
        if self.tip(branch) is None:
            raise OutsideError(
                f"There is no branch {branch} to open a pull request for.", hint="Push it first."
            )
        answer = self._api.open(branch, self.default_branch, title[:TITLE_LIMIT], body)
        if answer.status == HTTPStatus.CREATED:
            return self._api.read(answer.body)
        opened = next((pull for pull in self.pull_requests(branch) if pull.state == "open"), None)
        if opened is None:
            raise refusal(answer, f"open a pull request for {branch}")
        return opened

    def close_pr(self, number: int) -> None:
        """Close one without merging; closing a closed one does nothing.

        :raises OutsideError: there is none of this number, or the server refused.
        """
        answer = self._api.close(number)
        if answer.ok:
            return
        known = self._api.pull(number, self.default_branch)
        if known is None:
            raise OutsideError(f"There is no pull request {number}.")
        if known.state == "open":
            raise refusal(answer, f"close pull request {number}")

    # -- the merge ---------------------------------------------------------------------------------------------

    def merge(
        self, candidate: Candidate, pr_number: int | None, *, held: InstallationMark | None = None
    ) -> None:
        """Make M the pull request's head, and ask the server to merge exactly that.

        Where the server can, by a fast-forward, which it refuses unless main is M's first parent; else by a merge
        commit of its own that carries M's message.

        :raises InstallationChanged: the mark is not ``held``; nothing was merged by this call.
        :raises OutsideError: refused or failed; says nothing about the outcome.
        """
        pull = self._pull_of(candidate, pr_number)
        self.git.show(candidate, pull.branch, held=held)
        if pull.state == "merged":  # by hand, with an earlier head; the server merges none twice
            pull = self.open_pr(pull.branch, pull.title, "")
        main = self.tip(self.default_branch)
        if main != candidate.base_sha:
            raise OutsideError(f"{self.default_branch} is at {main}, not at {candidate.base_sha}.")
        answer = self._merged(pull.number, self._style(), candidate)
        if answer.status != HTTPStatus.OK:
            raise refusal(answer, f"merge pull request {pull.number}")

    def _pull_of(self, candidate: Candidate, number: int | None) -> PullRequest:
        """The pull request that is to bring M; one that was merged by hand brought something else.

        :raises OutsideError: there is none, or it is closed.
        """
        if number is not None:
            pull = self._api.pull(number, self.default_branch)
        else:
            heads = (candidate.sha, candidate.head_sha)
            known = self._api.pulls(self.default_branch).values()
            pull = next((one for one in known if one.state == "open" and one.head_sha in heads), None)
        if pull is None or pull.state == "closed":
            shown = f"Pull request {number} is {pull.state}" if pull else "There is no pull request"
            raise OutsideError(f"{shown}; {candidate.sha} cannot be merged.")
        return pull

    def _style(self) -> str:
        facts = self._api.repository()
        if not facts.merges:
            raise OutsideError(
                f"{facts.full_name} allows neither fast-forward merges nor merge commits.",
                hint="Allow one of them in the repository's settings; the task then goes on.",
            )
        return "fast-forward-only" if facts.fast_forward else "merge"

    def _merged(self, number: int, style: str, candidate: Candidate) -> Answer:
        """The server's answer; asked again, for a bounded time, where it asks for patience."""
        message = self.git.message(candidate.sha)
        deadline = self._clock.boottime() + self._patience_s
        while True:
            answer = self._api.merge(number, style, candidate.sha, message)
            later = answer.status == HTTPStatus.METHOD_NOT_ALLOWED and LATER in answer.message.lower()
            if not later or self._clock.boottime() >= deadline:
                return answer
            self._clock.wait(threading.Event(), self._entropy.jitter(LATER_S))
            self._api.pull(number, self.default_branch)  # has it look again
