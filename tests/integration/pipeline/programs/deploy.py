"""Brings a version to an environment: writes it down where the probe looks."""

import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).parent

environment, sha = os.environ["ORCH_ENVIRONMENT"], os.environ["ORCH_SHA"]
undo = os.environ["ORCH_DEPLOY_KIND"] == "undo"
if undo:
    sha = os.environ["ORCH_PREVIOUS_SHA"]
with (ROOT / "deploys.jsonl").open("a") as journal:
    start = {
        "env": environment,
        "sha": sha,
        "undo": undo,
        "token": os.environ["ORCH_DEPLOY_TOKEN"],
        "digest": os.environ["ORCH_DIGEST"],
        "pid": os.getpid(),
        "files": sorted(os.listdir(os.environ["ORCH_ARTIFACT"])),
    }
    journal.write(json.dumps(start) + "\n")
do = json.loads((ROOT / "deploy.json").read_text()).get("undo" if undo else environment, {})
while do.get("until") and not os.path.exists(do["until"]):
    time.sleep(0.02)
if do.get("exit"):
    if "runs" in do:
        (ROOT / f"running-{environment}").write_text(do["runs"])
    print("cannot reach the machine")
    sys.exit(do["exit"])
if do.get("hang"):
    time.sleep(600)
(ROOT / f"running-{environment}").write_text(do.get("runs", sha))
