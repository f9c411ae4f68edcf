"""``orch db``."""

import os
import sys
from functools import partial

import click

from orchestrator.cli.desk import nothing_yet, settings_for_command
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import say, say_json
from orchestrator.config import values
from orchestrator.db.opening import file_of, has_state, place_of
from orchestrator.domain.errors import ConfigError
from orchestrator.places import state_id_of
from orchestrator.wiring import open_app

LONGEST = 4096


@click.group("db")
def command() -> None:
    """Where the ledger lies: copy it from a SQLite file to PostgreSQL, or back."""


@command.command("copy")
@click.argument("target")
@json_option
def copy(target: str, as_json: bool) -> int:
    """Copy the ledger to TARGET, another database.

    From a SQLite file to a PostgreSQL database, or back: TARGET is what ORCH_DATABASE_URL would be, or - to read that
    from standard input, which keeps a password off the command line. It must hold nothing yet. No service may run.
    The present database stays as it is: set ORCH_DATABASE_URL to the new one, then start.
    """
    settings = settings_for_command()
    new = _address(target)
    if not has_state(settings.database_url):
        raise nothing_yet(settings)
    from orchestrator.db.copying import copy_ledger

    with open_app(settings, os.environ, role="db copy") as app:
        done = copy_ledger(
            settings.database_url,
            new,
            by=app.boot_id,
            state_id=state_id_of(settings.home, app.entropy) if file_of(new) is None else None,
            owned=settings.database_path,
            alone=partial(app.registration.alone, undone="nothing was copied"),
            clock=app.clock,
            entropy=app.entropy,
        )
    if as_json:
        say_json(
            {
                "tables": done.tables,
                "rows": done.rows,
                "from": place_of(settings.database_url),
                "to": place_of(new),
            }
        )
    else:
        say(f"Copied {done.rows} rows of {done.tables} tables to {place_of(new)}, and compared them.")
        say("Set ORCH_DATABASE_URL to it before anything is started again, and put the old database away.")
    return 0


def _address(target: str) -> str:
    """The target's address; never shown.

    :raises ConfigError: it is none, or would show a password to everybody on this machine.
    """
    given = target if target != "-" else sys.stdin.read(LONGEST)
    try:
        url = values.database_url(given)
    except ValueError as expected:
        raise ConfigError(f"TARGET is no address of a database (not shown), expected {expected}.") from None
    if target != "-" and values.passwords_in(url):
        raise ConfigError(
            "TARGET holds a password, and what stands on a command line can be read by others. Nothing was copied.",
            hint="Give - and the address on standard input, or name a file: …?passfile=/path.",
        )
    return url
