"""``orch unfreeze``."""

import click

from orchestrator.cli.desk import acting
from orchestrator.cli.options import json_option, person_option, person_or_user, plain_text
from orchestrator.cli.terminal import say, say_json


@click.command("unfreeze")
@click.argument("repo")
@click.option("--reason", default="", help="Why; kept with the event.")
@person_option
@json_option
def command(repo: str, reason: str, person: str | None, as_json: bool) -> int:
    """Let a frozen repository deliver again.

    A repository freezes when production did not come back after a merge. Refused while the undo is not settled.
    """
    with acting("unfreeze") as desk:
        who = plain_text(person_or_user(person), "name")
        lifted = desk.unfreeze(repo, person=who, reason=plain_text(reason, "reason"))
    if as_json:
        say_json({"repo": repo, "lifted": lifted})
    else:
        say(f"{repo} delivers again." if lifted else f"{repo} was not frozen; nothing was changed.")
    return 0
