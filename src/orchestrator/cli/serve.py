"""``orch serve``."""

import os

import click

from orchestrator.cli.options import json_option
from orchestrator.cli.restore import closed_lines
from orchestrator.cli.service import raise_why, running
from orchestrator.cli.terminal import note, say, say_json
from orchestrator.config import load_settings
from orchestrator.wiring import open_app


@click.command("serve")
@json_option
def command(as_json: bool) -> int:
    """Run the service: work, API and board.

    Listens on ORCH_HOST and ORCH_PORT (127.0.0.1:8114); beyond this machine a token is required. SIGTERM or Ctrl-C
    ends it within ORCH_SHUTDOWN_BUDGET_S: nothing new is begun, transitions finish, agents at work keep running and are
    taken over by the next start.
    """
    settings = load_settings(os.environ)
    with open_app(settings, os.environ, role="serve") as app, running(app, role="serve") as service:
        if as_json:
            say_json({"url": service.url, "pid": os.getpid(), "home": str(settings.home)})
        else:
            say(f"orchestrator serves {service.url} (state in {settings.home}, pid {os.getpid()})")
            say("Ctrl-C ends it; agents at work keep running.")
        for line in closed_lines(app.operations.queue()):
            note(line)
        app.clock.wait(service.stop, None)
        note("Stopping.")
    raise_why(service)
    return 0
