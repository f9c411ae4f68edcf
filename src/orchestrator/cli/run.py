"""``orch run``: file a ticket and watch it until it is done or a person is needed."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, cast

import click

from orchestrator.cli.checkout import REMOTE, default_branch
from orchestrator.cli.desk import Desk, LocalDesk, own_or_ask, settings_for_command
from orchestrator.cli.entry import INTERRUPTED
from orchestrator.cli.follow import DONE, Rest, Tell, follow
from orchestrator.cli.options import json_option, ticket_from
from orchestrator.cli.resolve import repository_to_run
from orchestrator.cli.service import running
from orchestrator.cli.terminal import note, say, say_json
from orchestrator.config import Settings
from orchestrator.domain.stage import Stage
from orchestrator.observability.log import configure_logging
from orchestrator.places import Folders
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.files import make_private_folder
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses
from orchestrator.web.views import Plain
from orchestrator.wiring import App

LOG = "run.log"


@click.command("run")
@click.argument("ticket")
@click.option("--repo", help="A registered repository or a path; by default the checkout you stand in.")
@click.option("--label", "labels", multiple=True, help="A label, such as fast or full; may be repeated.")
@click.option("--body", help="The ticket's text.")
@click.option("--body-file", type=click.File("rb"), help="Take the text from a file; - is standard input.")
@json_option
def command(
    ticket: str,
    repo: str | None,
    labels: tuple[str, ...],
    body: str | None,
    body_file: BinaryIO | None,
    as_json: bool,
) -> int:
    """File a ticket and watch it until it is done or needs you.

    TICKET says in a few words what is wanted. The repository is registered if it is not yet. The service runs inside
    this command, or, where `orch serve` runs already, there. Ctrl-C stops watching: an agent at work keeps running for
    a while, and `orch serve` goes on from there.
    """
    wanted = ticket_from(ticket, body, body_file, labels)
    settings = settings_for_command()
    tell: Tell = note if as_json else say
    with own_or_ask(settings, "run") as (app, remote):
        desk = LocalDesk(app, served=True) if app is not None else cast(Desk, remote)
        at, did = repository_to_run(desk, Git(SystemProcesses()), repo)
        for line in did:
            tell(line)
        work_item = str(desk.add_task(at.name, wanted, 0)["work_item"])
        rest = _here(app, settings, work_item, tell) if app is not None else _there(desk, work_item, tell)
    code = INTERRUPTED if rest.code is None else rest.code
    if as_json:
        say_json({**rest.story, "exit_code": code})
    else:
        _conclude(rest, default_branch(at))
    return code


def _here(app: App, settings: Settings, work_item: str, tell: Tell) -> Rest:
    """The service runs inside this process."""
    with _log_to_file(app, settings), running(app, role="run", port=0) as service:
        tell(f"{work_item} is filed. Board: {service.url}/board/{work_item}")
        desk = LocalDesk(app, served=True)
        rest = follow(desk, work_item, clock=app.clock, tell=tell, stop=service.stop)
        if rest.code is None:
            note("Stopping; an agent at work keeps running.")
    return rest


def _there(desk: Desk, work_item: str, tell: Tell) -> Rest:
    """Another process owns the state and does the work."""
    tell(f"{work_item} is filed with the service that runs already.")
    try:
        return follow(desk, work_item, clock=SystemClock(), tell=tell, stop=threading.Event())
    except KeyboardInterrupt:
        return Rest(desk.story(work_item), None)


def _conclude(rest: Rest, branch: str) -> None:
    """The last words: how it stands and what to do next."""
    task, spent = rest.task, cast(Plain, rest.story["spent"])
    work_item, stage = task["work_item"], task["stage"]
    cost = spent["cost_usd"]
    say(f"\n{work_item} is {stage}. Spent: {spent['total_tokens']} tokens, ${cost or 0:.2f}.")
    if rest.code is None:
        say("Nothing is lost: `orch serve` goes on with it, and takes over the agent if it still runs.")
    elif rest.code == DONE:
        say(f"Its change is on {branch} of the forge; get it with: git pull {REMOTE} {branch}")
    elif stage != Stage.CANCELLED:
        say(f"It waits ({task['hold']}): {task['hold_reason']}")
        say(f"Look: orch task show {work_item} --events. Then: {_decision(task)}")


def _decision(task: Mapping[str, object]) -> str:
    work_item = task["work_item"]
    if task["hold"] == "person":
        return f"orch task approve {work_item}, or orch task reject {work_item} --reason …"
    if task["hold"] == "frozen":
        return f"orch unfreeze {task['repo']}"
    return f"orch task retry {work_item}, or orch task cancel {work_item}"


@contextmanager
def _log_to_file(app: App, settings: Settings) -> Iterator[None]:
    """The service's log goes to a file, so that the progress can be read."""
    folder = Folders(settings.home).logs
    make_private_folder(folder)
    with (folder / LOG).open("a", encoding="utf-8") as stream:
        configure_logging(settings, (), utc=app.clock.utc, stream=stream)
        try:
            yield
        finally:
            configure_logging(settings, (), utc=app.clock.utc)
