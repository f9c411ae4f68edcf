"""A whole installation for tests: a small real repository, a real agent program, real deploys, one service in process.

The oracle is what the outside saw: git's main, the pull request records, and journals that the programs write
themselves (one line for each agent start, run of the checks, build and deploy). What the programs do is read from a
JSON file at every start, so that a test may change it while the service runs.
"""

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.environment import load_settings
from orchestrator.db import evidence, mail, slots
from orchestrator.deploy.records import EXIT_FILE, STARTED_FILE
from orchestrator.domain.event import Event, EventType
from orchestrator.domain.ids import RepoName
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task, Ticket
from orchestrator.main import Service
from orchestrator.operations.reading import TaskStory
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.process import Liveness, ProcessIdentity, SystemProcesses
from orchestrator.wiring import App, Outside, open_app
from tests.fixtures_git import Hand, person_at
from tests.forked import ForkedChild, ForkedProcesses
from tests.postgres_server import PostgresServer, turn_clock
from tests.waiting import PATIENCE_S, wait_until

HERE = Path(__file__).parent / "integration" / "pipeline"
CHILD = HERE / "service_child.py"
PROGRAMS = ("agent", "checks", "build", "deploy", "probe")
PYTHON = [sys.executable, "-I", "-S"]
PATIENCE = "60s"  # of an environment: never reached but where a time-out is what is tested; see ILL
ILL = {"runs": "2" * 40, "exit": 7}  # a deploy that leaves something else behind, and says so at once
NEVER = "1h"  # of every timer: what the tests see move was woken, not found by a net

CONFIG = """default_branch = "main"
[ci]
command = {checks}
timeout = "60s"
[agent]
kind = "command"
command = {agent}
timeout = "60s"
stall = "60s"
"""


class TestClock(SystemClock):
    """The machine's clock, whose calendar and whose time since boot a test may move on."""

    up = 0.0

    def __init__(self) -> None:
        self._ahead = timedelta()
        self.moved: Callable[[], object] = lambda: None  # told when the calendar was moved

    @property
    def ahead(self) -> timedelta:
        """How far the calendar has been moved on."""
        return self._ahead

    @ahead.setter
    def ahead(self, value: timedelta) -> None:
        self._ahead = value
        self.moved()

    def boottime(self) -> float:
        return super().boottime() + self.up

    def utc(self) -> datetime:
        return super().utc() + self.ahead


class Points:
    """Named points of a transition: a test hangs a step of its own on one of them, once."""

    def __init__(self) -> None:
        self._hooks: dict[str, tuple[Callable[[], object], Mapping[str, object]]] = {}

    def on(self, name: str, hook: Callable[[], object], **data: object) -> None:
        """Call ``hook`` when the point is next reached with this data."""
        self._hooks[name] = (hook, data)

    def reach(self, name: str, **data: object) -> None:
        hook, wanted = self._hooks.get(name, (None, {}))
        if hook is not None and wanted.items() <= data.items():
            del self._hooks[name]
            hook()


