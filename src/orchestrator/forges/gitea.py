"""Gitea and Forgejo: pull requests and the merge over the API, everything that is a fact over git.

Must hold: main is moved by the server's merge alone, which is asked for exactly M: the pull request's head has to be M
when the server merges, and is M only while the candidate's fence stands (law 5). No answer is believed: what has landed
is read from git.

M becomes the pull request's head when it is to be merged, not when it is prepared: until then the branch is the task's
own. Why so: docs/decisions/0014-gitea.md.

On failure: ``AuthorityUnreachable`` where the server cannot be asked, another ``OutsideError`` where it refused.
"""

from http import HTTPStatus

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.installation import InstallationMark
from orchestrator.domain.task import Candidate
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.gitea_others import GiteaOthers
from orchestrator.forges.remote_forge import PATIENCE_S, RemoteForge
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.rest.api import Answer
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy

LATER = "try again later"  # it finds out whether it can merge; or it never will, in the same words


class GiteaForge(RemoteForge):
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
        others = GiteaOthers(api)
        super().__init__(git, api, others, clock=clock, entropy=entropy, patience_s=patience_s)
        self._api = api

    def merge(
        self, candidate: Candidate, pr_number: int | None, *, held: InstallationMark | None = None
    ) -> None:
        """Make M the pull request's head, and ask the server to merge exactly that.

        Where the server can, by a fast-forward, which it refuses unless main is M's first parent; else by a merge
        commit of its own that carries M's message.

        :raises InstallationChanged: the mark is not ``held``; nothing was merged by this call.
        :raises OutsideError: refused or failed; says nothing about the outcome.
        """
        pull = self.show(candidate, self.pull_for(candidate, pr_number), held)
        style, message = self._style(), self.git.message(candidate.sha)
        self.merged(
            pull.number, lambda: self._api.merge(pull.number, style, candidate.sha, message), _says_later
        )

    def _style(self) -> str:
        facts = self._api.repository()
        if not facts.merges:
            raise OutsideError(
                f"{facts.full_name} allows neither fast-forward merges nor merge commits.",
                hint="Allow one of them in the repository's settings; the task then goes on.",
            )
        return "fast-forward-only" if facts.fast_forward else "merge"


def _says_later(answer: Answer) -> bool:
    return answer.status == HTTPStatus.METHOD_NOT_ALLOWED and LATER in answer.message.lower()
