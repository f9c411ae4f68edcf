"""``orch lease``."""

from collections.abc import Mapping
from typing import cast

import click

from orchestrator.cli.desk import acting, reading
from orchestrator.cli.options import (
    json_option,
    person_option,
    person_or_user,
    plain_text,
    work_item_argument,
)
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
    holders = cast(list[Plain] | None, owned["holders"])
    heads = ("task", "owner", "stage", "since", "age_s", "liveness")
    rows = [tuple("" if row[name] is None else str(row[name]) for name in heads) for row in holders or ()]
    if rows:
        say(table(rows, [name.upper() for name in heads]))
    else:
        say("No lease is held." if holders is not None else "The leases cannot be read.")
    for line in about_ownership(owned):
        say(line)
    if desk.live and not cast(Mapping[str, object], owned["term"])["trusted"]:
        say("The service stands still: its own term has ended, until its heartbeat can be stored again.")
    return 0


@command.command("release")
@work_item_argument
@click.option("--reason", required=True, help="Why; kept with the event and told to everybody.")
@person_option
@json_option
def release(work_item: str, reason: str, person: str | None, as_json: bool) -> int:
    """Take a task from its owner, who is refused from then on.

    For an owner that hangs: a dead one is replaced by itself, and a hung one at ORCH_REAPER_MAX_RUNNING_S.
    """
    said, who = plain_text(reason, "reason"), plain_text(person_or_user(person), "name")
    with acting("lease release") as desk:
        taken = desk.release_lease(work_item, person=who, reason=said)
    if as_json:
        say_json(taken)
    else:
        since = f" since {taken['since']}" if taken["since"] else ""
        say(f"{taken['work_item']} is free: {taken['owner']} had it{since}, and is refused from now on.")
    return 0


def about_scope(mechanism: str, setting: str, block: Mapping[str, object]) -> list[str]:
    """What there is to say of a mechanism that does not look after every repository."""
    if not block["enabled"]:
        return [f"{mechanism} switched off ({setting}_ENABLED)."]
    scope = cast(list[str], block["scope"])
    return [f"In scope ({setting}_REPOS): {', '.join(scope) or 'no repository'}."] if scope != ["*"] else []


def about_ownership(owned: Mapping[str, object]) -> list[str]:
    """What there is to say of ownership beside who holds what: switch, scope, defers and reclaims."""
    lines = about_scope("Leases are", "ORCH_TRANSITION_LEASE", owned)
    deferred = cast(Mapping[str, int], owned["deferred"])
    if deferred:
        lines.append(
            "Stood back: " + ", ".join(f"{actor} {n}" for actor, n in sorted(deferred.items())) + "."
        )
    if owned["stale_reclaims"] or owned["forced_reclaims"]:
        lines.append(
            f"Taken away: {owned['stale_reclaims']} from the dead, {owned['forced_reclaims']} by force."
        )
    return lines
