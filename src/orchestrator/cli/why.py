"""``orch why``."""

import click

from orchestrator.cli.desk import reading
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import say, say_json


@click.command("why")
@click.argument("work_item", metavar="TASK")
@json_option
def command(work_item: str, as_json: bool) -> int:
    """Why a task stands where it stands, in one line.

    Who owns it, what it waits for, since when, and what happens next.
    """
    with reading() as desk:
        answer = desk.why(work_item)
    if as_json:
        say_json(answer)
    else:
        say(str(answer["line"]))
    return 0
