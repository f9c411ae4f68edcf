"""``orch queue``."""

from collections.abc import Iterator, Mapping
from typing import cast

import click

from orchestrator.cli.desk import Desk, reading
from orchestrator.cli.idle import NO_SERVICE, waits_for_work
from orchestrator.cli.lease import about_ownership, about_scope
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import age, say, say_json, table
from orchestrator.operations.reading import NEWEST
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.web.views import Plain

MECHANISMS = (
    ("reaper", "The reaper is", "ORCH_REAPER"),
    ("reconciler", "The reconciler is", "ORCH_RECONCILER"),
    ("drift", "The drift watch is", "ORCH_DRIFT_WATCH"),
)
LOOKED_AT = 500  # open tasks among which one that waits for work is looked for


@click.command("queue")
@json_option
def command(as_json: bool) -> int:
    """What runs, waits and holds."""
    with reading(live=True) as desk:
        queue = desk.queue()
        idle = not desk.served and any(map(waits_for_work, _open_tasks(desk)))
    if as_json:
        say_json(queue)
        return 0
    clock = SystemClock()
    gate = cast(Mapping[str, list[Plain]], queue["serial_gate"])
    slots = cast(Mapping[str, list[Plain]], queue["merge_gate"])["slots"]
    _block("Running", queue["running"], ("task", "kind", "attempt", "since"), clock)
    _block("Queued", queue["queued"], ("task", "kind", "attempt", "priority", "waits_for"), clock)
    if queue.get("shares"):  # an earlier version has none
        _block("Caps on agents", queue["shares"], ("share", "running", "limit"), clock)
    _block("Held", queue["held"], ("task", "hold", "since", "reason"), clock)
    _block("Slots", slots, ("slot", "task", "since"), clock)
    _block("Waiting for slots, first come first served", gate["waiters"], ("task", "repo", "since"), clock)
    _block("Frozen", gate["frozen"], ("repo", "task", "lent_to", "holder", "since", "reason"), clock)
    _ownership(cast(Mapping[str, object], queue["transition_lease"]), clock)
    _block("Running versions", _drift(queue), ("environment", "state", "task", "seen", "since"), clock)
    _block("Effects not settled", queue["effects"], ("task_id", "effect", "state", "since"), clock)
    _inbox(cast(Mapping[str, object], queue["inbox"]), clock)
    _outbox(cast(Mapping[str, object], queue["outbox"]), clock)
    if desk.live:  # what they have counted since the service started
        for name in ("reaper", "reconciler"):
            say(f"{name.capitalize()}: {_counted(cast(Mapping[str, object], queue[name]))}")
        for line in _scopes(queue):
            say(line)
    if idle:
        say(NO_SERVICE)
    return 0


def _drift(queue: Plain) -> list[Plain]:
    """What the drift watch has seen; nothing where no service runs."""
    block = cast(Mapping[str, list[Plain]], queue.get("drift") or {})
    return block.get("environments", [])


def _open_tasks(desk: Desk) -> list[Plain]:
    page = desk.tasks(open_only=True, before=NEWEST, after=0, limit=LOOKED_AT)
    return cast(list[Plain], page["tasks"])


def _block(name: str, rows: object, columns: tuple[str, ...], clock: Clock) -> None:
    found = cast(list[Plain], rows)
    say(f"{name}: {len(found) or 'none'}")
    if found:
        lines = [tuple(_cell(row.get(column), column, clock) for column in columns) for row in found]
        say("\n".join("  " + line for line in table(lines, [c.upper() for c in columns]).splitlines()))


def _ownership(owned: Mapping[str, object], clock: Clock) -> None:
    if owned["holders"] is None:
        say("Leases: they cannot be read")
    else:
        _block("Leases", owned["holders"], ("task", "owner", "stage", "age_s", "liveness"), clock)
    for line in about_ownership(owned):
        say(line)


def _counted(counts: Mapping[str, object]) -> str:
    """Counts by name, nested ones behind theirs; what never happened is left out."""
    said = []
    for name, value in counts.items():
        if name in ("enabled", "scope"):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{why} {n}" for why, n in value.items() if n)
        if value:
            said.append(f"{name} {value}")
    return "; ".join(said).replace("_", " ") or "nothing yet"


def _scopes(queue: Plain) -> Iterator[str]:
    """Which mechanisms leave repositories alone."""
    for block, mechanism, setting in MECHANISMS:
        yield from about_scope(mechanism, setting, cast(Mapping[str, object], queue[block]))


def _inbox(counts: Mapping[str, object], clock: Clock) -> None:
    since = f", the oldest for {age(counts['oldest'], clock)}" if counts["oldest"] else ""
    say(f"Inbox: {counts['open']} open ({counts['deferred']} deferred, {counts['parked']} parked){since}")


def _outbox(lying: Mapping[str, object], clock: Clock) -> None:
    since = f", the oldest for {age(lying['oldest'], clock)}" if lying["oldest"] else ""
    say(f"Outbox: {lying['waiting']} waiting, {lying['parked']} parked{since}")


def _cell(value: object, column: str, clock: Clock) -> str:
    if column == "since":
        return age(value, clock)
    return "" if value is None else str(value)
