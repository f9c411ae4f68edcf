"""GitHub: pull requests over the API, everything that is a fact over git, and the merge by a push of M where that is
allowed, else by the server.

Must hold: a push moves main from M's first parent, while M's fence and the installation's mark stand, and all three
together (law 5). Where rules keep pushes off main, the server is asked to merge exactly M: the pull request's head has
to be M then, and is M only while its fence stands. No answer is believed: what has landed is read from git. Why so:
docs/decisions/0016-github.md.

On failure: ``AuthorityUnreachable`` where the server cannot be asked, another ``OutsideError`` where it refused.
"""

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.installation import InstallationMark
from orchestrator.domain.task import Candidate
from orchestrator.forges.forge import PullRequest
from orchestrator.forges.github_api import GitHubApi
from orchestrator.forges.github_others import GitHubOthers
from orchestrator.forges.remote_forge import PATIENCE_S, RemoteForge
from orchestrator.forges.remote_git import MainShut, RemoteGit
from orchestrator.rest.api import Answer
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy

# It has not seen M as the head yet, has not found out whether it can be merged, or another merge is under way.
LATER = ("try the merge again", "is not mergeable", "already in progress")


class GitHubForge(RemoteForge):
    """One repository; see :class:`~orchestrator.forges.forge.Forge`. Safe for many threads and processes."""

    def __init__(
        self,
        git: RemoteGit,
        api: GitHubApi,
        *,
        clock: Clock,
        entropy: Entropy,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """``patience_s`` is for how long, in seconds, one merge asks again while the server asks for patience."""
        others = GitHubOthers(api)
        super().__init__(git, api, others, clock=clock, entropy=entropy, patience_s=patience_s)
        self._api = api

    def merge(
        self, candidate: Candidate, pr_number: int | None, *, held: InstallationMark | None = None
    ) -> None:
        """Push M to main; where rules forbid that, make M the pull request's head and ask the server to merge it.

        Pushed, main is M itself, and the server notices that the pull request is merged. By the server, it is a merge
        commit of its own that carries M's message.

        :raises InstallationChanged: the mark is not ``held``; nothing was merged by this call.
        :raises OutsideError: refused or failed; says nothing about the outcome.
        """
        pull = self.pull_for(candidate, pr_number)
        try:
            self.git.land(candidate, pull.branch, held=held)
        except MainShut as shut:
            self._by_the_server(candidate, pull, held, shut)

    def _by_the_server(
        self, candidate: Candidate, pull: PullRequest, held: InstallationMark | None, shut: MainShut
    ) -> None:
        if not self._api.repository().merge:
            raise OutsideError(
                f"{shut.message} And it allows no merge commits.",
                hint="Let our user push there, or allow merge commits; the task then goes on.",
            ) from shut
        pull = self.show(candidate, pull, held)
        message = self.git.message(candidate.sha)
        self.merged(
            pull.number, lambda: self._api.merge(pull.number, candidate.sha, message), _says_later
        )  # fmt: skip


def _says_later(answer: Answer) -> bool:
    return answer.status in (405, 409) and any(words in answer.message.lower() for words in LATER)
