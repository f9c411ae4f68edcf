"""A Gitea that is played, and a house whose forge it is."""

from pathlib import Path

from orchestrator.forges.gitea import GiteaForge
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.played.gitea import FakeGitea
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import SystemHttp
from tests.fixtures_git import Hand
from tests.fixtures_git_server import NAME, RemoteHouse, remote_git, remote_house


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
    clock = clock or SystemClock()
    there, secret = remote_git(server, git, mirror, clock=clock, settle_s=settle_s, token=token)
    api = GiteaApi(SystemHttp(), server.url, NAME, secret)
    return GiteaForge(there, api, clock=clock, entropy=SystemEntropy(), patience_s=patience_s)


def gitea_house(root: Path, server: FakeGitea, person: Hand, git: Git) -> RemoteHouse:
    return remote_house(root, server, person, git, gitea_forge)
