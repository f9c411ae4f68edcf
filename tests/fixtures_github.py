"""A GitHub that is played, and a house whose forge it is."""

from pathlib import Path

from orchestrator.forges.github import GitHubForge
from orchestrator.forges.github_api import GitHubApi
from orchestrator.played.github import FakeGitHub
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import SystemHttp
from tests.fixtures_git import Hand
from tests.fixtures_git_server import NAME, RemoteHouse, remote_git, remote_house


def github_forge(
    server: FakeGitHub,
    git: Git,
    mirror: Path,
    *,
    clock: Clock | None = None,
    settle_s: float = 0.0,
    patience_s: float = 10.0,
    token: str | None = None,
) -> GitHubForge:
    clock = clock or SystemClock()
    there, secret = remote_git(server, git, mirror, clock=clock, settle_s=settle_s, token=token)
    api = GitHubApi(SystemHttp(), server.url, NAME, secret, Limits(clock))
    return GitHubForge(there, api, clock=clock, entropy=SystemEntropy(), patience_s=patience_s)


def github_house(root: Path, server: FakeGitHub, person: Hand, git: Git) -> RemoteHouse:
    return remote_house(root, server, person, git, github_forge)
