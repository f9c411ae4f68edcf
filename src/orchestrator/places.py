"""Where a repository's effects take place; built by wiring, looked up by name."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.ids import RepoName
from orchestrator.forges.forge import Forge
from orchestrator.forges.others import Others
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.files import publish_exclusive
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.worktree import Workspaces

# In the environment of everything that checks and builds start: whose state folder, and which life of which process.
INSTALLATION = "ORCH_INSTALLATION"
PROCESS = "ORCH_PROCESS"
STATE_ID = "state-id"


@dataclass(frozen=True, slots=True)
class Place:
    """One repository: its forge, our clone of it, and its tasks' workspaces."""

    repo: RepoName
    forge: Forge
    clone: Clone
    workspaces: Workspaces
    others: Others | None = None  # whose checks and reviews the forge shows; None at a local forge


class Places(Protocol):
    """All repositories."""

    def of(self, repo: str) -> Place:
        """The place of a repository.

        :raises NotFound: it is not registered.
        """
        ...


def state_id_of(home: Path, entropy: Entropy) -> str:
    """What tells a state folder from others, wherever it is mounted; it is given when this is first asked.

    :raises DatabaseError: it cannot be written or read.
    """
    place = home / STATE_ID
    try:
        if not place.exists():
            publish_exclusive(place, entropy.token(16).encode())
        return place.read_text(encoding="ascii", errors="replace").strip()[:64]
    except OSError as error:
        raise DatabaseError(
            f"The state folder cannot be used: {error.strerror} ({place}).",
            hint="Make it writable for this user, or name another one in ORCH_HOME.",
        ) from error


def known_state_id(home: Path) -> str | None:
    """The same, where it has been given already."""
    try:
        return (home / STATE_ID).read_text(encoding="ascii", errors="replace").strip()[:64]
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the orchestrator keeps what it makes; all below the state folder."""

    home: Path
    boot_id: str = "nobody"  # of the process that makes it

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
        """Throw-away checkouts of this process, below :attr:`all_checkouts`."""
        return self.all_checkouts / self.boot_id

    @property
    def all_checkouts(self) -> Path:
        """A folder for each process that has made any."""
        return self.home / "checkouts"

    def mirror(self, name: str) -> Path:
        """Our copy of what a repository's forge elsewhere has; it can be made anew from there."""
        return self.home / "mirrors" / f"{name}.git"

    @property
    def logs(self) -> Path:
        """Logs of checks and builds."""
        return self.home / "logs"

    def marks(self) -> dict[str, str]:
        """What checks and builds carry, so that the next life finds those that outlive this one.

        It names this very state folder: another one's work, be it under the same path in a container, is not ours.

        :raises OSError: there is no state folder.
        """
        state = self.home.stat()
        named = f"{state.st_dev}:{state.st_ino}:".encode() + os.fsencode(self.home.resolve())
        return {INSTALLATION: hashlib.sha256(named).hexdigest()[:32], PROCESS: self.boot_id}

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a repository's own commands (CI, build) see of our environment: nothing secret."""
        return {
            name: environ[name]
            for name in ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
            if name in environ
        }
