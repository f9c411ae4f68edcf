"""``orch init``."""

import os
from pathlib import Path

import click

from orchestrator.cli import checkout as look
from orchestrator.cli.desk import acting
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import note, say, say_json
from orchestrator.cli.try_checks import Tried, try_checks
from orchestrator.domain.errors import ConfigError, RequestRefused
from orchestrator.repositories import GITEA, GITHUB, Elsewhere
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Processes, SystemProcesses


@click.command("init")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--name", help="What to call the repository here; by default its folder's name.")
@click.option("--prefix", help="What its task numbers begin with, such as SHOP for SHOP-1.")
@click.option("--gitea", metavar="OWNER/NAME", help="Its name at the Gitea or Forgejo of ORCH_GITEA_URL.")
@click.option("--github", metavar="OWNER/NAME", help="Its name at GitHub.")
@click.option(
    "--plane", metavar="WORKSPACE/PROJECT", help="Where its tickets lie at the Plane of ORCH_PLANE_URL."
)
@click.option("--issues", is_flag=True, help="Its tickets are its issues at GitHub.")
@click.option("--check", is_flag=True, help="Run its checks once, in a clean copy of the last commit.")
@json_option
def command(
    path: Path,
    name: str | None,
    prefix: str | None,
    gitea: str | None,
    github: str | None,
    plane: str | None,
    issues: bool,
    check: bool,
    as_json: bool,
) -> int:
    """Make a repository ready: write .orchestrator.toml, register it.

    Looks at the repository at PATH (by default here), guesses how it checks itself, writes a commented
    .orchestrator.toml where there is none, and registers it with a local forge: a bare repository that the git remote
    `orch` then names. Calling it again changes nothing that is in order.

    With --gitea or --github its forge is the repository of that name at your server, and `orch` names that.

    With --plane tickets of that project at your Plane are taken, too: those with the label `orch`, unless
    ORCH_PLANE_LABELS and ORCH_PLANE_TAKE_STATES say otherwise. With --issues tickets are the issues of a repository at
    GitHub: those with the label `orch`, unless ORCH_GITHUB_LABELS says otherwise. Either may be said later as well.

    With --check it also runs [ci] command once as a ticket's checks will be run, and warns where it fails or tests
    nothing. That changes neither the checkout nor the exit code.
    """
    there = _elsewhere(gitea, github)
    if issues and plane is not None:
        raise ConfigError(
            "A repository's tickets come from one place; nothing was registered.",
            hint="Leave out --issues or --plane.",
        )
    processes = SystemProcesses()
    git = Git(processes)
    found = look.look_at(git, path)
    config = look.config_in_checkout(found)
    with acting("init") as desk:
        rows = desk.repositories()
        known = [look.Registered.of(row) for row in rows]
        at = look.find_registered(git, found, known)
        new = at is None
        if at is not None:
            _same(at, name, prefix, there)
            if any(row["name"] == at.name and row["left_at"] for row in rows):  # connected again
                desk.register(found.top, at.name, at.prefix)
        else:
            at = look.register(desk, git, found, name, prefix, there=there)
        tracker = desk.connect(at.name, plane) if issues or plane is not None else None
    wrote = config is None
    did = _configured(found, at) if wrote else [f"{look.CONFIG_FILE} is there and in order."]
    did.append(
        f"{'Registered' if new else 'Is registered'} as {at.name}; its tasks are {at.prefix}-1, {at.prefix}-2 …"
    )
    did += look.settle(git, found, at)
    if tracker is not None:
        which = f"project {plane}" if plane is not None else "its issues"
        did.append(f"Its tickets come from {tracker['location']}, {which}, as well.")
    committed = _committed(git, found)
    tried = _tried(git, processes, found) if check else None
    push = f" && git push {look.REMOTE} {found.branch}" if at.elsewhere else ""
    commit = f"git add {look.CONFIG_FILE} && git commit{push}"
    steps = [] if committed else [f"Read {look.CONFIG_FILE}, then: {commit}"]
    steps += ["orch doctor   (looks for what will not work)", 'orch run "what you want"']
    if as_json:
        say_json(
            {
                "repository": at.name,
                "prefix": at.prefix,
                "forge": at.address,
                "tracker": tracker["location"] if tracker is not None else None,
                "checkout": str(found.top),
                "registered_now": new,
                "wrote_config": wrote,
                "config_committed": committed,
                "did": did,
                "check": None
                if tried is None
                else {"passed": tried.passed, "said": tried.said, "tail": tried.tail},
                "next": steps,
            }
        )
    else:
        if tried is not None:
            did += [tried.said, *([tried.tail] if tried.tail else [])]
        say("\n".join([*did, "", "Next:", *(f"  {number}. {step}" for number, step in enumerate(steps, 1))]))
    return 0


def _elsewhere(gitea: str | None, github: str | None) -> Elsewhere | None:
    """The repository at a server, if one is named.

    :raises ConfigError: two are.
    """
    if gitea is not None and github is not None:
        raise ConfigError(
            "A repository has one forge; nothing was registered.", hint="Leave one of them out."
        )
    if gitea is not None:
        return Elsewhere(GITEA, gitea)
    return Elsewhere(GITHUB, github) if github is not None else None


def _same(at: look.Registered, name: str | None, prefix: str | None, there: Elsewhere | None) -> None:
    """A registered repository keeps its name, prefix and forge: its tasks and its forge bear them.

    :raises RequestRefused: it is asked to be called otherwise.
    """
    if name not in (None, at.name) or (prefix is not None and prefix.upper() != at.prefix):
        raise RequestRefused(
            f"This repository is registered as {at.name} with the prefix {at.prefix} already; nothing was changed.",
            hint="Its tasks and its forge bear them: leave out --name and --prefix.",
        )
    if there is not None and not (
        at.forge == there.forge and at.address.lower().endswith(f"/{there.full_name.lower()}")
    ):
        raise RequestRefused(
            f"This repository is registered with the forge {at.address} already; nothing was changed.",
            hint=f"It keeps it: leave out --{there.forge}.",
        )


def _configured(found: look.Checkout, at: look.Registered) -> list[str]:
    """Write the configuration; what a person should know of it."""
    guess = look.write_config(found, at.name)
    return [
        f"Found a {guess.language} project ({guess.because}); its checks run as: {' '.join(guess.ci)}"
        if guess
        else "Did not recognise how the project checks itself: write [ci] command yourself.",
        f"Wrote {look.CONFIG_FILE}: commented, and yours to edit.",
    ]


def _tried(git: Git, processes: Processes, found: look.Checkout) -> Tried:
    """What the configured checks say of the last commit."""
    config = look.config_in_checkout(found)
    if config is None:
        raise ConfigError(f"{look.CONFIG_FILE} has vanished.", hint="Call orch init again.")
    note(f"Running the checks on {found.tip[:12]}: {' '.join(config.ci.command)}")
    return try_checks(git, processes, found, config.ci, os.environ)


def _committed(git: Git, found: look.Checkout) -> bool:
    """Whether the configuration is part of the branch as it lies in the folder."""
    status = git.run(["status", "--porcelain", "--", look.CONFIG_FILE], cwd=found.top)
    return not status.stdout.strip()
