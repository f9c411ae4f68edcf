"""``orch unfreeze``."""

import click

from orchestrator.cli.desk import acting
from orchestrator.cli.options import as_work_item, json_option, person_option, person_or_user, plain_text
from orchestrator.cli.terminal import say, say_json


@click.command("unfreeze")
@click.argument("repo")
@click.option("--for", "lend_to", metavar="TASK", help="Let only this task through; the freeze stays.")
@click.option("--reason", default="", help="Why; kept with the event.")
@person_option
@json_option
def command(repo: str, lend_to: str | None, reason: str, person: str | None, as_json: bool) -> int:
    """Let a frozen repository deliver again, or only the task that mends it.

    A repository freezes when production did not come back after a merge. With --for the freeze stays, and what broke is
    looked at again once that task is done. Refused while the undo is not settled.
    """
    fix = as_work_item(plain_text(lend_to, "task")) if lend_to is not None else None
    repo = plain_text(repo, "repository")
    who, why = plain_text(person_or_user(person), "name"), plain_text(reason, "reason")
    with acting("unfreeze") as desk:
        lifted = False
        if fix is not None:
            desk.lend(repo, fix, person=who, reason=why)
        else:
            lifted = desk.unfreeze(repo, person=who, reason=why)
    if as_json:
        say_json({"repo": repo, "lifted": lifted, "lent_to": fix})
    elif fix is not None:
        say(f"{repo} stays frozen; its merge slot is lent to {fix}.")
    else:
        say(f"{repo} delivers again." if lifted else f"{repo} was not frozen; nothing was changed.")
    return 0
