"""``orch connect``."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from orchestrator.cli import trial
from orchestrator.cli.desk import settings_for_command
from orchestrator.cli.doctor import FAILED, lines
from orchestrator.cli.findings import Finding, Level
from orchestrator.cli.forge_checks import forges
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import say, say_json
from orchestrator.cli.tracker_checks import trackers
from orchestrator.cli.tracker_labels import label_project, label_repositories
from orchestrator.config import Secret, Secrets, Settings
from orchestrator.config.values import web_address
from orchestrator.db import tickets
from orchestrator.domain.errors import ConfigError, OutsideError
from orchestrator.forges.hooks import Hooks, NotAllowed
from orchestrator.forges.servers import servers, webhooks_of
from orchestrator.repositories import GITEA, GITHUB
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import Entropy, SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import SystemHttp
from orchestrator.runtime.process import SystemProcesses
from orchestrator.trackers import plane_trial
from orchestrator.trackers.plane import NAME as PLANE
from orchestrator.trackers.plane_project import PlaneProject
from orchestrator.web.views import record
from orchestrator.wiring import open_readonly

CALLED = {GITEA: "Gitea or Forgejo", GITHUB: "GitHub", PLANE: "Plane"}
GUIDE = "docs/how-to/receive-webhooks.md"

WAIT_S = 20.0
_wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 600),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long the trial's delivery is waited for.",
)


@click.group("connect")
def command() -> None:
    """Connect with Plane, Gitea or GitHub, and try it.

    Looks whether the token may do what is needed, makes the webhook where that is allowed and says what to paste where
    it is not, then makes one harmless change there, undoes it, and waits until it is told of here. Calling it again
    changes nothing that is in order. The service has to run, and ORCH_BASE_URL has to be an address that the server
    reaches.
    """


@command.command("gitea")
@click.argument("repositories", nargs=-1)
@_wait_option
@json_option
def gitea(repositories: tuple[str, ...], wait_s: float, as_json: bool) -> int:
    """Connect the repositories at the Gitea or Forgejo of ORCH_GITEA_URL: all that are registered, or those named."""
    return _told(_of_forge(GITEA, repositories, wait_s), as_json)


@command.command("github")
@click.argument("repositories", nargs=-1)
@_wait_option
@json_option
def github(repositories: tuple[str, ...], wait_s: float, as_json: bool) -> int:
    """Connect the repositories at the GitHub of ORCH_GITHUB_URL: all that are registered, or those named.

    Where tickets are issues, makes the labels that mark them and show their stages.
    """
    return _told(_of_forge(GITHUB, repositories, wait_s), as_json)


@command.command("plane")
@click.argument("repositories", nargs=-1)
@_wait_option
@json_option
def plane(repositories: tuple[str, ...], wait_s: float, as_json: bool) -> int:
    """Connect the projects at the Plane of ORCH_PLANE_URL that tickets come from: of all repositories, or those named.

    Makes the label that marks our tickets where the project has none. Plane lets nobody make a webhook by key: what to
    paste there is printed.
    """
    return _told(_of_plane(repositories, wait_s), as_json)


def _told(findings: Iterator[Finding], as_json: bool) -> int:
    """Say each thing as soon as it is known; the exit code."""
    found = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            say("\n".join(lines([finding])))
    bad = any(finding.level is Level.FAILED for finding in found)
    if as_json:
        say_json({"ok": not bad, "findings": [record(finding) for finding in found]})
    return FAILED if bad else 0


@dataclass(frozen=True, slots=True)
class _Known:
    """A repository at the server."""

    name: str
    location: str


@dataclass(frozen=True, slots=True)
class _Signing:
    """What the server shall sign with; ``made`` is the file of one that the service does not know yet."""

    secret: Secret
    variable: str
    made: Path | None

    @property
    def paste(self) -> str:
        """Where a person finds it."""
        return f"the secret in {self.made}" if self.made else f"the secret of {self.variable}"


def _of_forge(kind: str, names: Sequence[str], wait_s: float) -> Iterator[Finding]:
    settings = settings_for_command()
    server = servers(settings)[kind]
    if not server.configured:
        yield _asked(settings, kind)
        return
    known = _registered(settings, kind, f"{server.url}/", names)
    if not known:
        text = f"no repository {'of these names ' if names else ''}is registered at {server.url}"
        yield Finding(
            Level.WARNING, kind, text, f"`orch init --{kind} OWNER/NAME` in its checkout registers one."
        )
        return
    http, clock, entropy = SystemHttp(), SystemClock(), SystemEntropy()
    yield from forges(settings, os.environ, http, only=[at.name for at in known])
    signing = _signing(settings, kind, entropy)
    for at in known:
        hooks = webhooks_of(kind, server, at.location.removeprefix(f"{server.url}/"), http, clock)
        yield from _hooked(hooks, at.name, trial.deliver_at(settings, kind), signing)
        if signing.made is None:
            git = Git(SystemProcesses())
            change = partial(trial.push_a_branch, at.location, server, git, clock, entropy)
            yield _tried(settings, at.name, kind, change, wait_s)
    if kind == GITHUB:
        names_there = [at.name for at in known]
        yield from label_repositories(settings, names_there)
        yield from trackers(settings, os.environ, only=names_there)
    if signing.made is not None:
        text = f"the service does not know the webhook's secret yet: it lies in {signing.made}"
        hint = f"Set {signing.variable}_FILE to that, restart the service, and call this again."
        yield Finding(Level.WARNING, kind, text, hint)


def _hooked(hooks: Hooks, about: str, address: str, signing: _Signing) -> Iterator[Finding]:
    """The repository's webhook, made or put right."""
    try:
        leading = hooks.settle(address, signing.secret)
    except NotAllowed as error:
        by_hand = (
            f"By hand: {address}, content type application/json, {signing.paste}; {GUIDE} names the events."
        )
        yield Finding(Level.WARNING, about, error.message, f"{error.hint} {by_hand}")
    except OutsideError as error:
        yield Finding(Level.FAILED, about, error.message, error.hint)
    else:
        yield Finding(Level.OK, about, f"its webhook {leading[0].number} delivers at {address}")
        if more := ", ".join(str(hook.number) for hook in leading[1:]):
            text = f"more webhooks deliver there ({more}): each event comes more than once"
            yield Finding(Level.WARNING, about, text, "Remove them.")


