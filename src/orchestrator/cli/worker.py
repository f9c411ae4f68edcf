"""``orch worker``."""

import os

import click

from orchestrator.cli.options import json_option
from orchestrator.cli.service import raise_why, working
from orchestrator.cli.terminal import note, say, say_json
from orchestrator.config import Settings, load_settings
from orchestrator.db import homes
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.ids import Home
from orchestrator.ownership.registration import WORKER
from orchestrator.places import known_state_id
from orchestrator.wiring import open_app, open_readonly

DEAD = 1


@click.command("worker")
@click.option("--check", is_flag=True, help="Only say whether the worker of this state folder is alive.")
@json_option
def command(check: bool, as_json: bool) -> int:
    """Run agents for orchestrators on other machines.

    Shares their PostgreSQL database and their forges; its state folder is its own. Takes agents' jobs of the
    repositories whose forge it reaches, up to ORCH_MAX_AGENTS at a time, and pushes what they have made. Answers
    nobody; checks, merges and deploys are the orchestrators'. SIGTERM or Ctrl-C ends it as it does `orch serve`. With
    --check it ends with 0 while it is heard of, else with 1.
    """
    settings = load_settings(os.environ)
    if not settings.on_postgres:
        raise ConfigError(
            "A worker shares a PostgreSQL database with its orchestrators; this one is a file. Nothing was started.",
            hint="Name theirs in ORCH_DATABASE_URL. On one machine `orch serve` runs agents itself (ORCH_MAX_AGENTS).",
        )
    if check:
        return _check(settings, as_json)
    with open_app(settings, os.environ, role=WORKER) as app, working(app) as service:
        repos = sorted(app.guard.open_repositories())
        if as_json:
            say_json({"pid": os.getpid(), "home": str(settings.home), "repositories": repos})
        else:
            say(f"orchestrator works for {', '.join(repos) or 'no repository yet'}")
            say(
                f"(state in {settings.home}, pid {os.getpid()}). Ctrl-C ends it; agents at work keep running."
            )
        app.clock.wait(service.stop, None)
        note("Stopping.")
    raise_why(service)
    return 0


def _check(settings: Settings, as_json: bool) -> int:
    found = None
    if (home := known_state_id(settings.home)) is not None:
        with open_readonly(settings, os.environ) as app, app.database.read() as tx:
            found = homes.get(tx, Home(home), ttl_s=settings.process_ttl_s)
    alive = found is not None and not found.silent
    if as_json:
        say_json({"alive": alive, "seen_at": found.seen_at if found is not None else None})
    elif found is None:
        say(f"No worker has ever worked in {settings.home}.")
    else:
        say(f"The worker in {found} {'lives' if alive else 'is silent'}.")
    return 0 if alive else DEAD
