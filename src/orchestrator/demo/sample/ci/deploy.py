"""Bring a build of greeter to its place: ``deploy.py`` starts this build, ``deploy.py undo`` the one before it.

The place is a port on loopback (GREETER_PORT) and a folder for its own records (GREETER_STATE). Two deploys at once
wait for each other. The place remembers the newest ORCH_DEPLOY_TOKEN it has seen and refuses an older one: a deploy
that was overtaken while it slept cannot put its old version back.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

STOP_SECONDS = 5.0
START_SECONDS = 15.0

port = int(os.environ["GREETER_PORT"])
state = Path(os.environ["GREETER_STATE"])
record = state / "service.json"


def main():
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refuse_old_token(int(os.environ["ORCH_DEPLOY_TOKEN"]))
        stop_running()
        if sys.argv[1:] == ["undo"]:
            previous = os.environ.get("ORCH_PREVIOUS_ARTIFACT")
            if previous:
                start(Path(previous), os.environ["ORCH_PREVIOUS_SHA"])
            else:
                print("there was no version before; nothing runs here now")
        else:
            start(Path(os.environ["ORCH_ARTIFACT"]), os.environ["ORCH_SHA"])


def refuse_old_token(token):
    newest = state / "newest-token"
    seen = int(newest.read_text()) if newest.exists() else 0
    if token < seen:
        sys.exit(f"refused: deploy token {token} is older than {seen}")
    newest.write_text(f"{token}\n")


def stop_running():
    if not record.exists():
        return
    known = json.loads(record.read_text())
    if start_ticks(known["pid"]) == known["start_ticks"]:
        os.killpg(known["pid"], signal.SIGTERM)
        if not within(STOP_SECONDS, lambda: start_ticks(known["pid"]) != known["start_ticks"]):
            os.killpg(known["pid"], signal.SIGKILL)
            within(STOP_SECONDS, lambda: start_ticks(known["pid"]) != known["start_ticks"])
        print(f"stopped process {known['pid']} ({known['sha'][:12]})")
    record.unlink()


def start(build, sha):
    environment = {name: os.environ[name] for name in ("PATH", "GREETER_PORT") if name in os.environ}
    with (state / "service.log").open("ab") as log:
        service = subprocess.Popen(
            [sys.executable, "-B", "-m", "greeter"],
            cwd=build,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # what was deployed outlives its deploy command
        )
    about = {"pid": service.pid, "start_ticks": start_ticks(service.pid), "sha": sha, "port": port}
    record.write_text(json.dumps(about) + "\n")
    if not within(START_SECONDS, lambda: service.poll() is not None or running_sha() == sha):
        stop_running()  # what failed is not left behind
        sys.exit(f"{sha[:12]} did not answer on port {port} within {START_SECONDS:g} s")
    if service.poll() is not None:
        sys.exit(f"{sha[:12]} ended with {service.returncode}: see {state / 'service.log'}")
    print(f"{os.environ['ORCH_ENVIRONMENT']} runs {sha} on port {port}")


def running_sha():
    try:
        with urlopen(f"http://127.0.0.1:{port}/version", timeout=2) as answer:
            return json.load(answer)["sha"]
    except (URLError, OSError, ValueError):
        return None


def start_ticks(pid):
    """When the process started; None where it has ended. A number alone may be somebody else's by now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def within(seconds, happened):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.05)
    return happened()


main()
