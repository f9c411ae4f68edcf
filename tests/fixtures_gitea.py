"""A Gitea that is played, and a house whose forge it is."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from orchestrator.config.secret import Secret
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.forges.git_access import SETTINGS, GitAccess
from orchestrator.forges.gitea import GiteaForge
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.mirror import Mirror
from orchestrator.forges.remote_git import RemoteGit
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import SystemHttp
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.worktree import Workspaces
from tests.fakes.gitea import FakeGitea, Repository
from tests.fixtures_git import Hand, House

NAME = "acme/shop"


@dataclass(frozen=True)
class GiteaHouse(House):
    """The same rooms; the forge is a server elsewhere. Pushes of people go to its git, past its API."""

    server: FakeGitea = field(kw_only=True)
    there: Repository = field(kw_only=True)

    def outsider_pushes(self, files: dict[str, str], message: str = "By somebody else") -> Sha:
        self.person.git("pull", "-q", "--ff-only", str(self.there.path), "main")
        sha = self.person.commit(message, files)
        self.person.git("push", "-q", str(self.there.path), "HEAD:main")
        return sha

    def other_life(self, **more: Any) -> GiteaForge:
        """The forge as another process of ours has it."""
        return gitea_forge(self.server, self.git, self.root / "another.git", **more)


def gitea_forge(
    server: FakeGitea,
    git: Git,
    mirror: Path,
    *,
    clock: Clock | None = None,
    settle_s: float = 0.0,
    patience_s: float = 10.0,
    token: str | None = None,
) -> GiteaForge:
    clock, entropy = clock or SystemClock(), SystemEntropy()
    secret = Secret(token or server.token)
    access = GitAccess(f"{server.url}/{NAME}", secret)
    copy = Mirror(git, mirror, access, clock=clock, entropy=entropy).open_or_create("main")
    there = RemoteGit(copy, RepoName("sample"), "main", clock=clock, settle_s=settle_s)
    api = GiteaApi(SystemHttp(), server.url, NAME, secret)
    return GiteaForge(there, api, clock=clock, entropy=entropy, patience_s=patience_s)


def repository_at(server: FakeGitea, person: Hand, name: str = NAME) -> Repository:
    """A repository at the server with a person's main."""
    owner, short = name.split("/")
    there = server.create(owner, short)
    person.git("push", "-q", str(there.path), "HEAD:refs/heads/main")
    return there


def gitea_house(root: Path, server: FakeGitea, person: Hand, git: Git) -> GiteaHouse:
    there = repository_at(server, person)
    clock, entropy = SystemClock(), SystemEntropy()
    forge = gitea_forge(server, git, root / "mirror.git")
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
    return GiteaHouse(root, person, git, cast(Any, forge), clone, workspaces, server=server, there=there)
