"""What `orch doctor` looks at at Gitea and Forgejo: whether each repository's settings there let it be delivered."""

from collections.abc import Iterator, Mapping

from orchestrator.cli.checks import Finding, Level
from orchestrator.config import Settings
from orchestrator.domain.errors import OrchestratorError, OutsideError
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.gitea_rules import complaints
from orchestrator.repositories import GITEA
from orchestrator.runtime.http import Http
from orchestrator.wiring import open_readonly


def forges(settings: Settings, environ: Mapping[str, str], http: Http) -> Iterator[Finding]:
    """What is wrong with the repositories at the configured server; nothing where there is none."""
    base = f"{settings.gitea_url}/"
    if not settings.gitea_token or not settings.database_path.exists():
        return
    try:
        with open_readonly(settings, environ) as app:
            known = app.operations.repositories()
    except OrchestratorError:
        return  # said of the database already
    for at in known:
        if at.forge != GITEA or not at.location.startswith(base):
            continue
        api = GiteaApi(http, settings.gitea_url, at.location.removeprefix(base), settings.gitea_token)
        try:
            facts = api.repository()
            found = list(complaints(facts, api.branch(facts.default_branch)))
        except OutsideError as error:
            yield Finding(Level.WARNING, at.name, error.message, error.hint)
            continue
        for one in found:
            level = Level.FAILED if one.prevents else Level.WARNING
            yield Finding(level, at.name, one.text, one.hint)
