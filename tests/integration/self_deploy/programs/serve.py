"""The repository's one program: serves the orchestrator as the version that this file belongs to."""

import json
import os
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent

if (HERE / "src" / "BROKEN").exists():
    sys.exit("this version does not start")
late = HERE / "src" / "LATE"
while late.exists() and not os.path.exists(late.read_text()):
    time.sleep(0.02)
os.environ["ORCH_BUILD_SHA"] = (HERE / "BUILD_SHA").read_text()

from orchestrator.cli.entry import run  # noqa: E402


def crash_when_up():
    told = pathlib.Path(os.environ["ORCH_HOME"]) / "api.json"
    while not told.exists() or json.loads(told.read_text())["process"]["pid"] != os.getpid():
        time.sleep(0.02)
    os._exit(1)


if (HERE / "src" / "FLAKY").exists():
    threading.Thread(target=crash_when_up, daemon=True).start()

sys.exit(run(["serve"]))
