"""Deliver a ticket on a package that was written elsewhere: `python tools/deliver_package.py NAME==VERSION`.

Downloads the package's source distribution, makes it a git repository, writes `.orchestrator.toml` as `orch init`
would and adds what is missing, delivers one ticket through the whole pipeline, and prints what can be proved. It
changes nothing outside a temporary folder, which `--keep` leaves behind. Exit code 0: done and proved; 1: not.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import yaml

from orchestrator.config import load_settings
from orchestrator.coverage.reader import read_coverage
from orchestrator.demo.progress import line_of
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Ticket
from orchestrator.main import Service
from orchestrator.operations.reading import TaskStory
from orchestrator.repo_config.detect import Suggestion, render_init_toml, suggest
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.files import read_bounded
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses
from orchestrator.scripted_model.scenario import SHIPPED
from orchestrator.scripted_model.server import ScriptedModel
from orchestrator.wiring import App, open_app

HERE = Path(__file__).resolve().parent
TICKETS = HERE / "package_tickets"
WHAT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9._!+-]*)")
NEEDED = ("pytest", "coverage")
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")  # also what a package index wants, in PIP_…
NO_TESTS = re.compile(r"^(Ran 0 tests|no tests ran|collected 0 items)", re.MULTILINE)
MEASURED = "python3 -m coverage run --source=. -m pytest -q && python3 -m coverage json -q -o coverage.json"
FROM_SRC = "PYTHONPATH=src " + MEASURED
DROPPINGS = ("__pycache__/", ".pytest_cache/", ".coverage", "coverage.json")
READ_LIMIT = 512 * 1024
STEP_SECONDS = 600.0
PATIENCE_SECONDS = 900.0
POLL_SECONDS = 0.2


class Failed(Exception):
    """It cannot go on; the message says why."""


@dataclass(frozen=True)
class Package:
    """An unpacked source distribution that is a git repository."""

    name: str
    folder: Path
    python: Path  # of its own environment
    environ: Mapping[str, str]


def main(argv: Sequence[str]) -> int:
    """The entry point: its exit code."""
    parser = argparse.ArgumentParser(prog="deliver_package.py", description=__doc__.splitlines()[0])
    parser.add_argument("package", help="NAME==VERSION, from the package index that pip is set up for")
    parser.add_argument("--agent", choices=("command", "claude"), default="command")
    parser.add_argument(
        "--ticket", type=Path, help="a ticket file, instead of tools/package_tickets/NAME.yaml"
    )
    parser.add_argument(
        "--with", dest="also", action="append", default=[], help="another package its tests need"
    )
    parser.add_argument("--keep", action="store_true", help="leave the temporary folder")
    options = parser.parse_args(argv)
    home = Path(tempfile.mkdtemp(prefix="orch-package-")).resolve()
    try:
        return deliver(options, home)
    except Failed as error:
        print(f"deliver_package.py: {error}", file=sys.stderr)
        return 1
    finally:
        if options.keep:
            print(f"everything is in {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


def deliver(options: argparse.Namespace, home: Path) -> int:
    """From a name to a proof."""
    named = WHAT.fullmatch(options.package)
    if named is None:
        raise Failed(f"{options.package!r} is not of the form NAME==VERSION.")
    ticket = read_ticket(options.ticket or TICKETS / f"{named.group(1).lower()}.yaml")
    git = Git(SystemProcesses(), name="A. Person", email="person@example.org")
    package = prepare(
        named.group(1), options.package, [*NEEDED, *ticket.get("needs", ()), *options.also], home
    )
    make_repository(package, options.package, git)
    suggestion = checked_suggestion(package)
    before = measure(package, suggestion)
    with agent_of(options.agent, ticket, package, home) as (table, environ):
        write_config(package, suggestion, table, git)
        settings = load_settings({"ORCH_HOME": str(home / "state"), "ORCH_LOG_LEVEL": "warning"})
        with open_app(settings, environ, role="package") as app:
            prefix = re.sub(r"[^A-Z]", "", package.name.upper())[:8] or "PKG"
            forge = app.register_repository(package.folder, name=package.name.lower(), prefix=prefix).location
            filed = app.operations.add_task(
                package.name.lower(), Ticket(title=ticket["title"], body=ticket["body"])
            )
            with Service(app):
                story = watch(app, filed.work_item)
            return prove(app, story, git, forge, before)


# --- the package ------------------------------------------------------------------------------------------------------


def prepare(name: str, what: str, needed: Sequence[str], home: Path) -> Package:
    """An environment of its own with pytest and coverage, and the source distribution beside it, unpacked."""
    processes = SystemProcesses()
    venv = home / "venv"
    python = venv / "bin" / "python3"
    environ = {key: value for key, value in os.environ.items() if key in PASSED_ON}
    environ["PATH"] = f"{python.parent}{os.pathsep}{environ.get('PATH', '')}"
    index = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    steps = (
        [sys.executable, "-m", "venv", "--", str(venv)],
        [*pip, "install", "--", *needed],
        [*pip, "download", "--no-binary", ":all:", "--no-deps", "-d", str(home / "sdist"), "--", what],
    )
    for step in steps:
        done = processes.run(step, cwd=home, env={**environ, **index}, timeout=STEP_SECONDS)
        if done.returncode != 0:
            raise Failed(f"{' '.join(step)} ended with {done.returncode}: {done.stderr.decode()[-1000:]}")
    archives = list((home / "sdist").iterdir())
    if len(archives) != 1 or not archives[0].name.endswith(".tar.gz"):
        raise Failed(f"{what} has no source distribution as .tar.gz, but {[a.name for a in archives]}.")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(home / "unpacked", filter="data")
    (top,) = (home / "unpacked").iterdir()
    return Package(name, top.rename(home / name), python, environ)


def make_repository(package: Package, what: str, git: Git) -> None:
    """One commit of everything that was released; oddities are told, for they are what this is run for."""
    at = package.folder
    links = [path for path in at.rglob("*") if path.is_symlink()]
    files = [path for path in at.rglob("*") if path.is_file() and not path.is_symlink()]
    crlf = [path for path in files if b"\r\n" in path.read_bytes() and b"\0" not in path.read_bytes()]
    generated = [
        path for path in files if path.suffix == ".pyc" or ".egg-info" in str(path) or path.name == "PKG-INFO"
    ]
    git.run(["init", "-q", "--initial-branch=main", "--template=", "--", str(at)], cwd=at)
    git.run(["add", "--all", "--", "."], cwd=at)
    ignored = git.text(["ls-files", "--others", "--ignored", "--exclude-standard"], cwd=at).splitlines()
    git.run(["add", "--all", "--force", "--", "."], cwd=at)
    git.run(["commit", "-q", "-m", f"{what}, as released"], cwd=at)
    print(
        f"{what}: {len(files)} files, {len(links)} links, {len(crlf)} with CRLF, {len(generated)} generated, "
        f"{len(ignored)} that its own .gitignore hides; .gitattributes: "
        f"{'yes' if (at / '.gitattributes').exists() else 'no'}"
    )
    for title, names in (("hidden", ignored), ("CRLF", [str(path.relative_to(at)) for path in crlf])):
        if names:
            print(f"  {title}: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}")


def checked_suggestion(package: Package) -> Suggestion:
    """What `orch init` would guess, tried out; where it runs no test or measures nothing, what has to be added."""
    guesses = suggest(files_of(package.folder))
    guess = guesses[0] if guesses else Suggestion("python", "nothing", ("false",))
    own = replace(guess, coverage_report="coverage.json", coverage_format="coverage.py")
    tries = [guess, replace(own, ci=("sh", "-c", MEASURED))]
    if (package.folder / "src").is_dir():
        tries.append(replace(own, ci=("sh", "-c", FROM_SRC)))
    print(f"orch init guesses from {guess.because}:")
    for suggestion in tries:
        code, said = run_checks(package, suggestion.ci)
        untested = NO_TESTS.search(said) is not None
        good = code == 0 and not untested and suggestion.coverage_report is not None
        how = f"ends with {code}" if code else "runs no test" if untested else "measures no coverage"
        print(f"  {' '.join(suggestion.ci)}\n    {'is good' if good else how}")
        if good:
            return suggestion
    raise Failed(f"The package's own tests do not pass here:\n{said[-3000:]}")


def files_of(top: Path) -> dict[str, partial[bytes]]:
    """What may say how the repository checks itself."""
    places = [*top.iterdir(), top / "tests" / "conftest.py"]
    return {
        str(place.relative_to(top)): partial(read_bounded, place, READ_LIMIT)
        for place in places
        if place.is_file() and not place.is_symlink()
    }


def run_checks(package: Package, argv: Sequence[str]) -> tuple[int, str]:
    """The checks in a copy, so that the repository stays clean: exit code and output."""
    copy = package.folder.with_name("tried")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(package.folder, copy, symlinks=True)
    done = SystemProcesses().run(argv, cwd=copy, env=package.environ, timeout=STEP_SECONDS)
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


def measure(package: Package, suggestion: Suggestion) -> float:
    """Coverage of the package as it was released."""
    code, said = run_checks(package, suggestion.ci)
    if code != 0:
        raise Failed(f"The checks passed once and then failed:\n{said[-2000:]}")
    copy = package.folder.with_name("tried")
    found = read_coverage(
        copy / (suggestion.coverage_report or ""),
        suggestion.coverage_format or "",
        root=copy,
        newer_than=None,
    )
    print(f"as released: {last_line(said)}; coverage {found.percent:.2f} %")
    return found.percent


def write_config(package: Package, suggestion: Suggestion, agent: str, git: Git) -> None:
    """`.orchestrator.toml` as `orch init` renders it, with our agent, committed."""
    text = render_init_toml(suggestion, name=package.name.lower())
    marked = '[agent]\nkind = "claude"\ntimeout = "1h"\n'
    if text.count(marked) != 1:
        raise Failed("The rendered configuration has no [agent] table as expected.")
    (package.folder / ".orchestrator.toml").write_text(text.replace(marked, agent), encoding="utf-8")
    git.run(["add", "--", ".orchestrator.toml", *ignore_droppings(package)], cwd=package.folder)
    git.run(["commit", "-q", "-m", "Say how changes are checked"], cwd=package.folder)


def ignore_droppings(package: Package) -> list[str]:
    """A `.gitignore` where none was released: what the tests leave behind would be taken for work otherwise."""
    place = package.folder / ".gitignore"
    if place.exists():
        return []
    place.write_text("".join(f"{name}\n" for name in DROPPINGS), encoding="utf-8")
    print("no .gitignore was released; one is added")
    return [place.name]


# --- the agent --------------------------------------------------------------------------------------------------------


def read_ticket(place: Path) -> dict:
    """The ticket and the change that it asks for."""
    if not place.is_file():
        known = ", ".join(sorted(path.stem for path in TICKETS.glob("*.yaml")))
        raise Failed(
            f"There is no ticket file {place}. Known packages: {known}; or write one and use --ticket."
        )
    return yaml.safe_load(place.read_text(encoding="utf-8"))


@contextmanager
def agent_of(
    kind: str, ticket: dict, package: Package, home: Path
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The agent's table of the configuration, and the environment that the orchestrator runs in."""
    if kind == "command":
        copy = home / "ticket.json"
        copy.write_text(json.dumps(ticket), encoding="utf-8")
        argv = [str(package.python), str(HERE / "package_agent.py"), str(copy)]
        yield f'[agent]\nkind = "command"\ncommand = {json.dumps(argv)}\ntimeout = "5m"\n', package.environ
        return
    scenarios = home / "scenarios"
    scenarios.mkdir()
    (scenarios / "developer.yaml").write_text(yaml.safe_dump(developer_scenario(ticket)), encoding="utf-8")
    with ScriptedModel([scenarios, SHIPPED], log=home / "model.jsonl") as model:
        environ = {
            **package.environ,
            "ANTHROPIC_BASE_URL": model.url(),
            "ANTHROPIC_API_KEY": "scripted-model",
        }
        yield '[agent]\nkind = "claude"\ntimeout = "5m"\n', environ


