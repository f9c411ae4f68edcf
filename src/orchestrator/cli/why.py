"""``orch why``."""

from typing import cast

import click

from orchestrator.cli.desk import reading
from orchestrator.cli.idle import NO_SERVICE, waits_for_work
from orchestrator.cli.options import json_option, work_item_argument
from orchestrator.cli.terminal import say, say_json
from orchestrator.cli.watching import is_frozen
from orchestrator.dashboard.next_steps import next_steps
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.web.views import Plain


@click.command("why")
@work_item_argument
@json_option
def command(work_item: str, as_json: bool) -> int:
    """Why a task stands where it stands, in one line.

    Who owns it, what it waits for, since when, and what happens next. Where it waits for you, a second line names the
    commands to choose from; a last line says where no service runs.
    """
    with reading() as desk:
        answer = desk.why(work_item)
        task = cast(Plain, desk.story(work_item)["task"])
        hold = Hold(str(task["hold"])) if task["hold"] else None
        frozen = hold is not None and is_frozen(desk, str(task["repo"]))
        idle = not desk.served and waits_for_work(task)
    if as_json:
        say_json(answer)
    else:
        say(str(answer["line"]))
        subject = str(answer["subject"]) if answer["subject"] else None
        steps = next_steps(
            str(task["work_item"]),
            Stage(str(task["stage"])),
            hold,
            str(task["repo"]),
            frozen=frozen,
            subject=subject,
        )
        if steps:
            say(f"Then: {', or '.join(steps)}")
        if idle:
            say(NO_SERVICE)
    return 0
