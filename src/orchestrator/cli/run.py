"""``orch run``: file a ticket and watch it until it is done or a person is needed."""

from typing import BinaryIO, cast

import click

from orchestrator.cli.checkout import default_branch
from orchestrator.cli.desk import Desk, LocalDesk, own_or_ask, settings_for_command
from orchestrator.cli.follow import Tell
from orchestrator.cli.options import json_option, ticket_from
from orchestrator.cli.resolve import refuse_early, repository_to_run
from orchestrator.cli.terminal import note, say
from orchestrator.cli.watching import conclude, is_frozen, watch_here, watch_there
from orchestrator.db.opening import has_state
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses


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
    a while; `orch watch` or `orch serve` goes on from there.
    """
    wanted = ticket_from(ticket, body, body_file, labels)
    settings = settings_for_command()
    tell: Tell = note if as_json else say
    git = Git(SystemProcesses())
    if not has_state(settings.database_url):
        refuse_early(git, repo)
    with own_or_ask(settings, "run") as (app, remote):
        desk = LocalDesk(app, served=True) if app is not None else cast(Desk, remote)
        at, did = repository_to_run(desk, git, repo)
        for line in did:
            tell(line)
        work_item = str(desk.add_task(at.name, wanted, 0)["work_item"])
        if app is not None:
            rest = watch_here(app, settings, work_item, tell, "is filed")
        else:
            tell(f"{work_item} is filed with the service that runs already.")
            rest = watch_there(desk, work_item, tell)
        frozen = is_frozen(desk, at.name)
    return conclude(rest, default_branch(at), frozen=frozen, as_json=as_json)
