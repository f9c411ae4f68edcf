"""``orch doctor``."""

import os

import click

from orchestrator.cli.checks import Level, examine
from orchestrator.cli.desk import settings_for_command
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import say, say_json
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses
from orchestrator.web.views import record

FAILED = 1
_MARKS = {Level.OK: "ok", Level.NOTE: "--", Level.WARNING: "!!", Level.FAILED: "XX"}


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Look for what will not work, and say how to mend it.

    Ends with 1 where something has to be mended before anything works, else with 0.
    """
    processes = SystemProcesses()
    found = list(examine(settings_for_command(), os.environ, Git(processes), processes))
    bad = [finding for finding in found if finding.level is Level.FAILED]
    if as_json:
        say_json({"ok": not bad, "findings": [record(finding) for finding in found]})
        return FAILED if bad else 0
    for finding in found:
        say(f"{_MARKS[finding.level]}  {finding.about:<22} {finding.text}")
        if finding.hint:
            say(f"{'':<26} {finding.hint.strip()}")
    warned = sum(finding.level is Level.WARNING for finding in found)
    if bad:
        say(f"\n{len(bad)} to mend before anything works.")
    else:
        say(f"\nReady to work{f'; {warned} to look at' if warned else ''}.")
    return FAILED if bad else 0