def _of_plane(names: Sequence[str], wait_s: float) -> Iterator[Finding]:
    settings = settings_for_command()
    if not (settings.plane_url and settings.plane_token):
        yield _asked(settings, PLANE)
        return
    with open_readonly(settings, os.environ) as app:
        with app.database.read() as tx:
            known = [at for at in tickets.projects(tx, PLANE) if _is_named(at.repo, names)]
        if not known:
            yield Finding(
                Level.WARNING,
                PLANE,
                "no repository's tickets come from there",
                "`orch init --plane WORKSPACE/PROJECT` in its checkout says which do.",
            )
            return
        for at in known:
            yield from label_project(settings, at, app.plane)
        yield from trackers(settings, os.environ, only=[at.repo for at in known])
        if not settings.plane_webhook_secret:
            text = "no webhook is taken from there; Plane has one made by a person alone"
            hint = (
                f"In the workspace's settings add a webhook: {trial.deliver_at(settings, PLANE)}, events Issue and "
                "Issue comment. Put the secret that is shown then into a file, name that in "
                "ORCH_PLANE_WEBHOOK_SECRET_FILE, restart the service, and call this again."
            )
            yield Finding(Level.WARNING, PLANE, text, hint)
            return
        for at in known:
            yield _tried(settings, at.repo, PLANE, partial(_filed, app.plane.opened(at)), wait_s)


def _filed(project: PlaneProject) -> str:
    word = SystemEntropy().token()
    plane_trial.file_and_remove(project, word)
    return word


def _registered(settings: Settings, kind: str, below: str, names: Sequence[str]) -> list[_Known]:
    with open_readonly(settings, os.environ) as app:
        known = app.operations.repositories()
    return [
        _Known(at.name, at.location)
        for at in known
        if at.forge == kind
        and at.left_at is None
        and at.location.startswith(below)
        and _is_named(at.name, names)
    ]


def _is_named(name: str, names: Sequence[str]) -> bool:
    return not names or name in names


def _signing(settings: Settings, kind: str, entropy: Entropy) -> _Signing:
    """The last one of those that the service knows, or else one that is made now."""
    variable = f"ORCH_{kind.upper()}_WEBHOOK_SECRET"
    known: Mapping[str, Secrets] = {
        GITEA: settings.gitea_webhook_secret,
        GITHUB: settings.github_webhook_secret,
    }
    if known[kind]:
        return _Signing(known[kind][-1], variable, None)
    secret, made = trial.webhook_secret(settings, f"{kind}-webhook", entropy)
    return _Signing(secret, variable, made)


def _asked(settings: Settings, kind: str) -> Finding:
    """Ask a person for address and token, keep the token in a file, and say how both are given to the service.

    :raises ConfigError: there is nobody to ask.
    """
    name = kind.upper()
    if not sys.stdin.isatty():
        raise ConfigError(
            f"No {CALLED[kind]} is configured; nothing was done.",
            hint=f"Set ORCH_{name}_URL and ORCH_{name}_TOKEN_FILE.",
        )
    default = settings.github_url if kind == GITHUB else None
    url = click.prompt(f"Address of your {CALLED[kind]}", default=default, value_proc=web_address, err=True)
    token = click.prompt("Token of our user there", hide_input=True, err=True)
    kept = trial.keep(settings, f"{kind}-token", token)
    return Finding(
        Level.WARNING,
        kind,
        f"the token lies in {kept}; nothing was connected yet",
        f"Set ORCH_{name}_URL={url} and ORCH_{name}_TOKEN_FILE={kept} here and for the service, and call this again.",
    )


def _tried(settings: Settings, about: str, source: str, change: Callable[[], str], wait_s: float) -> Finding:
    hint = (
        f"Does `orch serve` run, and does {CALLED[source]} reach {trial.deliver_at(settings, source)}? Its own list of "
        f"deliveries shows what was answered. {GUIDE} says more."
    )
    return trial.tried(
        settings,
        os.environ,
        SystemClock(),
        about=about,
        source=source,
        change=change,
        wait_s=wait_s,
        hint=hint,
    )
