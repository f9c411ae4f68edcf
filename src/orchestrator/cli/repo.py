"""``orch repo``."""

import click

from orchestrator.cli.desk import acting, reading
from orchestrator.cli.options import json_option, person_option, person_or_user, plain_text
from orchestrator.cli.terminal import say, say_json, table
from orchestrator.web.views import Plain


@click.group("repo")
def command() -> None:
    """Repositories: which there are, and where they lie."""


@command.command("list")
@json_option
def listed(as_json: bool) -> int:
    """What this installation delivers."""
    with reading() as desk:
        known = desk.repositories()
    if as_json:
        say_json({"repositories": known})
    elif known:
        rows = [(str(one["name"]), str(one["prefix"]), _lies_at(one)) for one in known]
        say(table(rows, ("name", "tasks", "lies at")))
    else:
        say("No repository is registered.")
    return 0


@command.command("move")
@click.argument("name")
@click.option("--to", required=True, metavar="OWNER/NAME", help="What its server calls it now.")
@click.option("--reason", default="", help="Why; kept with the event.")
@person_option
@json_option
def move(name: str, to: str, reason: str, person: str | None, as_json: bool) -> int:
    """Point NAME to its new place, after it was renamed or transferred at its server.

    Also where the server itself has another address: set ORCH_GITEA_URL or ORCH_GITHUB_URL first. Refused unless the
    new place is the same repository: it has the mark of this installation, and all that was merged. Tasks go on where
    they stand.
    """
    repo, there = plain_text(name, "repository"), plain_text(to, "name")
    who, why = plain_text(person_or_user(person), "name"), plain_text(reason, "reason")
    with acting("repo") as desk:
        told = desk.move(repo, there, person=who, reason=why)
    if as_json:
        say_json(told)
        return 0
    say(f"{told['name']} lies at {told['location']}.")
    say(f"In its checkouts: git remote set-url orch {told['location']}")
    return 0


def _lies_at(one: Plain) -> str:
    left = f" (disconnected {one['left_at']})" if one["left_at"] else ""
    return f"{one['location']}{left}"
