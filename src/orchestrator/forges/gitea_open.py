"""Opening a repository at the configured Gitea or Forgejo, and finding out whether it can be worked on."""

import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable, ConfigError
from orchestrator.domain.ids import RepoName
from orchestrator.forges.git_access import GitAccess
from orchestrator.forges.gitea import GiteaForge
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.mirror import Mirror
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import Http

_FULL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9._-]{1,100}")
_SHOWN = 80  # characters of a name that a message repeats


@dataclass(frozen=True, slots=True)
class GiteaServer:
    """The server of this installation, and our token there."""

    url: str
    token: Secret
    settle_s: float

    @property
    def configured(self) -> bool:
        """Whether there is one."""
        return bool(self.url and self.token)


class GiteaForges:
    """Opens repositories at one server."""

    def __init__(self, server: GiteaServer, git: Git, http: Http, *, clock: Clock, entropy: Entropy) -> None:
        self._server = server
        self._git = git
        self._http = http
        self._clock = clock
        self._entropy = entropy

    def open(self, repo: RepoName, location: str, mirror: Path) -> GiteaForge:
        """The forge of a registered repository; ``mirror`` is where our copy of it lies.

        :raises AuthorityUnreachable: the server cannot be asked, or the location is not one of its repositories.
        :raises OSError: the state folder cannot be written.
        """
        base = f"{self._server.url}/"
        full_name = location.removeprefix(base)
        if not self._server.configured or full_name == location or not _FULL_NAME.fullmatch(full_name):
            raise AuthorityUnreachable(
                f"{location} is not at the configured server ({self._server.url or 'none'}).",
                hint="Set ORCH_GITEA_URL and ORCH_GITEA_TOKEN_FILE for it; the token is given to no other.",
            )
        api = GiteaApi(self._http, self._server.url, full_name, self._server.token)
        branch = api.repository().default_branch
        access = GitAccess(location, self._server.token)
        copy = Mirror(self._git, mirror, access, clock=self._clock, entropy=self._entropy)
        git = RemoteGit(
            copy.open_or_create(branch), repo, branch, clock=self._clock, settle_s=self._server.settle_s
        )
        return GiteaForge(git, api, clock=self._clock, entropy=self._entropy)

    def location(self, full_name: str) -> str:
        """The address under which a repository is registered, once it is known that it can be worked on.

        :raises ConfigError: no server is configured, or the repository does not allow what is needed.
        :raises AuthorityUnreachable: the server cannot be asked, or shows us no such repository.
        """
        if not self._server.configured:
            raise ConfigError(
                "No Gitea or Forgejo is configured; nothing was registered.",
                hint="Set ORCH_GITEA_URL and ORCH_GITEA_TOKEN_FILE.",
            )
        if not _FULL_NAME.fullmatch(full_name):
            raise ConfigError(
                f"{ascii(full_name[:_SHOWN])} names no repository; nothing was registered.",
                hint="Name it as owner/name, as in its address.",
            )
        facts = GiteaApi(self._http, self._server.url, full_name, self._server.token).repository()
        lacks = [
            *(["it is archived"] if facts.archived else []),
            *(["the token's user may not write to it"] if not facts.may_push else []),
            *(["it allows neither fast-forward nor merge commits"] if not facts.merges else []),
            *(["it is shown under another name"] if facts.full_name.lower() != full_name.lower() else []),
        ]
        if lacks:
            raise ConfigError(
                f"{full_name} cannot be worked on: {', '.join(lacks)}; nothing was registered.",
                hint="Change that in the repository's settings.",
            )
        return f"{self._server.url}/{facts.full_name}"
