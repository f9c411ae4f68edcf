"""The agent: does the right thing for its role, or what ``agent.json`` beside it says."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent
STAGE = {
    "analyst": "analysis",
    "architect": "architecture",
    "reviewer": "review",
    "tester": "testing",
    "deployer": "deploy-staging",
}
HELPER = "import os, time\nos.setsid()\ntime.sleep(600)"
FITS = ("role", "work_item", "round", "attempt", "title")

brief = json.loads(pathlib.Path(os.environ["ORCH_BRIEF"]).read_text())
role, item, folder = brief["role"], brief["work_item"], pathlib.Path(brief["documents_dir"])


def git(*words):
    return run(["git", *words])


def run(argv):
    known = {"{gated}": brief["gated_sha"], "{base}": brief["base_sha"], "{branch}": branch}
    for mark, value in known.items():
        argv = [word.replace(mark, str(value)) for word in argv]
    done = subprocess.run(argv, capture_output=True, text=True)
    print(argv, done.returncode, done.stdout, done.stderr)
    return done.stdout.strip()


def write(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def document(name, *more):
    lines = [f"work_item: {item}", f"stage: {STAGE[role]}", f"author_agent: {role}", "status: final"]
    lines += ["created_at: 2026-01-05", "model_used: none", "escalate:", "title: A document", *more]
    body = "\n".join(lines) + "\n"
    write(folder / name, body if name.endswith(".yaml") else f"---\n{body}---\n\n# Words\n\nSome words.\n")


def helper():
    started = subprocess.Popen([sys.executable, "-c", HELPER])
    with (ROOT / "helpers").open("a") as known:
        known.write(f"{started.pid}\n")


def terminated(*_):
    git("add", "-A")
    git("commit", "-qm", "A last one")
    sys.exit(0)


branch = ""
with (ROOT / "agents.jsonl").open("a") as journal:
    facts = {key: brief[key] for key in ("role", "round", "attempt", "notes", "gated_sha", "candidate_sha")}
    journal.write(json.dumps({**facts, "item": item, "pid": os.getpid(), "cwd": os.getcwd()}) + "\n")
do = {}
for entry in json.loads((ROOT / "agent.json").read_text()):
    if all(entry.get(key, brief[key]) == brief[key] for key in FITS):
        do = entry
        break
branch = git("branch", "--show-current")

if do.get("commit_on_term"):
    signal.signal(signal.SIGTERM, terminated)
if do.get("ignore_term"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(do.get("helpers", 0)):
    helper()
if do.get("kill_service"):
    os.kill(int((ROOT / "state" / "service.pid").read_text()), signal.SIGKILL)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)
while do.get("until") and not os.path.exists(do["until"]):
    time.sleep(0.02)
asked = re.search(r"\(git merge ([0-9a-f]{40})\)", brief["notes"])
if do.get("obey") and asked:
    git("merge", "-q", "--no-edit", asked[1])
for argv in do.get("run", []):
    run(argv)
if "usage" in do:
    write(os.environ["ORCH_USAGE"], json.dumps(do["usage"]))
if do.get("exit") is not None:
    sys.exit(do["exit"])

if do.get("documents") is False:
    pass
elif role == "analyst":
    for name in ("01-brd.md", "03-acceptance.md"):
        document(name)
    document("02-trz.md", "track: " + do.get("track", "full"))
    cases = [
        [f"  - id: {case}", "    type: unit", "    description: it works"]
        for case in do.get("plan", ["TC-01"])
    ]
    document("04-test-plan.yaml", "framework: existing", "scope: all", "tests:", *sum(cases, []))
elif role == "architect":
    document("06-adr/001-decision.md")
    document("10-tech-risks.md", "schema_changes: no", *do.get("risks", []))
elif role == "developer":
    usual = {f"src/change_{item.replace('-', '_')}.py": f"CHANGE = {brief['round']}\n"}
    for path, text in do.get("write", usual).items():
        write(path, text)
elif role == "reviewer":
    said = [f"  - message: {json.dumps(text)}" for text in do.get("findings", [])]
    subject = do.get("sha") or brief["gated_sha"]
    listed = ["findings:", *said] if said else ["findings: []"]
    document("12-review.md", f"verdict: {do.get('verdict', 'approved')}", f"gated_sha: {subject}", *listed)
elif role == "tester":
    said = [f"  {case}: {outcome}" for case, outcome in do.get("cases", {"TC-01": "pass"}).items()]
    subject = do.get("sha") or brief["gated_sha"]
    document(
        "13-test-report.md", f"verdict: {do.get('verdict', 'pass')}", f"gated_sha: {subject}", "cases:", *said
    )
elif role == "deployer":
    subject = do.get("sha") or brief["candidate_sha"]
    document("14-staging-log.md", f"verdict: {do.get('verdict', 'healthy')}", f"candidate_sha: {subject}")

for argv in do.get("after", []):
    run(argv)
if do.get("commit", role in ("analyst", "architect", "developer")):
    git("add", "-A")
    git("commit", "-qm", do.get("message", f"Work of the {role}"))
for argv in do.get("at_last", []):
    run(argv)
if do.get("stay"):
    time.sleep(600)
