"""``orch effect``: what is being done to the outside world and is not settled."""

from typing import cast

import click

from orchestrator.cli.answers import REFUSED, answer_soon, goes_on
from orchestrator.cli.desk import acting, reading
from orchestrator.cli.options import (
    Whole,
    as_work_item,
    json_option,
    person_option,
    person_or_user,
    plain_text,
)
from orchestrator.cli.terminal import age, say, say_json, table
from orchestrator.operations.effects import NEWEST_EFFECT
from orchestrator.runtime.clock import SystemClock
from orchestrator.stage_engine.answers import was_refused
from orchestrator.stage_engine.resolutions import Resolution
from orchestrator.web.views import Plain


@click.group("effect")
def command() -> None:
    """What is being done outside and not settled; say what became of it."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are settled.")
@click.option("--task", "work_item", metavar="TASK", help="Of one task.")
@click.option("--limit", type=Whole(1, 500), default=100, show_default=True, help="At most so many.")
@click.option("--before", type=Whole(0, 2**62), default=NEWEST_EFFECT, hidden=True)
@json_option
def list_(everything: bool, work_item: str | None, limit: int, before: int, as_json: bool) -> int:
    """List merges, builds, deploys, pushes and pull requests whose outcome is not settled, newest first.

    REASON says why one is in doubt, given up or not applied yet.
    """
    task = as_work_item(plain_text(work_item, "task")) or None
    with reading() as desk:
        page = desk.effects(work_item=task, everything=everything, before=before, limit=limit)
    if as_json:
        say_json(page)
        return 0
    clock = SystemClock()
    rows = [
        (
            str(e["id"]),
            str(e["task"]),
            str(e["name"]),
            str(e["state"]),
            age(e["since"], clock),
            str(e["attempts"] or ""),
            _short(str(e["key"])),
            str(e["reason"]),
        )
        for e in cast(list[Plain], page["effects"])
    ]
    none = "No effects." if everything else "Every effect is settled. `--all` lists them."
    heads = ("NO", "TASK", "EFFECT", "STATE", "AGE", "FAILED", "KEY", "REASON")
    say(table(rows, heads) if rows else none)
    return 0


@command.command("resolve")
@click.argument("effect_id", metavar="NO", type=Whole(0, 2**62))
@click.argument("resolution", type=click.Choice([each.value for each in Resolution]))
@click.option("--reason", required=True, help="How you know; kept with the effect and the task.")
@person_option
@json_option
def resolve(effect_id: int, resolution: str, reason: str, person: str | None, as_json: bool) -> int:
    """Say what became of effect NO, which is not settled, or that the command of a deploy has ended.

    The authority (forge, image store, environment) is asked first, and what it shows counts. applied: it took place;
    only while the authority cannot be read. not-applied: it is made impossible there, and the task goes back. retry:
    likewise, and it is done anew. The last two are refused while the authority cannot be reached.

    ended, of a deploy or an undo: nothing of its command is at work any more, though nobody can find that out (it ran
    elsewhere, or its record is lost). Until then nothing is started in that place. Refused where it is seen at work.
    """
    said, who = plain_text(reason, "reason"), plain_text(person_or_user(person), "name")
    with acting("effect resolve") as desk:
        receipt = desk.resolve(effect_id, Resolution(resolution), person=who, reason=said)
        work_item, signal_id = str(receipt["task"]), cast(int, receipt["signal_id"])
        told = cast("str | None", receipt["outcome"])
        outcome = told or (answer_soon(desk, work_item, signal_id) if desk.served else None)
        served = desk.served
    refused = was_refused(outcome)
    if as_json:
        say_json({**receipt, "outcome": outcome, "served": served})
    elif outcome is None:
        say(f"{work_item}: {resolution} of effect {effect_id} is received. {goes_on(served)}")
    else:
        say(f"{work_item}: {resolution} of effect {effect_id} was {outcome}.")
    return REFUSED if refused else 0


def _short(key: str) -> str:
    """A key may name several commits; twelve digits of each are enough to tell them apart."""
    return ":".join("..".join(half[:12] for half in part.split("..")) for part in key.split(":"))
