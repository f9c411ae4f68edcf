"""The servers of this installation, as its settings name them: one for each kind of forge."""

from collections.abc import Mapping

from orchestrator.config.settings import Settings
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.gitea_others import GiteaOthers
from orchestrator.forges.github_api import GitHubApi
from orchestrator.forges.github_others import GitHubOthers
from orchestrator.forges.hooks import GITEA, GITHUB, Hooks
from orchestrator.forges.others import Others
from orchestrator.forges.remote_open import Server
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.http import Http


def servers(settings: Settings) -> Mapping[str, Server]:
    """By the kind of the forge."""
    settle_s = settings.forge_settle_s
    return {
        "gitea": Server(settings.gitea_url, settings.gitea_token, settle_s),
        "github": Server(settings.github_url, settings.github_token, settle_s),
    }


def server_of(settings: Settings, address: str) -> Server | None:
    """The one at which a repository lies whose address this is; None where it is not configured."""
    known = (server for server in servers(settings).values() if server.configured)
    return next((server for server in known if address.startswith(f"{server.url}/")), None)


def others_of(kind: str, server: Server, full_name: str, http: Http, clock: Clock) -> Others:
    """The checks and reviews of a repository at the server of a kind."""
    if kind == "gitea":
        return GiteaOthers(GiteaApi(http, server.url, full_name, server.token))
    return GitHubOthers(GitHubApi(http, server.url, full_name, server.token, Limits(clock)))


def webhooks_of(kind: str, server: Server, full_name: str, http: Http, clock: Clock) -> Hooks:
    """The webhooks of a repository at the server of a kind."""
    if kind == "gitea":
        return Hooks(GiteaApi(http, server.url, full_name, server.token), GITEA)
    return Hooks(GitHubApi(http, server.url, full_name, server.token, Limits(clock)), GITHUB)
