"""``orch why``."""

from typing import cast

import click

from orchestrator.cli.desk import reading
from orchestrator.cli.idle import NO_SERVICE, waits_for_work
from orchestrator.cli.options import json_option, work_item_argument
from orchestrator.cli.terminal import say, say_json
from orchestrator.web.views import Plain


@click.command("why")
@work_item_argument
@json_option
def command(work_item: str, as_json: bool) -> int:
    """Why a task stands where it stands, in one line.

    Who owns it, what it waits for, since when, and what happens next. A second line says where no service runs.
    """
    with reading() as desk:
        answer = desk.why(work_item)
        idle = not desk.served and waits_for_work(cast(Plain, desk.story(work_item)["task"]))
    if as_json:
        say_json(answer)
    else:
        say(str(answer["line"]))
        if idle:
            say(NO_SERVICE)
    return 0
