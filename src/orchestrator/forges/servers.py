"""The servers of this installation, as its settings name them: one for each kind of forge."""

from collections.abc import Mapping

from orchestrator.config.settings import Settings
from orchestrator.forges.remote_open import Server


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
