"""Keeps the service up, as a service manager does: argv = the folder of everything. Starts what ``current`` names."""

import json
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(sys.argv[1])
PAUSE_S = 0.2


def stop(*_):
    (ROOT / "stop").touch()


signal.signal(signal.SIGTERM, stop)
while not (ROOT / "stop").exists():
    release = (ROOT / "current").resolve()
    with (ROOT / "serve.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, str(release / "serve.py")], stdout=log, stderr=log, cwd=ROOT
        )
    with (ROOT / "serves.jsonl").open("a") as journal:
        journal.write(json.dumps({"release": release.name, "pid": child.pid}) + "\n")
    while child.poll() is None:
        if (ROOT / "stop").exists():
            child.kill()
        time.sleep(0.02)
    time.sleep(PAUSE_S)
