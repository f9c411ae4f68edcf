"""An honest small agent for `tools/deliver_package.py`: makes the change that a ticket file describes, and checks it.

It knows nothing but the brief (`ORCH_BRIEF`), the worktree it stands in, and the file named on its command line. What
its documents claim, it has looked at: the reviewer reads the difference, the tester runs the tests. Standard library
only, for it runs in the package's own environment. Ends non-zero where it cannot do its work.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROUTINE = "status: final\ncreated_at: {date}\nmodel_used: none\nescalate:\n"


def main() -> int:
    """Do the work of the role that the brief names."""
    brief = json.loads(Path(os.environ["ORCH_BRIEF"]).read_text(encoding="utf-8"))
    ticket = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    role = brief["role"]
    work = {"analyst": analyse, "architect": decide, "developer": develop, "reviewer": review, "tester": test}
    if role not in work:
        print(f"this agent is no {role}", file=sys.stderr)
        return 2
    work[role](brief, ticket)
    return 0


def analyse(brief: dict, ticket: dict) -> None:
    """What is wanted, in four documents."""
    files = ", ".join(sorted({edit["path"] for edit in ticket["edits"]}))
    need = ticket["requirement"]
    document(brief, "01-brd.md", "", f"BR-1: {need}")
    document(brief, "02-trz.md", "track: fast\n", f"FR-1 (BR-1): {need} Files: {files}.")
    document(brief, "03-acceptance.md", "", f"AC-1 (FR-1): `{' '.join(ticket['check'])}` passes.")
    case = f"  - id: TC-01\n    type: unit\n    description: {json.dumps(ticket['case'])}\n"
    plan = f'framework: existing\nscope: "The change, by the package\'s own suite."\ntests:\n{case}'
    place = Path(brief["documents_dir"]) / "04-test-plan.yaml"
    place.write_text(front_matter(brief) + plan, encoding="utf-8")
    commit(brief, "describe the change", [brief["documents_dir"]])


def decide(brief: dict, ticket: dict) -> None:
    """For those who ask for the full track."""
    document(brief, "06-adr/001-as-the-rest.md", "", "Decision: the change follows the code around it.")
    document(brief, "10-tech-risks.md", "schema_changes: no\n", "TR-1: none beyond a wrong result.")
    commit(brief, "decide how", [brief["documents_dir"]])


def develop(brief: dict, ticket: dict) -> None:
    """Make the edits that are not there yet, see the tests pass, commit."""
    for edit in ticket["edits"]:
        place = Path(edit["path"])
        text = read(place)
        if edit["new"] in text:
            continue
        if text.count(edit["old"]) != 1:
            sys.exit(f"{place}: the text to be replaced is there {text.count(edit['old'])} times")
        with place.open("w", encoding="utf-8", newline="") as file:
            file.write(text.replace(edit["old"], edit["new"]))
        print(f"edited {place}")
    run(ticket["check"])
    commit(brief, ticket["title"], sorted({edit["path"] for edit in ticket["edits"]}))


def review(brief: dict, ticket: dict) -> None:
    """Read the difference: nothing but what was asked for, and all of it."""
    names = out(["git", "diff", "--name-only", brief["base_sha"], brief["gated_sha"]]).splitlines()
    wanted = {edit["path"] for edit in ticket["edits"]}
    documents = brief["documents_dir"] + "/"
    changed = {name for name in names if not name.startswith(documents)}
    findings = [f"{name} was changed, nobody asked for that" for name in sorted(changed - wanted)]
    findings += [
        f"{edit['path']} lacks its change"
        for edit in ticket["edits"]
        if edit["new"] not in read(Path(edit["path"]))
    ]
    listed = "".join(f"  - message: {json.dumps(finding)}\n" for finding in findings)
    more = f"verdict: {'rejected' if findings else 'approved'}\ngated_sha: {brief['gated_sha']}\n"
    more += f"findings:\n{listed}" if findings else "findings: []\n"
    document(
        brief, "12-review.md", more, f"Changed: {', '.join(sorted(changed))}. Findings: {len(findings)}."
    )


def test(brief: dict, ticket: dict) -> None:
    """Run what the acceptance criterion names."""
    done = subprocess.run(ticket["check"], capture_output=True, text=True, check=False)
    verdict = "pass" if done.returncode == 0 else "fail"
    more = f"verdict: {verdict}\ngated_sha: {brief['gated_sha']}\ncases:\n  TC-01: {verdict}\n"
    last = (done.stdout.strip().splitlines() or ["nothing was said"])[-1]
    document(brief, "13-test-report.md", more, f"TC-01: `{' '.join(ticket['check'])}`: {last}")


def document(brief: dict, name: str, more: str, text: str) -> None:
    """A document with its front matter."""
    place = Path(brief["documents_dir"]) / name
    place.parent.mkdir(parents=True, exist_ok=True)
    body = f"---\n{front_matter(brief)}{more}---\n\n# {brief['work_item']}\n\n{text}\n"
    place.write_text(body, encoding="utf-8")
    print(f"wrote {place}")


def front_matter(brief: dict) -> str:
    """The keys that every document has."""
    head = f"work_item: {brief['work_item']}\nstage: {brief['stage']}\nauthor_agent: {brief['role']}\n"
    return head + ROUTINE.format(date=brief["date"])


def read(place: Path) -> str:
    """A file with its line ends as they are."""
    with place.open(encoding="utf-8", newline="") as file:
        return file.read()


def commit(brief: dict, what: str, paths: list) -> None:
    """What was written, and nothing that the tests left behind."""
    run(["git", "add", "--", *paths])
    run(["git", "commit", "--quiet", "-m", f"{brief['work_item']}: {what}"])


def run(argv: list) -> None:
    """A command that has to succeed."""
    subprocess.run(argv, check=True)


def out(argv: list) -> str:
    """What a command prints."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