@dataclass
class Pipeline:
    """One installation; everything outside it lies in ``root``."""

    root: Path
    environ: dict[str, str]
    person: Hand
    points: Points = field(default_factory=Points)
    clock: TestClock = field(default_factory=TestClock)
    processes: SystemProcesses = field(default_factory=ForkedProcesses)
    settings: dict[str, str] = field(default_factory=dict)
    repo: str = "sample"
    database_url: str | None = None  # of PostgreSQL
    _open: ExitStack = field(default_factory=ExitStack)
    _children: list[ForkedChild] = field(default_factory=list)
    _app: App | None = None
    _service: Service | None = None

    def __post_init__(self) -> None:
        self.clock.moved = self._move_the_server_s_clock

    # --- the installation -------------------------------------------------------------------------------------

    @property
    def home(self) -> Path:
        return self.root / "state"

    @property
    def app(self) -> App:
        assert self._app is not None
        return self._app

    @property
    def forge(self) -> Hand:
        return Hand(self.home / "forges" / f"{self.repo}.git")

    def variables(self) -> dict[str, str]:
        timers = ("REAPER", "RECONCILER", "OUTBOX", "DRIFT", "INBOX")
        known = {f"ORCH_{name}_INTERVAL_S": NEVER for name in timers} | {"ORCH_QUEUE_INTERVAL_S": "0.5"}
        at = {} if self.database_url is None else {"ORCH_DATABASE_URL": self.database_url}
        return {"ORCH_HOME": str(self.home), "ORCH_LOG_LEVEL": "error", **at, **known, **self.settings}

    def open(self) -> App:
        """Open the state folder; nothing runs yet."""
        outside = Outside(self.environ, clock=self.clock, processes=self.processes, waypoints=self.points)
        settings = load_settings(self.variables())
        self._app = self._open.enter_context(open_app(settings, self.environ, role="run", outside=outside))
        self._move_the_server_s_clock()
        return self._app

    def _move_the_server_s_clock(self) -> None:
        """A server judges time by its own clock; in these tests it keeps the one of the machine that the service is
        on."""
        if self.database_url is not None and self._app is not None:
            turn_clock(self.database_url, ahead_s=self.clock.ahead.total_seconds())

    def start(self) -> "Pipeline":
        """Open, register the repository, and run the service."""
        app = self._app or self.open()
        app.register_repository(self.person.folder, name=self.repo, prefix="S")
        self._service = self._open.enter_context(Service(app))
        return self

    def stop(self) -> None:
        """Stop as SIGTERM does: agents go on."""
        self._open.close()
        self._app = self._service = None

    def restart(self) -> "Pipeline":
        self.stop()
        return self.start()

    def child(self, point: str, count: int = 1) -> ForkedChild:
        """The service as a process that kills itself at a waypoint."""
        return self._child(self.home, point, count, "run")

    def worker(self, name: str = "worker", point: str = "never", count: int = 1) -> ForkedChild:
        """A worker as such a process, with a home of its own."""
        home = self.root / name
        home.mkdir(exist_ok=True)
        return self._child(home, point, count, "worker", ORCH_MAX_AGENTS="2")

    def _child(self, home: Path, point: str, count: int, role: str, **more: str) -> ForkedChild:
        env = {**self.environ, **self.variables(), **more, "ORCH_HOME": str(home)}
        argv = [sys.executable, str(CHILD), str(home), point, str(count), role]
        log = self.root / f"{home.name}-child.log"
        self._children.append(ForkedChild(argv, cwd=self.root, env=env, output=log))
        return self._children[-1]

    @property
    def children(self) -> Sequence[ForkedChild]:
        return self._children

    def register(self) -> None:
        """Make the state folder with the repository in it, and let go of it."""
        self.open().register_repository(self.person.folder, name=self.repo, prefix="S")

    # --- what the outside does --------------------------------------------------------------------------------

    def agent(self, *entries: Mapping[str, object]) -> None:
        """What the agent does: the first entry that fits role, work_item, title, round and attempt."""
        _replace(self.root / "agent.json", list(entries))

    def checks(self, **do: object) -> None:
        _replace(self.root / "checks.json", do)

    def deploys(self, **environments: Mapping[str, object]) -> None:
        """What a deploy does, by environment, or an ``undo``: ``runs`` another version, ``exit`` code, ``hang``.

        See ``ILL``."""
        _replace(self.root / "deploy.json", environments)

    def push_to_main(self, files: dict[str, str], message: str = "By somebody else") -> str:
        """A person pushes to the forge's main, past the orchestrator."""
        self.person.git("pull", "-q", "--no-edit", "--no-rebase", str(self.forge.folder), "main")
        sha = self.person.commit(message, files)
        self.person.git("push", "-q", str(self.forge.folder), "HEAD:main")
        return sha

    def push_to_branch(self, branch: str, files: dict[str, str]) -> str:
        """A person pushes to a task's branch."""
        self.person.git("fetch", "-q", str(self.forge.folder), branch)
        self.person.git("checkout", "-q", "--detach", "FETCH_HEAD")
        sha = self.person.commit("By a stranger", files)
        self.person.git("push", "-q", str(self.forge.folder), f"HEAD:{branch}")
        self.person.git("checkout", "-q", "main")
        return sha

    # --- tickets ----------------------------------------------------------------------------------------------

    def add(self, title: str = "Change it", **ticket: Any) -> str:
        ticket.setdefault("labels", ("fast",))
        repo = ticket.pop("repo", self.repo)
        return self.app.operations.add_task(repo, Ticket(title, **ticket)).work_item

    def task(self, item: str) -> Task:
        return self.app.operations.task(item)

    def story(self, item: str) -> TaskStory:
        return self.app.operations.story(item)

    def why(self, item: str) -> str:
        return self.app.operations.why(item).line()

    def wait_for(self, item: str, predicate: Callable[[Task], object], deadline: float = PATIENCE_S) -> Task:
        """The task as soon as it is as wanted; fails with its whole story."""
        try:
            return wait_until(lambda: (t := self.task(item)) and predicate(t) and t, deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.why(item)}\n{self.told(item)}") from None

    def stage(self, item: str, stage: Stage, deadline: float = PATIENCE_S) -> Task:
        return self.wait_for(item, lambda task: task.stage is stage, deadline)

    def done(self, item: str, deadline: float = PATIENCE_S) -> Task:
        """Wait until it is done; what stops it for a person fails at once."""
        task = self.wait_for(item, lambda t: t.stage.terminal or t.hold is Hold.ESCALATED, deadline)
        assert task.stage is Stage.DONE, f"{self.why(item)}\n{self.told(item)}"
        return task

    def held(self, item: str, hold: Hold, deadline: float = PATIENCE_S) -> Task:
        return self.wait_for(item, lambda task: task.hold is hold, deadline)

    def started(self, item: str, role: str, deadline: float = PATIENCE_S) -> dict[str, Any]:
        """The agent has been started in a role."""
        return wait_until(lambda: next((r for r in self.agents(item) if r["role"] == role), None), deadline)

    def retry(self, item: str) -> None:
        """A person says "go on", and it does."""
        assert self.outcome(self.app.operations.retry(item, person="Ann", reason="go on")) == "applied"

    def outcome(self, receipt: Any) -> str:
        return wait_until(lambda: self.app.operations.outcome(receipt))

    # --- what can be seen outside -----------------------------------------------------------------------------

    @property
    def main(self) -> str:
        return self.forge.git("rev-parse", "main")

    def merges(self) -> list[str]:
        """The merges on main, oldest first, as ``sha``."""
        return self.forge.git("log", "--first-parent", "--merges", "--reverse", "--format=%H", "main").split()

    def show(self, path: str, at: str = "main") -> str:
        return self.forge.git("show", f"{at}:{path}")

    def pulls(self) -> list[dict[str, Any]]:
        folder = self.forge.folder / "orch" / "pulls"
        return [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]

    def journal(self, name: str) -> list[dict[str, Any]]:
        path = self.root / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def agents(self, item: str | None = None) -> list[dict[str, Any]]:
        return [run for run in self.journal("agents") if item in (None, run["item"])]

    def roles(self, item: str) -> list[str]:
        return [run["role"] for run in self.agents(item)]

    def deployed(self, environment: str) -> list[dict[str, Any]]:
        return [start for start in self.journal("deploys") if start["env"] == environment]

    def running(self, environment: str) -> str:
        return (self.root / f"running-{environment}").read_text()

    def exits(self) -> int:
        return len(list(self.home.glob(f"deploys/**/{EXIT_FILE}")))

    def helpers(self) -> list[int]:
        path = self.root / "helpers"
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def runners(self) -> list[ProcessIdentity]:
        """The runner of every start that a child has claimed, as its claim names it."""
        found = []
        for claim in self.home.glob(f"deploys/*/*/{STARTED_FILE}"):
            try:
                named = json.loads(claim.read_text())["runner"]
            except (ValueError, KeyError):
                continue
            if named is not None:
                found.append(ProcessIdentity(**named))
        return found

    # --- what the ledger says ---------------------------------------------------------------------------------

    def events(self, item: str) -> tuple[Event, ...]:
        return self.story(item).events

    def told(self, item: str) -> str:
        return "\n".join(
            f"{e.at[14:23]} {e.type} {e.stage}->{e.to_stage or ''} {dict(e.data)}"[:400]
            for e in self.events(item)[-30:]
        )

    def moves(self, item: str) -> list[tuple[str, str, str]]:
        """Every change of stage: from, to, kind."""
        return [
            (str(e.stage), str(e.to_stage), str(e.data["kind"]))
            for e in self.events(item)
            if e.type is EventType.STAGE_CHANGED
        ]

    def slots(self) -> list[str]:
        with self.app.database.read() as tx:
            return [slot.name for slot in slots.all_slots(tx)]

    def baseline(self) -> float | None:
        found = self.app.operations.baseline(self.repo)
        return found.percent if found else None

    def frozen(self) -> bool:
        with self.app.database.read() as tx:
            return slots.frozen(tx, RepoName(self.repo)) is not None

    def check(self, item: str, kind: JobKind) -> evidence.CheckResult | None:
        with self.app.database.read() as tx:
            return evidence.check_result(tx, self.task(item), kind)

    def alerts(self) -> list[str]:
        self.app.outbox.run_once()
        return [str(alert["text"]) for alert in self.app.notifier.alerts()]

    def unanswered(self, item: str) -> list[mail.WaitingSignal]:
        with self.app.database.read() as tx:
            return mail.waiting_signals(tx, self.task(item).id)