def developer_scenario(ticket: dict) -> dict:
    """The change as a script for Claude Code: its own tools edit, the package's own tests run, git commits."""
    steps: list[dict] = []
    for edit in ticket["edits"]:
        place = "{cwd}/" + edit["path"]
        change = {"file_path": place, "old_string": edit["old"], "new_string": edit["new"]}
        calls = [{"tool": "Read", "input": {"file_path": place}}, {"tool": "Edit", "input": change}]
        steps.append({"text": f"I change {edit['path']}.", "calls": calls})
    check = " ".join(f"'{word}'" for word in ticket["check"])
    title = ticket["title"].replace("'", "")
    paths = " ".join(f"'{path}'" for path in sorted({edit["path"] for edit in ticket["edits"]}))
    commit = f"git add -- {paths} && git commit --quiet -m '{{work_item}}: {title}' && git log --oneline -1"
    steps += [{"shell": f"{check} && {commit}"}, {"text": "The change is made, tested and committed."}]
    return {"when": "^role: developer$", "steps": steps}


# --- the delivery and its proof ---------------------------------------------------------------------------------------


def watch(app: App, work_item: str) -> TaskStory:
    """Print what happens until the task rests."""
    clock, never, seen = SystemClock(), threading.Event(), 0
    began = clock.boottime()
    while True:
        story = app.operations.story(work_item, events_after=seen)
        for event in story.events:
            seen = event.id
            line = line_of(work_item, event)
            if line is not None:
                print(f"[{clock.boottime() - began:5.1f} s] {line}")
        held = story.task.hold is not None and story.task.hold.value in ("escalated", "blocked", "person")
        if story.task.stage.terminal or held or clock.boottime() - began > PATIENCE_SECONDS:
            print(app.operations.why(work_item).line())
            return app.operations.story(work_item)
        clock.wait(never, POLL_SECONDS)


