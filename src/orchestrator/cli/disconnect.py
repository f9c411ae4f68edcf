"""``orch disconnect``."""

from collections.abc import Iterator
from typing import cast

import click

from orchestrator.cli import trial
from orchestrator.cli.desk import acting, settings_for_command
from orchestrator.cli.doctor import lines
from orchestrator.cli.findings import Finding, Level
from orchestrator.cli.options import json_option, person_option, person_or_user, plain_text
from orchestrator.cli.terminal import say, say_json
from orchestrator.config import Settings
from orchestrator.domain.errors import OutsideError
from orchestrator.forges.servers import servers, webhooks_of
from orchestrator.operations.connections import OpenTasks
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.http import SystemHttp
from orchestrator.web.views import Plain, record


@click.command("disconnect")
@click.argument("name")
@click.option(
    "--tickets",
    "tickets_only",
    is_flag=True,
    help="Only of its project at a tracker: Plane, or the issues at GitHub.",
)
@click.option(
    "--open",
    "open_tasks",
    type=click.Choice([one.value for one in OpenTasks]),
    default=OpenTasks.REFUSE.value,
    show_default=True,
    help="What becomes of tasks that have not ended.",
)
@click.option("--reason", default="", help="Why; kept with the event.")
@person_option
@json_option
def command(
    name: str, tickets_only: bool, open_tasks: str, reason: str, person: str | None, as_json: bool
) -> int:
    """Take no more tickets of a repository, or of its tracker's project.

    The webhook that was made for the repository NAME is removed. Its history stays; its code, branches and tickets are
    left as they are. Refused while tasks are open, unless --open says that they finish or are cancelled. `orch init` in
    its checkout connects it again.
    """
    repo = plain_text(name, "repository")
    who, why = plain_text(person_or_user(person), "name"), plain_text(reason, "reason")
    settings = settings_for_command()
    with acting("disconnect") as desk:
        told = desk.disconnect(
            repo, tickets_only=tickets_only, open_tasks=OpenTasks(open_tasks), person=who, reason=why
        )
        at = next(one for one in desk.repositories() if one["name"] == told["repo"])
    going_on = cast(list[str], told["open"])
    # While tasks go on they still want to hear of their pull requests.
    found = [] if tickets_only or going_on else list(_unhooked(settings, at))
    if as_json:
        say_json({**told, "findings": [record(one) for one in found]})
        return 0
    what = "No ticket of its tracker's project" if tickets_only else "No ticket"
    say(f"{what} is taken for {told['repo']} any more{' (so it was)' if told['already'] else ''}.")
    if going_on:
        say(f"{'Are being cancelled' if told['cancelled'] else 'Go on to their end'}: {', '.join(going_on)}")
        if not tickets_only:
            say(f"Once they have ended, `orch disconnect {told['repo']}` removes its webhook.")
    if found:
        say("\n".join(lines(found)))
    return 0


def _unhooked(settings: Settings, at: Plain) -> Iterator[Finding]:
    """Its webhook at a server, removed where our user may."""
    kind, location, about = str(at["forge"]), str(at["location"]), str(at["name"])
    server = servers(settings).get(kind)
    if server is None or not server.configured or not location.startswith(f"{server.url}/"):
        return
    full_name = location.removeprefix(f"{server.url}/")
    address = trial.deliver_at(settings, kind)
    hooks = webhooks_of(kind, server, full_name, SystemHttp(), SystemClock())
    try:
        gone = hooks.remove(address)
    except OutsideError as error:
        hint = f"{error.hint} Or remove by hand what delivers at {address}.".strip()
        yield Finding(Level.WARNING, about, f"its webhook was not removed: {error.message}", hint)
    else:
        if gone:
            numbers = ", ".join(str(hook.number) for hook in gone)
            yield Finding(Level.OK, about, f"its webhook ({numbers}) is removed")
