"""``orch demo``."""

from functools import partial
from pathlib import Path

import click

from orchestrator.cli.terminal import say
from orchestrator.demo.run import run_demo
from orchestrator.domain.errors import RequestRefused

STACKS = ("plane-gitea", "plane-github", "github")


@click.command("demo")
@click.option(
    "--agent",
    type=click.Choice(["scripted", "claude"]),
    default="scripted",
    show_default=True,
    help="Who does the work. claude is the real program: with the key in your environment on your account, else "
    "against a scripted model on this machine.",
)
@click.option(
    "--kill",
    is_flag=True,
    help="The service ends itself by SIGKILL at the merge and at the deploy to production, and is started again.",
)
@click.option(
    "--stack",
    type=click.Choice(STACKS),
    help="Tickets come from Plane, or are issues at GitHub, and the code lies at Gitea or GitHub: servers that are "
    "played on this machine.",
)
@click.option("--keep", is_flag=True, help="Leave the services running and the folder in place.")
@click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), help="A new or empty folder to do it in."
)
def command(agent: str, kill: bool, stack: str | None, keep: bool, home: Path | None) -> int:
    """Deliver two tickets of a sample service, and prove it.

    Makes a small HTTP service as a git repository, runs two tickets through the whole pipeline at once, deploys to
    staging and production, and prints what can be proved. Takes about a minute; nothing is left running.
    """
    if stack is None:
        return run_demo(agent, keep, home, say, kill=kill)
    if kill or keep:
        raise RequestRefused(
            "With --stack the demo is neither killed nor kept: its servers end with it. It was not started.",
            hint="Leave --kill and --keep out.",
        )
    from orchestrator.demo.stack import StackDemo

    return run_demo(agent, home=home, echo=say, make=partial(StackDemo, stack=stack))
