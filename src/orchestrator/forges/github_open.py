"""Repositories at GitHub, or at the configured GitHub Enterprise Server."""

from orchestrator.forges.github import GitHubForge
from orchestrator.forges.github_api import GitHubApi
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.forges.remote_open import Lacks, RemoteForges, Server
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import Http


class GitHubForges(RemoteForges):
    """Opens repositories at one server; what limits one of them limits all."""

    kind = "github"
    called = "GitHub"

    def __init__(
        self, server: Server, git: Git, http: Http, *, clock: Clock, entropy: Entropy, limits: Limits
    ) -> None:
        """``limits`` are those of the token, whatever else it is used for."""
        super().__init__(server, git, http, clock=clock, entropy=entropy)
        self._limits = limits

    def default_branch(self, full_name: str) -> str:
        """What the server calls it."""
        return self._api(full_name).repository().default_branch

    def lacks(self, full_name: str) -> Lacks:
        """What is missing before a repository can be worked on."""
        facts = self._api(full_name).repository()
        return Lacks(
            facts.full_name,
            [
                *(["it is archived"] if facts.archived else []),
                *(["the token's user may not write to it"] if not facts.may_push else []),
            ],
        )

    def whereabouts(self, full_name: str) -> str:
        """What the server calls it now."""
        return self._api(full_name).whereabouts()

    def forge(self, git: RemoteGit, full_name: str) -> GitHubForge:
        """The forge over a repository's git."""
        return GitHubForge(git, self._api(full_name), clock=self.clock, entropy=self.entropy)

    def _api(self, full_name: str) -> GitHubApi:
        return GitHubApi(self.http, self.server.url, full_name, self.server.token, self._limits)
