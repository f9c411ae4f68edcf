"""Importing and making the application starts nothing: no thread, no file, no socket."""

import subprocess
import sys

PROGRAM = """
import os, threading
before = set(os.listdir("/proc/self/fd"))
import orchestrator.web, orchestrator.web.api, orchestrator.web.server, orchestrator.dashboard.pages
import orchestrator.cli, orchestrator.cli.entry
assert threading.active_count() == 1, threading.enumerate()
left = {fd for fd in set(os.listdir("/proc/self/fd")) - before if os.path.exists(f"/proc/self/fd/{fd}")}
assert not left, left
"""


def test_importing_starts_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
