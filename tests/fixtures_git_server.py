"""A house whose forge is a played server elsewhere, whatever its kind."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from orchestrator.config.secret import Secret
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.forges.git_access import SETTINGS, GitAccess
from orchestrator.forges.mirror import Mirror
from orchestrator.forges.remote_forge import RemoteForge
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.worktree import Workspaces
from tests.fixtures_git import Hand, House

NAME = "acme/shop"
MakeForge = Callable[..., RemoteForge]  # of a server, git and the folder of a mirror; see `remote_git`


@dataclass(frozen=True)
class RemoteHouse(House):
    """The same rooms; the forge is a server elsewhere. Pushes of people go to its git, past its API."""

    server: Any = field(kw_only=True)
    there: Any = field(kw_only=True)  # the repository as the server has it
    make: MakeForge = field(kw_only=True)

    def outsider_pushes(self, files: dict[str, str], message: str = "By somebody else") -> Sha:
        self.person.git("pull", "-q", "--ff-only", str(self.there.path), "main")
        sha = self.person.commit(message, files)
        git = self.there.git  # no rule of the server's binds whoever sits in it
        git("fetch", "-q", str(self.person.folder), "HEAD")
        git("update-ref", "refs/heads/main", sha)
        return sha

    def other_life(self, **more: Any) -> RemoteForge:
        """The forge as another process of ours has it."""
        return self.make(self.server, self.git, self.root / "another.git", **more)


def remote_git(
    server: Any, git: Git, mirror: Path, *, clock: Clock, settle_s: float, token: str | None
) -> tuple[RemoteGit, Secret]:
    secret = Secret(token or server.token)
    access = GitAccess(f"{server.url}/{NAME}", secret)
    copy = Mirror(git, mirror, access, clock=clock, entropy=SystemEntropy()).open_or_create("main")
    return RemoteGit(copy, RepoName("sample"), "main", clock=clock, settle_s=settle_s), secret


def repository_at(server: Any, person: Hand, name: str = NAME) -> Any:
    """A repository at the server with a person's main."""
    owner, short = name.split("/")
    there = server.create(owner, short)
    person.git("push", "-q", str(there.path), "HEAD:refs/heads/main")
    return there


def remote_house(root: Path, server: Any, person: Hand, git: Git, make: MakeForge) -> RemoteHouse:
    there = repository_at(server, person)
    clock, entropy = SystemClock(), SystemEntropy()
    forge = make(server, git, root / "mirror.git")
    repos = root / "state" / "repos" / "sample"
    clone = Clone(
        git,
        repos / "clone.git",
        forge.fetch_url(),
        "main",
        clock=clock,
        entropy=entropy,
        fetch_env=forge.git.mirror.access.environment,
        fetch_settings=SETTINGS,
    )
    clone.open_or_create().fetch()
    workspaces = Workspaces(clone, repos, clock)
    return RemoteHouse(
        root, person, git, cast(Any, forge), clone, workspaces, server=server, there=there, make=make
    )


class SteppingClock(SystemClock):
    """Nobody waits; the time moves on all the same."""

    def __init__(self) -> None:
        self.moved = 0.0
        self.waits: list[float] = []

    def boottime(self) -> float:
        return super().boottime() + self.moved

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        self.waits.append(seconds or 0.0)
        self.moved += seconds or 0.0
        return event.is_set()