def prove(app: App, story: TaskStory, git: Git, forge: str, before: float) -> int:
    """Ask git and the ledger, print what they say; the exit code."""
    bare = ["--git-dir", forge]
    print("\nmain, as git tells it")
    print(git.text([*bare, "log", "--graph", "--format=%h %an: %s", "main"]))
    base = story.task.base_sha or "main"
    print(git.text([*bare, "diff", "--stat", base, "main", "--", ".", ":!docs/work-items"]))
    print("\nchecks that ran")
    for job in story.jobs:
        if not job.kind.agent:
            log = app.folders.logs / f"{story.task.work_item}-{job.kind}-{job.round}-{job.id}.log"
            said = last_line(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else "-"
            print(f"  {job.kind:<14} {(job.subject or '')[:12]}  {job.status:<7} {said}")
    baseline = app.operations.baseline(story.task.repo)
    after = baseline.percent if baseline else None
    print(
        f"\ncoverage: {before:.2f} % as released, {f'{after:.2f} %' if after is not None else 'none'} on main now"
    )
    print("\nagent runs")
    for kind, run in story.runs:
        cost = f"{run.usage.cost_usd:.4f} USD" if run.usage.cost_usd is not None else "no cost stated"
        outcome = run.outcome.value if run.outcome else "running"
        print(
            f"  {kind:<10} {run.agent:<8} {outcome:<8} {run.usage.total_tokens:>7} tokens  {cost}  {run.summary[:60]}"
        )
    kinds = Counter(job.kind for job in story.jobs if job.status == "done")
    claims = {
        "the task is done": story.task.stage is Stage.DONE,
        "main is the candidate that was tested": bool(story.candidates)
        and git.text([*bare, "rev-parse", "main"]) == story.candidates[-1].sha,
        "the checks ran on the head and on the candidate": bool(
            kinds[JobKind.CI] and kinds[JobKind.CANDIDATE_CI]
        ),
        "coverage did not fall": after is not None and after >= before - 0.005,
    }
    print()
    for text, true in claims.items():
        print(f"  {'yes' if true else 'NO '}  {text}")
    return 0 if all(claims.values()) else 1


def last_line(text: str) -> str:
    """The last line that says how many tests passed, else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    counted = [line for line in lines if re.search(r"\d+ passed|^Ran \d+ tests", line)]
    return (counted or lines or ["nothing"])[-1].strip("= ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
