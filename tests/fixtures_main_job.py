"""The main job from outside: a real service in a real repository, the real Claude Code, the scripted model, and an
orchestrator in this process that delivers a ticket on it.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import yaml

from orchestrator.agents.claude import bundled
from orchestrator.agents.run_folder import RunFolder
from orchestrator.config import load_settings
from orchestrator.demo.sample_repository import Environment, write_sample
from orchestrator.demo.services import Answer, ask, stop
from orchestrator.domain.job import JobKind
from orchestrator.domain.task import Ticket
from orchestrator.main import Service
from orchestrator.operations.reading import TaskStory
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses
from orchestrator.runtime.sweep import marked, sweep
from orchestrator.scripted_model.scenario import SHIPPED
from orchestrator.scripted_model.server import ScriptedModel
from orchestrator.wiring import open_app
from tests.postgres_server import dump
from tests.waiting import wait_until

REPO, PREFIX = "greeter", "MAIN"
CANARY = "sk-ant-canary-6f1d0c52e9b84a37"  # the agent's key: it must turn up in no file and in no log
DEADLINE = 300.0  # several runs of a large program, one after the other
SETTINGS = {"ORCH_LOG_LEVEL": "debug", "ORCH_QUEUE_INTERVAL_S": "1"}
SCENARIOS = Path(__file__).parent / "integration" / "main_job" / "scenarios"


class MainJob:
    """One installation with one repository: file tickets, wait for their end, look from outside."""

    def __init__(
        self,
        home: Path,
        scenarios: Sequence[Path] = (),
        environ: Mapping[str, str] | None = None,
        database_url: str | None = None,
    ) -> None:
        """``database_url``: of PostgreSQL."""
        self.home, self.state, self.model_log = home, home / "state", home / "model.jsonl"
        self.processes, self.clock = SystemProcesses(), SystemClock()
        self.git = Git(self.processes, name="A. Person", email="person@example.org")
        self.model = ScriptedModel([*scenarios, SCENARIOS, SHIPPED], log=self.model_log)
        self._more = dict(environ or {})
        self._database_url = database_url
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        command = bundled()
        assert command is not None, "claude-agent-sdk is not installed: ./dev installs it"
        self._stack.enter_context(self.model)
        agent = (
            f'[agent]\nkind = "claude"\ncommand = [{json.dumps(command)}]\nmodel = "claude-sonnet-4-5"\n'
            'timeout = "5m"\nstall = "3m"'
        )
        self.sample = write_sample(self.home, self.git, python=sys.executable, agent=agent)
        self._stack.callback(self._end_services)
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")},
            "ANTHROPIC_API_KEY": CANARY,
            "ANTHROPIC_BASE_URL": self.model.url(),
            "ORCH_CANARY": CANARY,
            **self._more,
        }
        at = {} if self._database_url is None else {"ORCH_DATABASE_URL": self._database_url}
        settings = load_settings({"ORCH_HOME": str(self.state), **at, **SETTINGS})
        self.app = self._stack.enter_context(open_app(settings, environ, role="test"))
        self._stack.callback(self._sweep)
        self.forge = self.app.register_repository(self.sample.repository, name=REPO, prefix=PREFIX).location
        self._stack.enter_context(Service(self.app))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def deliver(self, title: str, body: str = "") -> TaskStory:
        """File a ticket and wait until it is done or nothing goes on by itself."""
        work_item = self.app.operations.add_task(REPO, Ticket(title=title, body=body)).work_item

        def rests() -> bool:
            task = self.app.operations.story(work_item).task
            return task.stage.terminal or (task.hold is not None and task.hold.value == "escalated")

        wait_until(rests, DEADLINE, every=0.1)
        story = self.app.operations.story(work_item)
        self.said = self.app.operations.why(work_item).line()
        return story

    # --- what those outside say -----------------------------------------------------------------------------------

    def main(self) -> str:
        """Where main is at the forge."""
        return self.git.text(["--git-dir", self.forge, "rev-parse", "main"])

    def file_on_main(self, path: str) -> str:
        return self.git.text(["--git-dir", self.forge, "show", f"main:{path}"])

    def ask(self, environment: Environment, path: str | None = None) -> Answer:
        """One request to a running service."""
        answer = ask(environment, self.app.http)
        if path is None:
            return answer
        url = environment.url.replace("/version", path)
        got = self.app.http.request("GET", url, timeout_s=60.0, limit=65536)
        return Answer(url, None, got.body.decode())

    def sessions(self) -> list[dict[str, object]]:
        """The requests that the model's log holds."""
        return [json.loads(line) for line in self.model_log.read_text().splitlines()]

    def left_running(self, story: TaskStory) -> list[int]:
        """Processes that carry the mark of one of the task's runs."""
        return [pid for _, run in story.runs for pid in marked(_marker(Path(run.run_dir)))]

    def holding(self, secret: str) -> list[Path]:
        """Stored files in which a secret can be read; what a server stores is written out first."""
        if self._database_url is not None:
            dump(self._database_url, self.home / "database.sql")
        files = [path for path in self.home.rglob("*") if path.is_file() and not path.is_symlink()]
        return [path for path in files if secret.encode() in path.read_bytes()]

    # --- the end ----------------------------------------------------------------------------------------------------

    def _end_services(self) -> None:
        for environment in (self.sample.staging, self.sample.production):
            stop(environment, self.processes, self.clock)

    def _sweep(self) -> None:
        for place in self.app.folders.runs.glob("*"):
            if RunFolder(place).launch() is not None:
                sweep(_marker(place))


@pytest.fixture
def main_job_url(request: pytest.FixtureRequest, database_kind: str) -> str | None:
    """Of the database, where that is a server's."""
    return request.getfixturevalue("empty_postgres_url") if database_kind == "postgres" else None


@pytest.fixture
def main_job(tmp_path: Path, main_job_url: str | None) -> Iterator[MainJob]:
    """The installation with the shipped scenarios and those beside the tests."""
    with MainJob(tmp_path, database_url=main_job_url) as job:
        yield job


def shipped_with(folder: Path, role: JobKind, *steps: Mapping[str, object], at: int = 0) -> Path:
    """A folder with the scenario of a role as it is played here, and further steps in it from ``at`` on."""
    source = next(place for place in (SCENARIOS / f"{role}.yaml", SHIPPED / f"{role}.yaml") if place.exists())
    scenario = yaml.safe_load(source.read_text())
    scenario["steps"][at:at] = steps
    folder.mkdir()
    (folder / f"{role}.yaml").write_text(yaml.safe_dump(scenario))
    return folder


def _marker(run_dir: Path) -> str:
    launch = RunFolder(run_dir).launch()
    assert launch is not None, f"{run_dir} has no launch record"
    return launch.marker
