"""``orch effect``: what is being done to the outside world and is not settled."""

from typing import cast

import click

from orchestrator.cli.desk import reading
from orchestrator.cli.options import as_work_item, json_option, plain_text
from orchestrator.cli.terminal import age, say, say_json, table
from orchestrator.operations.effects import NEWEST_EFFECT
from orchestrator.runtime.clock import SystemClock
from orchestrator.web.views import Plain


@click.group("effect")
def command() -> None:
    """What is being done outside and not settled; say what became of it."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are settled.")
@click.option("--task", "work_item", metavar="TASK", help="Of one task.")
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="At most so many.")
@click.option("--before", type=click.IntRange(0), default=NEWEST_EFFECT, hidden=True)
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


def _short(key: str) -> str:
    """A key may name several commits; twelve digits of each are enough to tell them apart."""
    return ":".join("..".join(half[:12] for half in part.split("..")) for part in key.split(":"))
