"""The repository's checks: they fail where a file BROKEN is, and cover as many lines as ``covered.txt`` says."""

import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent
HELPER = "import os, time\nos.setsid()\ntime.sleep(600)"

do = json.loads((ROOT / "checks.json").read_text())
with (ROOT / "checks.jsonl").open("a") as journal:
    journal.write(json.dumps({"sha": os.environ["ORCH_SHA"], "pid": os.getpid(), "cwd": os.getcwd()}) + "\n")
while do.get("until") and not os.path.exists(do["until"]):
    time.sleep(0.02)
if do.get("helper"):
    helper = subprocess.Popen([sys.executable, "-c", HELPER])
    with (ROOT / "helpers").open("a") as known:
        known.write(f"{helper.pid}\n")
if os.path.exists("BROKEN"):
    print("test_everything FAILED: BROKEN is there")
    sys.exit(1)
covered = pathlib.Path("covered.txt")
hit = int(covered.read_text()) if covered.exists() else 80
lines = [f"DA:{n + 1},{int(n < hit)}\n" for n in range(100)]
report = do.get("report", "".join(["TN:\nSF:src/app.py\n", *lines, "end_of_record\n"]))
if report is not None:
    pathlib.Path("lcov.info").write_text(report)
    if do.get("stale"):
        os.utime("lcov.info", (1, 1))