Build = Callable[..., Pipeline]


@pytest.fixture
def pipeline(request: pytest.FixtureRequest, tmp_path: Path, database_kind: str) -> Iterator[Build]:
    """Makes an installation: ``pipeline(staging=True, …)``; ``more`` is added to ``.orchestrator.toml``."""
    server: PostgresServer | None = None
    if database_kind == "postgres":
        server = request.getfixturevalue("postgres_server")
    made: list[Pipeline] = []

    def build(
        more: str = "", *, files: dict[str, str] | None = None, config: bool = True, **parts: Any
    ) -> Pipeline:
        root = tmp_path if not made else tmp_path / f"more-{len(made)}"
        new = pipeline_at(root, more, files=files, config=config, **parts)
        if server is not None:
            new.database_url = server.new_database()
        made.append(new)
        return new

    yield build
    for each in made:
        try:
            each.stop()
        finally:
            _end_everything(each)
            if server is not None:
                server.drop(each.database_url)


def pipeline_at(
    root: Path,
    more: str = "",
    *,
    files: dict[str, str] | None = None,
    config: bool = True,
    coverage: bool = False,
    image: bool = False,
    staging: bool = False,
    production: bool = False,
    patience: str = PATIENCE,
    settings: dict[str, str] | None = None,
) -> Pipeline:
    """An installation below ``root`` whose repository is configured with the named parts."""
    root.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        shutil.copy(HERE / "programs" / f"{program}.py", root)
    for name, value in (("agent", []), ("checks", {}), ("deploy", {})):
        _replace(root / f"{name}.json", value)
    toml = config_of(
        root,
        more,
        patience=patience,
        coverage=coverage,
        image=image,
        staging=staging,
        production=production,
    )
    content = {
        "src/app.py": "ONE = 1\n" * 100,
        **(files or {}),
        **({".orchestrator.toml": toml} if config else {}),
    }
    environ = {"PATH": os.environ["PATH"], "HOME": str(root / "home"), "LANG": "C.UTF-8"}
    return Pipeline(root, environ, person_at(root / "person", content), settings=settings or {})


