"""What `orch doctor` looks at at servers: whether each repository's settings there let it be delivered."""

from collections.abc import Callable, Collection, Iterator, Mapping

from orchestrator.cli.findings import Finding, Level
from orchestrator.config import Settings
from orchestrator.db.opening import has_state
from orchestrator.domain.errors import OrchestratorError, OutsideError
from orchestrator.forges import gitea_rules, github_rules
from orchestrator.forges.complaint import Complaint
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.github_api import GitHubApi
from orchestrator.forges.hooks import Hooks
from orchestrator.forges.remote_open import Server
from orchestrator.forges.servers import servers, webhooks_of
from orchestrator.repositories import GITEA, GITHUB
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.http import Http
from orchestrator.webhooks.envelope import path_of
from orchestrator.wiring import open_readonly


def forges(
    settings: Settings, environ: Mapping[str, str], http: Http, *, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """What is wrong with the repositories at the configured servers, or with those of these names; nothing where there
    is none."""
    known = {kind: server for kind, server in servers(settings).items() if server.configured}
    if not known:
        return
    try:
        if not has_state(settings.database_url):
            return
        with open_readonly(settings, environ) as app:
            repositories = app.operations.repositories()
    except OrchestratorError:
        return  # said of the database already
    for at in repositories:
        server = known.get(at.forge)
        if at.left_at is not None or (only is not None and at.name not in only):
            continue
        if server is None or not at.location.startswith(f"{server.url}/"):
            continue
        full_name = at.location.removeprefix(f"{server.url}/")
        try:
            now = webhooks_of(at.forge, server, full_name, http, SystemClock()).whereabouts()
            if now != full_name:
                yield Finding(Level.FAILED, at.name, *_moved(at.name, full_name, now))
                continue
            found = _LOOKS[at.forge](http, server, full_name)
        except OutsideError as error:
            yield Finding(Level.WARNING, at.name, error.message, error.hint)
            continue
        found += _webhook(settings, at.forge, webhooks_of(at.forge, server, full_name, http, SystemClock()))
        for one in found:
            level = Level.FAILED if one.prevents else Level.WARNING
            yield Finding(level, at.name, one.text, one.hint)


def _moved(name: str, was: str, now: str) -> tuple[str, str]:
    return (
        f"It is called {now} at its server now, and was {was}: nothing is done for it there.",
        f"If that is right: orch repo move {name} --to {now}",
    )


def _webhook(settings: Settings, kind: str, hooks: Hooks) -> list[Complaint]:
    """Whether the server tells us of it, where that is wanted and our user may see it."""
    secrets = {GITEA: settings.gitea_webhook_secret, GITHUB: settings.github_webhook_secret}[kind]
    address = settings.base_url + path_of(kind)
    try:
        if not secrets or any(hook.active for hook in hooks.leading_to(address)):
            return []
    except OutsideError:  # not ours to see, most of all
        return []
    text = f"No active webhook delivers at {address}: what happens there is seen at the next look alone."
    return [Complaint(text, f"`orch connect {kind}` makes it.", False)]


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
