"""What `orch doctor` looks at at servers: whether each repository's settings there let it be delivered."""

from collections.abc import Callable, Iterator, Mapping

from orchestrator.cli.checks import Finding, Level
from orchestrator.config import Settings
from orchestrator.domain.errors import OrchestratorError, OutsideError
from orchestrator.forges import gitea_rules, github_rules
from orchestrator.forges.complaint import Complaint
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.github_api import GitHubApi
from orchestrator.forges.github_limits import Limits
from orchestrator.forges.remote_open import Server
from orchestrator.forges.servers import servers
from orchestrator.repositories import GITEA, GITHUB
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.http import Http
from orchestrator.wiring import open_readonly


def forges(settings: Settings, environ: Mapping[str, str], http: Http) -> Iterator[Finding]:
    """What is wrong with the repositories at the configured servers; nothing where there is none."""
    known = {kind: server for kind, server in servers(settings).items() if server.configured}
    if not known or not settings.database_path.exists():
        return
    try:
        with open_readonly(settings, environ) as app:
            repositories = app.operations.repositories()
    except OrchestratorError:
        return  # said of the database already
    for at in repositories:
        server = known.get(at.forge)
        if server is None or not at.location.startswith(f"{server.url}/"):
            continue
        try:
            found = _LOOKS[at.forge](http, server, at.location.removeprefix(f"{server.url}/"))
        except OutsideError as error:
            yield Finding(Level.WARNING, at.name, error.message, error.hint)
            continue
        for one in found:
            level = Level.FAILED if one.prevents else Level.WARNING
            yield Finding(level, at.name, one.text, one.hint)


def _gitea(http: Http, server: Server, full_name: str) -> list[Complaint]:
    api = GiteaApi(http, server.url, full_name, server.token)
    facts = api.repository()
    return list(gitea_rules.complaints(facts, api.branch(facts.default_branch)))


def _github(http: Http, server: Server, full_name: str) -> list[Complaint]:
    clock = SystemClock()
    api = GitHubApi(http, server.url, full_name, server.token, Limits(clock))
    facts = api.repository()
    found = list(github_rules.complaints(facts, api.branch(facts.default_branch)))
    return [*found, *github_rules.of_the_token(api.token_ends, clock.utc())]


_LOOKS: Mapping[str, Callable[[Http, Server, str], list[Complaint]]] = {GITEA: _gitea, GITHUB: _github}
