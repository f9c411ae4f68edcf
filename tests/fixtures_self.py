"""An installation that delivers itself: a real `orch serve` under a small supervisor, restarted by its own deploys.

The repository holds one program, which serves this very package; a release is a copy of it with its SHA. The oracle is
what the outside saw: starts of the service, runs of the deploy command (each writes a line), `GET /healthz`, and main.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.config.environment import load_settings
from orchestrator.deploy.records import DeployStart
from orchestrator.domain.effect import EffectName
from orchestrator.domain.task import Hold
from orchestrator.effects.deploy import start_of
from orchestrator.operations.reading import TaskStory
from orchestrator.wiring import App, open_readonly
from tests.fixtures_pipeline import PYTHON, Build, Pipeline, alive, config_of
from tests.waiting import PATIENCE_S, wait_until

PROGRAMS = Path(__file__).parent / "integration" / "self_deploy" / "programs"
LONG = 100.0
CONFIG = """[production]
name = "orch"
deploy = {command}
undo = {command}
timeout = "{timeout}"
healthy_times = 2
interval = 0.1
stable_for = {stable}
[production.probe]
url = "http://127.0.0.1:{port}/healthz"
"""


@dataclass
class SelfSite:
    """One installation; everything of it lies in ``line.root``."""

    line: Pipeline
    port: int
    first: str = ""
    _supervisor: "subprocess.Popen[bytes] | None" = field(default=None)

    # --- the installation -------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        return self.line.root

    @property
    def environ(self) -> dict[str, str]:
        return {**self.line.environ, **self.line.variables(), "PYTHONPATH": os.pathsep.join(sys.path)}

    def release(self, sha: str) -> Path:
        return self.root / "releases" / sha

    def install(self) -> None:
        """By hand, once: the first release, and the link to it."""
        self.first = self.line.person.git("rev-parse", "HEAD")
        release = self.release(self.first)
        release.mkdir(parents=True)
        shutil.copy(PROGRAMS / "serve.py", release)
        (release / "BUILD_SHA").write_text(self.first)
        (self.root / "first").write_text(self.first)
        self.switch(self.first)

    def switch(self, sha: str) -> None:
        """A person names the current release."""
        (self.root / "current").unlink(missing_ok=True)
        (self.root / "current").symlink_to(self.release(sha))

    def file(self, title: str = "Change it") -> str:
        """A ticket, filed before the service runs."""
        self.line.register()
        item = self.line.add(title)
        self.line.stop()
        return item

    def start(self) -> None:
        """Let the supervisor keep the service up."""
        argv = [sys.executable, str(PROGRAMS / "supervisor.py"), str(self.root)]
        with (self.root / "supervisor.log").open("ab") as log:
            self._supervisor = subprocess.Popen(argv, env=self.environ, stdout=log, stderr=log)

    def restart(self) -> None:
        """A person ends what runs, or crashes; the supervisor starts the current release."""
        try:
            os.kill(self.serves()[-1]["pid"], signal.SIGKILL)
        except ProcessLookupError:
            return

    def end(self) -> None:
        """End the supervisor and with it the service; the runners are the pipeline's to end."""
        if self._supervisor is not None:
            self._supervisor.terminate()
            self._supervisor.wait(PATIENCE_S)

    # --- what can be seen outside -----------------------------------------------------------------------------

    def serves(self) -> list[dict[str, Any]]:
        return self.line.journal("serves")

    def deliveries(self) -> list[tuple[str, bool]]:
        """Every run of the deploy command: (what it brought, whether as an undo)."""
        return [(run["wanted"], run["undo"]) for run in self.line.journal("deliveries")]

    def healthz(self) -> dict[str, Any]:
        """What the service says of itself; empty where none answers."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=60, trust_env=False)
        except httpx.HTTPError:
            return {}
        return dict(answer.json())

    def log(self) -> str:
        path = self.root / "serve.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- what the ledger says ---------------------------------------------------------------------------------

    def reading(self, ask: Callable[[App], Any]) -> Any:
        with open_readonly(load_settings(self.line.variables()), self.line.environ) as app:
            return ask(app)

    def story(self, item: str) -> TaskStory:
        found: TaskStory = self.reading(lambda app: app.operations.story(item))
        return found

    def why(self, item: str) -> str:
        return str(self.reading(lambda app: app.operations.why(item).line()))

    def effects(self, item: str, name: EffectName) -> list[str]:
        return [effect.state.value for effect in self.story(item).effects if effect.name is name]

    def deploy(self, item: str) -> DeployStart:
        """The start of the production, with its undo."""
        found = [e for e in self.story(item).effects if e.name is EffectName.DEPLOY_INIT]
        start = start_of(found[-1])
        assert start.undo is not None
        return start

    def rest(self, item: str, deadline: float = LONG) -> TaskStory:
        """Wait until the task is done or calls a person."""

        def rests() -> TaskStory | None:
            story = self.story(item)
            ended = story.task.stage.terminal or story.task.hold is Hold.ESCALATED
            return story if ended else None

        try:
            return wait_until(rests, deadline, every=0.1)  # type: ignore[return-value]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.why(item)}\n{self.log()[-3000:]}") from None

    def quiet(self) -> None:
        """No runner lives any more."""
        wait_until(lambda: not any(alive(runner) for runner in self.line.runners()), LONG)


@pytest.fixture
def self_site(pipeline: Build) -> Iterator[Callable[..., SelfSite]]:
    """Makes an installation of itself: ``self_site(report_s=…, health_s=…, stable_s=…)``, seconds."""
    made: list[SelfSite] = []

    def build(*, report_s: float = LONG, health_s: float = LONG, stable_s: float = 0.2) -> SelfSite:
        port = _free_port()
        line = pipeline(files={"serve.py": (PROGRAMS / "serve.py").read_text()}, config=False)
        command = json.dumps([*PYTHON, str(line.root / "deliver.py")])
        shutil.copy(PROGRAMS / "deliver.py", line.root)
        more = CONFIG.format(command=command, timeout=f"{health_s}s", stable=stable_s, port=port)
        toml = config_of(line.root, more).replace('"60s"', '"5m"')  # an agent may have to wait for a delivery
        line.person.commit("Say how it is delivered", {".orchestrator.toml": toml})
        line.settings |= {
            "ORCH_PORT": str(port),
            "ORCH_SELF_REPO": line.repo,
            "ORCH_SELF_DEPLOY_TIMEOUT_S": str(report_s),
            "ORCH_SHUTDOWN_BUDGET_S": "3",
            "ORCH_LOG_LEVEL": "warning",
        }
        site = SelfSite(line, port)
        made.append(site)
        site.install()
        return site

    yield build
    for site in made:
        site.end()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
