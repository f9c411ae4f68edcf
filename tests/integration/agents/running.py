"""A place to run agents for real: a worktree, run folders, and the `command` adapter."""

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.agents.adapters import AGENTS
from orchestrator.agents.agent import AgentTask, Limits, Session
from orchestrator.agents.run_folder import RunFolder
from orchestrator.agents.runs import RunHandle, Runs
from orchestrator.domain.job import RunResult
from orchestrator.domain.stage import Role
from orchestrator.repo_config.records import AgentConfig
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.process import SystemProcesses
from orchestrator.runtime.sweep import marked
from tests.waiting import wait_until

DEADLINE = 60.0


@dataclass
class Bench:
    """Everything a test needs to run one agent after another."""

    root: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    count: int = 0

    def __post_init__(self) -> None:
        self.runs = Runs(SystemProcesses(), SystemClock(), SystemEntropy())
        self.worktree = self.root / "tree"
        self.worktree.mkdir()

    def start(
        self,
        *command: str,
        kind: str = "command",
        prompt: str = "the prompt\n",
        resume: Session | None = None,
        config: AgentConfig | None = None,
        **limits: object,
    ) -> RunHandle:
        self.count += 1
        run_dir = self.root / f"run-{self.count}"
        run_dir.mkdir()
        (run_dir / "prompt.md").write_text(prompt)
        chosen = config or AgentConfig(kind=kind, command=command or None)
        bounds = Limits(**limits)  # type: ignore[arg-type]
        task = AgentTask(
            Role.DEVELOPER,
            self.worktree,
            run_dir,
            run_dir / "brief.json",
            run_dir / "prompt.md",
            SystemEntropy().uuid(),
            chosen,
            bounds,
            resume=resume,
        )
        return self.runs.start(run_dir, AGENTS[kind].launch(task, self.environ), bounds, self.environ)

    def python(self, program: str, **limits: object) -> RunHandle:
        return self.start(sys.executable, "-c", program, **limits)  # type: ignore[arg-type]

    def wait(self, handle: RunHandle) -> RunResult:
        never = threading.Event()
        timer = threading.Timer(DEADLINE, never.set)
        timer.start()
        result = self.runs.wait(handle, never)
        timer.cancel()
        assert result is not None, f"the run did not end within {DEADLINE} s"
        return result

    def output(self, handle: RunHandle) -> str:
        return RunFolder(handle.run_dir).output_log.read_text(errors="replace")

    def left_of(self, handle: RunHandle) -> tuple[int, ...]:
        """Processes of the run that live."""
        launch = RunFolder(handle.run_dir).launch()
        assert launch is not None
        return marked(launch.marker)

    def until_said(self, handle: RunHandle, word: str) -> None:
        log = RunFolder(handle.run_dir).output_log
        wait_until(lambda: log.exists() and word in log.read_text(errors="replace"))
