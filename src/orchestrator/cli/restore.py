"""``orch restore``."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

import click

from orchestrator.cli.desk import acting, nothing_yet, reading, settings_for_command
from orchestrator.cli.options import json_option, person_option, person_or_user, plain_text
from orchestrator.cli.terminal import say, say_json
from orchestrator.db.opening import has_state
from orchestrator.domain.errors import ConfigError
from orchestrator.ownership.state_folder import NEW_FOLDER
from orchestrator.web.views import Plain
from orchestrator.wiring import open_app


@click.group("restore")
def command() -> None:
    """Go on after a database or a forge was restored or copied, or the state folder was lost."""


@command.command("status")
@json_option
def status(as_json: bool) -> int:
    """Say what is closed and why, and what `accept` would do. Changes nothing."""
    with reading(live=True) as desk:
        told = desk.restore_status()
    if as_json:
        say_json(told)
        return 0
    for line in _lines(told):
        say(line)
    if told["closed"]:
        say("`orch restore accept --reason …` takes this into the database and lets work go on from there.")
    return 1 if told["closed"] else 0


@command.command("accept")
@click.option("--reason", required=True, help="What has happened; kept with the event and each task.")
@person_option
@json_option
def accept(reason: str, person: str | None, as_json: bool) -> int:
    """Take what was found into the database, have unfinished tasks wait for you, and let work go on.

    Nothing that has taken place is repeated: merges on main, starts and undos are taken over as they are. Refused where
    nothing is closed.
    """
    said, who = plain_text(reason, "reason"), plain_text(person_or_user(person), "name")
    with acting("restore") as desk:
        told = desk.restore_accept(person=who, reason=said)
    if as_json:
        say_json(told)
        return 0
    for line in _lines(told):
        say(line)
    opened = cast(Mapping[str, bool], told["opened"])
    for repo, free in opened.items():
        say(
            f"{repo} is open again."
            if free
            else f"{repo} stays closed: something has changed; accept once more."
        )
    return 0 if all(opened.values()) else 1


@command.command("folder")
@click.option("--reason", required=True, help="What has happened to the folder; kept with the event.")
@person_option
@json_option
def folder(reason: str, person: str | None, as_json: bool) -> int:
    """Let the state folder in ORCH_HOME take the place of one that is lost for good.

    For a PostgreSQL database, whose services share a folder. Refused while a process of this installation lives. Every
    deploy and undo that is not settled is in doubt from then on, for what became of it was written down in the lost
    folder: look at the environment, and say it with `orch effect resolve`. The lost folder is refused if it comes back.
    """
    said, who = plain_text(reason, "reason"), plain_text(person_or_user(person), "name")
    settings = settings_for_command()
    if not settings.on_postgres:
        raise ConfigError(
            "With SQLite the ledger lies in the state folder and is lost with it; nothing was changed.",
            hint="Put a backup of the folder in its place; then `orch restore status`.",
        )
    if not has_state(settings.database_url):
        raise nothing_yet(settings)
    with open_app(settings, os.environ, role=NEW_FOLDER) as app:
        alone = partial(app.registration.alone, undone="nothing was changed")
        told = app.new_folder(alone).take(person=who, reason=said)
    if as_json:
        say_json(told)
        return 0
    say(f"{settings.home} is the state folder now.")
    for one in told["in_doubt"]:
        where = f"{one['work_item']}: {one['name']} in {one['environment']}"
        say(f"  {where} is in doubt: orch effect resolve {one['effect']} applied|not-applied|retry")
    for one in told["not_ended"]:
        where = f"{one['work_item']}: whether its command in {one['environment']} has ended is not known"
        say(f"  {where}: orch effect resolve {one['effect']} ended")
    if told["not_ended"]:
        say("  Look at the place before you say `ended`: a deploy that is not judged yet is undone then.")
    say(
        "Local forges that lay in the lost folder are gone: their repositories stay closed until they are put back."
    )
    return 0


def closed_lines(queue: Plain) -> list[str]:
    """What a person has to know when a service starts: which repositories it does nothing for."""
    states = cast(list[Plain], queue["installation"])
    found = [f"Nothing is done for {one['repo']}: {one['reason']}." for one in states if one["closed"]]
    return [*found, "`orch restore status` tells more."] if found else []


def _lines(told: Plain) -> Iterator[str]:
    if not told["closed"]:
        yield "Nothing is closed: database and forges belong together."
        return
    for one in cast(list[Plain], told["repositories"]):
        yield f"{one['repo']}: {one['reason']}."
        for merge in cast(list[Plain], one["merges"]):
            yield f"  {merge['work_item']} is on main as {str(merge['sha'])[:12]}; it is not merged again."
        if one["lost"]:
            yield f"  {str(one['lost'])[:12]} is not on main any more; file its ticket again, or push it."
        waiting = cast(list[str], one["wait_for_a_person"])
        if waiting:
            yield f"  wait for you: {', '.join(waiting)}"
        if one["baseline"]:
            yield f"  {one['baseline']}"
    for start in cast(list[Plain], told["starts"]):
        yield f"  {start['kind'] or 'a start'} of {start['work_item'] or '?'}: {start['start']}"
    runs = cast(list[str], told["runs"])
    if runs:
        yield f"  {len(runs)} run(s) of agents that the database does not know"
