"""Opening repositories at the server of one kind that this installation has, and finding out whether they can be worked
on. The token is given to that server alone."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable, ConfigError
from orchestrator.domain.ids import RepoName
from orchestrator.forges.git_access import GitAccess
from orchestrator.forges.mirror import Mirror
from orchestrator.forges.remote_forge import RemoteForge
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import Http

_FULL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}/[A-Za-z0-9._-]{1,100}")
_SHOWN = 80  # characters of a name that a message repeats


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and our token there; ``settle_s`` is for how long a merge that it has begun may take to land."""

    url: str
    token: Secret
    settle_s: float

    @property
    def configured(self) -> bool:
        """Whether there is one."""
        return bool(self.url and self.token)


@dataclass(frozen=True, slots=True)
class Lacks:
    """What a repository is called there, and why it cannot be worked on; nothing where it can."""

    full_name: str
    why: Sequence[str]


class RemoteForges(ABC):
    """Opens repositories at one server."""

    kind: str  # how the settings call it
    called: str  # how people do

    def __init__(self, server: Server, git: Git, http: Http, *, clock: Clock, entropy: Entropy) -> None:
        self.server = server
        self.http = http
        self.clock = clock
        self.entropy = entropy
        self._git = git

    @abstractmethod
    def default_branch(self, full_name: str) -> str:
        """What the server calls it.

        :raises AuthorityUnreachable: it cannot be asked.
        """

    @abstractmethod
    def lacks(self, full_name: str) -> Lacks:
        """What is missing before a repository can be worked on.

        :raises AuthorityUnreachable: the server cannot be asked, or shows us no such repository.
        """

    @abstractmethod
    def whereabouts(self, full_name: str) -> str:
        """What the server calls a repository now: its old name leads there when it was renamed or transferred.

        :raises AuthorityUnreachable: the server cannot be asked, or shows us no such repository.
        """

    @abstractmethod
    def forge(self, git: RemoteGit, full_name: str) -> RemoteForge:
        """The forge over a repository's git."""

    def open(
        self, repo: RepoName, location: str, mirror: Path, *, objects: Path | None = None
    ) -> RemoteForge:
        """The forge of a registered repository; ``mirror`` is where our copy of it lies, ``objects`` those of another
        copy, which need not be fetched again.

        :raises AuthorityUnreachable: the server cannot be asked, or the location is not one of its repositories.
        :raises OSError: the state folder cannot be written.
        """
        full_name = self.name_at(location)
        if full_name is None:
            raise AuthorityUnreachable(
                f"{location} is not at the configured server ({self.server.url or 'none'}).",
                hint=f"Set {self._settings} for it; the token is given to no other. Has the server another address "
                "now? `orch repo move` takes it.",
            )
        branch = self.default_branch(full_name)
        access = GitAccess(location, self.server.token)
        copy = Mirror(self._git, mirror, access, clock=self.clock, entropy=self.entropy)
        copy.open_or_create(branch)
        if objects is not None:
            copy.borrow(objects)
        git = RemoteGit(copy, repo, branch, clock=self.clock, settle_s=self.server.settle_s)
        return self.forge(git, full_name)

    def name_at(self, location: str) -> str | None:
        """What a registered repository is called here; None where its address is not of this server."""
        full_name = location.removeprefix(f"{self.server.url}/")
        here = self.server.configured and full_name != location and _FULL_NAME.fullmatch(full_name)
        return full_name if here else None

    def location(self, full_name: str) -> str:
        """The address under which a repository is registered, once it is known that it can be worked on.

        :raises ConfigError: no server is configured, or the repository does not allow what is needed.
        :raises AuthorityUnreachable: the server cannot be asked, or shows us no such repository.
        """
        if not self.server.configured:
            raise ConfigError(
                f"No {self.called} is configured; nothing was registered.", hint=f"Set {self._settings}."
            )
        if not _FULL_NAME.fullmatch(full_name):
            raise ConfigError(
                f"{ascii(full_name[:_SHOWN])} names no repository; nothing was changed.",
                hint="Name it as owner/name, as in its address.",
            )
        found = self.lacks(full_name)
        same = found.full_name.lower() == full_name.lower()
        why = [*found.why, *([] if same else ["it is shown under another name"])]
        if why:
            raise ConfigError(
                f"{full_name} cannot be worked on: {', '.join(why)}; nothing was changed.",
                hint="Change that in the repository's settings.",
            )
        return f"{self.server.url}/{found.full_name}"

    @property
    def _settings(self) -> str:
        name = self.kind.upper()
        return f"ORCH_{name}_URL and ORCH_{name}_TOKEN_FILE"
