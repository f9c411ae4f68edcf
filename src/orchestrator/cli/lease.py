"""``orch lease``."""

from collections.abc import Mapping
from typing import cast

import click

from orchestrator.cli.desk import reading
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import say, say_json, table
from orchestrator.web.views import Plain


@click.group("lease")
def command() -> None:
    """Who owns which task's transition."""


@command.command("list")
@json_option
def list_(as_json: bool) -> int:
    """List the leases that are held now; most last for moments."""
    with reading(live=True) as desk:
        owned = cast(Mapping[str, object], desk.queue()["transition_lease"])
    if as_json:
        say_json(owned)
        return 0
    holders = cast(list[Plain], owned["holders"])
    heads = ("task", "owner", "stage", "since", "liveness")
    rows = [tuple(str(row[name] or "") for name in heads) for row in holders]
    say(table(rows, [name.upper() for name in heads]) if rows else "No lease is held.")
    if not owned["enabled"]:
        say("Leases are switched off (ORCH_TRANSITION_LEASE_ENABLED).")
    return 0
