"""``orch doctor``."""

import os
from collections.abc import Sequence

import click

from orchestrator.cli.channel_checks import channels
from orchestrator.cli.checks import examine
from orchestrator.cli.desk import settings_for_command
from orchestrator.cli.findings import Finding, Level
from orchestrator.cli.forge_checks import forges
from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import say, say_json, width
from orchestrator.cli.tracker_checks import trackers
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import SystemHttp
from orchestrator.runtime.process import SystemProcesses
from orchestrator.web.views import record

FAILED = 1
_MARKS = {Level.OK: "ok", Level.NOTE: "--", Level.WARNING: "!!", Level.FAILED: "XX"}


def lines(found: Sequence[Finding]) -> list[str]:
    """What is found, in columns that line up; a hint stands below what it belongs to."""
    room = max((width(finding.about) for finding in found), default=0)
    told = []
    for finding in found:
        told.append(
            f"{_MARKS[finding.level]}  {finding.about}{' ' * (room - width(finding.about))}  {finding.text}"
        )
        if finding.hint:
            told.append(f"{' ' * (room + 6)}{finding.hint.strip()}")
    return told


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Look for what will not work, and say how to mend it.

    Ends with 1 where something has to be mended before anything works, else with 0.
    """
    processes = SystemProcesses()
    settings = settings_for_command()
    http = SystemHttp()
    found = [
        *examine(settings, os.environ, Git(processes), processes, http),
        *forges(settings, os.environ, http),
        *trackers(settings, os.environ),
        *channels(settings, http),
    ]
    bad = [finding for finding in found if finding.level is Level.FAILED]
    if as_json:
        say_json({"ok": not bad, "findings": [record(finding) for finding in found]})
        return FAILED if bad else 0
    for line in lines(found):
        say(line)
    warned = sum(finding.level is Level.WARNING for finding in found)
    if bad:
        say(f"\n{len(bad)} to mend before anything works.")
    else:
        say(f"\nReady to work{f'; {warned} to look at' if warned else ''}.")
    return FAILED if bad else 0
