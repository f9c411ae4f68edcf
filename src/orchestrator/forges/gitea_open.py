"""Repositories at the configured Gitea or Forgejo."""

from orchestrator.forges.gitea import GiteaForge
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.forges.remote_open import Lacks, RemoteForges


class GiteaForges(RemoteForges):
    """Opens repositories at one server."""

    kind = "gitea"
    called = "Gitea or Forgejo"

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
                *(["it allows neither fast-forward nor merge commits"] if not facts.merges else []),
            ],
        )

    def whereabouts(self, full_name: str) -> str:
        """What the server calls it now."""
        return self._api(full_name).whereabouts()

    def forge(self, git: RemoteGit, full_name: str) -> GiteaForge:
        """The forge over a repository's git."""
        return GiteaForge(git, self._api(full_name), clock=self.clock, entropy=self.entropy)

    def _api(self, full_name: str) -> GiteaApi:
        return GiteaApi(self.http, self.server.url, full_name, self.server.token)
