"""What `orch doctor` looks at where others at a forge are asked: are there any, and can we hear them?"""

from collections.abc import Iterator

from orchestrator.cli.checkout import HEADS, Registered, default_branch, rev
from orchestrator.cli.findings import Finding, Level
from orchestrator.config import Settings
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.domain.spelling import did_you_mean
from orchestrator.forges.servers import others_of, servers
from orchestrator.repo_config.records import RepoConfig
from orchestrator.repositories import LOCAL
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import Http

RIGHTS = "The token needs to read checks and commit statuses: docs/how-to/checks-and-reviews.md."


def others(settings: Settings, git: Git, http: Http, at: Registered, config: RepoConfig) -> Iterator[Finding]:
    """What is wrong with asking others about changes of a repository; nothing where nobody is asked."""
    if not config.forge.asks:
        return
    if at.forge == LOCAL:
        text = "[forge] asks for checks or reviews of others, and its forge is a local one, which has none."
        hint = "Take [forge] out: [ci] are the checks here, and [approvals] asks people."
        yield Finding(Level.FAILED, at.name, text, hint)
        return
    server, wanted = servers(settings).get(at.forge), config.forge.required_checks
    tip = rev(git, at.location, HEADS + default_branch(at), bare=True)
    if server is None or not at.address.startswith(f"{server.url}/") or tip is None or not wanted:
        return  # said already
    full_name = at.address.removeprefix(f"{server.url}/")
    try:
        found = others_of(at.forge, server, full_name, http, SystemClock()).checks(Sha(tip))
    except OutsideError as error:
        yield Finding(Level.FAILED, at.name, f"Its checks cannot be read: {error.message}", RIGHTS)
        return
    seen = {check.name for check in found}
    for name in wanted:
        # One that is not there may run on pull requests alone; one that is spelled otherwise hardly does.
        guess = did_you_mean(name, seen) if name not in seen else ""
        if guess:
            text = f"No check of {default_branch(at)} is called {name}, which has to pass."
            yield Finding(Level.WARNING, at.name, text, guess)