def config_of(
    root: Path, more: str = "", *, head: str = CONFIG, patience: str = PATIENCE, **parts: bool
) -> str:
    """A ``.orchestrator.toml`` for the programs in ``root``; ``patience``: the time-out of the environments."""
    text = head.format(checks=_argv(root, "checks"), agent=_argv(root, "agent"))
    if parts.get("coverage"):
        text += '[coverage]\nreport = "lcov.info"\nformat = "lcov"\n'
    if parts.get("image"):
        text += f'[image]\ncommand = {_argv(root, "build")}\nartifact = "dist"\n'
    for name in ("staging", "production"):
        if parts.get(name):
            text += (
                f'[{name}]\nname = "{name}"\ndeploy = {_argv(root, "deploy")}\nundo = {_argv(root, "deploy")}\n'
                f'timeout = "{patience}"\nhealthy_times = 2\ninterval = 0.05\nstable_for = 0.1\n'
                f"[{name}.probe]\ncommand = {_argv(root, 'probe', name)}\n"
            )
    return text + more


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def block() -> tuple[threading.Event, threading.Event, Callable[[], object]]:
    """A hook that stops a transition at its point: (it is there, let it go on, the hook)."""
    there, go = threading.Event(), threading.Event()

    def hook() -> None:
        there.set()
        assert go.wait(PATIENCE_S)

    return there, go, hook


def alive(runner: ProcessIdentity) -> bool:
    """Whether this very process runs (a zombie does not)."""
    return SystemProcesses().liveness(runner) is Liveness.ALIVE and not gone(runner.pid)


def _argv(root: Path, program: str, *words: str) -> str:
    return json.dumps([*PYTHON, str(root / f"{program}.py"), *words])


def _replace(path: Path, value: object) -> None:
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(value))
    aside.replace(path)


def _end_everything(pipeline: Pipeline) -> None:
    """End what a test has left running: by the ids that the programs wrote down themselves.

    Runners first: one that guards a deploy of ourselves would wait for its report, and then undo it."""
    for child in pipeline.children:
        child.kill()
        child.wait()
    for runner in pipeline.runners():
        if alive(runner):
            os.kill(runner.pid, signal.SIGKILL)
    known = {
        run["pid"] for name in ("agents", "checks", "builds", "deploys") for run in pipeline.journal(name)
    }
    for pid in known | set(pipeline.helpers()):
        command = Path(f"/proc/{pid}/cmdline")
        if not gone(pid) and (
            str(pipeline.root) in command.read_text() or "os.setsid" in command.read_text()
        ):
            os.kill(pid, signal.SIGKILL)
