"""Where a repository's effects take place; built by wiring, looked up by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.domain.ids import RepoName
from orchestrator.forges.forge import Forge
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.worktree import Workspaces


@dataclass(frozen=True, slots=True)
class Place:
    """One repository: its forge, our clone of it, and its tasks' workspaces."""

    repo: RepoName
    forge: Forge
    clone: Clone
    workspaces: Workspaces


class Places(Protocol):
    """All repositories."""

    def of(self, repo: str) -> Place:
        """The place of a repository.

        :raises NotFound: it is not registered.
        """
        ...


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the orchestrator keeps what it makes; all below the state folder."""

    home: Path

    @property
    def runs(self) -> Path:
        """A folder per agent run."""
        return self.home / "runs"

    @property
    def deploys(self) -> Path:
        """A folder per start of an environment."""
        return self.home / "deploys"

    @property
    def images(self) -> Path:
        """The artefact store."""
        return self.home / "images"

    @property
    def checkouts(self) -> Path:
        """Throw-away checkouts."""
        return self.home / "checkouts"

    @property
    def logs(self) -> Path:
        """Logs of checks and builds."""
        return self.home / "logs"

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a repository's own commands (CI, build) see of our environment: nothing secret."""
        return {
            name: environ[name]
            for name in ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
            if name in environ
        }
