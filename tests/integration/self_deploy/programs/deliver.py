"""Deploy command and undo of the orchestrator itself: a folder for each release, a link to the current, a restart."""

import json
import os
import pathlib
import shutil
import signal
import time

ROOT = pathlib.Path(__file__).parent

sha, undo = os.environ["ORCH_SHA"], os.environ["ORCH_DEPLOY_KIND"] == "undo"
wanted = (os.environ["ORCH_PREVIOUS_SHA"] or (ROOT / "first").read_text()) if undo else sha
with (ROOT / "deliveries.jsonl").open("a") as journal:
    start = {
        "sha": sha,
        "undo": undo,
        "wanted": wanted,
        "token": os.environ["ORCH_DEPLOY_TOKEN"],
        "pid": os.getpid(),
    }
    journal.write(json.dumps(start) + "\n")
release = ROOT / "releases" / wanted
if not undo:
    shutil.copytree(os.environ["ORCH_ARTIFACT"], release, dirs_exist_ok=True)
    (release / "BUILD_SHA").write_text(sha)
aside = ROOT / "current.new"
aside.unlink(missing_ok=True)
aside.symlink_to(release)
aside.replace(ROOT / "current")
serves = (ROOT / "serves.jsonl").read_text().splitlines() if (ROOT / "serves.jsonl").exists() else []
if serves:
    pid = json.loads(serves[-1])["pid"]
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        print("it was down already")
    while pathlib.Path(f"/proc/{pid}").exists():  # as a service manager's restart does
        time.sleep(0.02)
