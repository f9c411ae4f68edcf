"""``orch queue``."""

from collections.abc import Mapping
from typing import cast

import click

from orchestrator.cli.desk import reading
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import age, say, say_json, table
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.web.views import Plain


@click.command("queue")
@json_option
def command(as_json: bool) -> int:
    """What runs, waits and holds."""
    with reading(live=True) as desk:
        queue = desk.queue()
    if as_json:
        say_json(queue)
        return 0
    clock = SystemClock()
    gate = cast(Mapping[str, list[Plain]], queue["serial_gate"])
    slots = cast(Mapping[str, list[Plain]], queue["merge_gate"])["slots"]
    _block("Running", queue["running"], ("task", "kind", "attempt", "since"), clock)
    _block("Queued", queue["queued"], ("task", "kind", "attempt", "not_before"), clock)
    _block("Held", queue["held"], ("task", "hold", "since", "reason"), clock)
    _block("Slots", slots, ("slot", "task", "since"), clock)
    _block("Frozen", gate["frozen"], ("repo", "task", "since", "reason"), clock)
    _block("Effects not settled", queue["effects"], ("task_id", "effect", "state", "since"), clock)
    return 0


def _block(name: str, rows: object, columns: tuple[str, ...], clock: Clock) -> None:
    found = cast(list[Plain], rows)
    say(f"{name}: {len(found) or 'none'}")
    if found:
        lines = [tuple(_cell(row.get(column), column, clock) for column in columns) for row in found]
        say("\n".join("  " + line for line in table(lines, [c.upper() for c in columns]).splitlines()))


def _cell(value: object, column: str, clock: Clock) -> str:
    if column == "since":
        return age(value, clock)
    return "" if value is None else str(value)
