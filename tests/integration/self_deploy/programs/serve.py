"""The repository's one program: serves the orchestrator as the version that this file belongs to."""

import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent

if (HERE / "src" / "BROKEN").exists():
    sys.exit("this version does not start")
late = HERE / "src" / "LATE"
while late.exists() and not os.path.exists(late.read_text()):
    time.sleep(0.02)
os.environ["ORCH_BUILD_SHA"] = (HERE / "BUILD_SHA").read_text()

from orchestrator.cli.entry import run  # noqa: E402

sys.exit(run(["serve"]))
