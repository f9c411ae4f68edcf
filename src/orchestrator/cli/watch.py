"""``orch watch``."""

from typing import cast

import click

from orchestrator.cli.checkout import Registered, default_branch
from orchestrator.cli.desk import Desk, LocalDesk, nothing_yet, own_or_ask, settings_for_command
from orchestrator.cli.follow import Tell
from orchestrator.cli.options import json_option, work_item_argument
from orchestrator.cli.terminal import note, say
from orchestrator.cli.watching import conclude, is_frozen, watch_here, watch_there
from orchestrator.db.opening import has_state


@click.command("watch")
@work_item_argument
@json_option
def command(work_item: str, as_json: bool) -> int:
    """Watch a task until it is done or needs you.

    Tells its story from the beginning and goes on with it, as `orch run` does. Where no service runs, the service runs
    inside this command for as long as it watches, and works on all tasks. Ctrl-C stops watching and nothing else: an
    agent at work keeps running for a while.
    """
    settings = settings_for_command()
    if not has_state(settings.database_url):
        raise nothing_yet(settings)
    tell: Tell = note if as_json else say
    with own_or_ask(settings, "run") as (app, remote):
        desk = LocalDesk(app, served=True) if app is not None else cast(Desk, remote)
        repo = cast("dict[str, object]", desk.story(work_item)["task"])["repo"]
        at = next(one for one in map(Registered.of, desk.repositories()) if one.name == repo)
        if app is not None:
            rest = watch_here(app, settings, work_item, tell, "is watched; the service runs here")
        else:
            tell(f"{work_item} is watched; the service runs already.")
            rest = watch_there(desk, work_item, tell)
        frozen = is_frozen(desk, at.name)
    return conclude(rest, default_branch(at), frozen=frozen, as_json=as_json)
