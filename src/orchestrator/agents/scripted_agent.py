"""The demo's agent as an adapter: runs :mod:`orchestrator.agents.scripted`, which is a small program and no AI.

``command`` in its configuration is the script: a YAML file, absolute or relative to the worktree; without one
every role does the least that is right.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import orchestrator
from orchestrator.agents.agent import AgentTask, Event, Launch, RunEnd
from orchestrator.agents.command import CommandAgent
from orchestrator.domain.job import RunResult
from orchestrator.repo_config.records import Argv
from orchestrator.runtime.process import Processes

PROGRAM = "orchestrator.agents.scripted"


class ScriptedAgent:
    """A deterministic program that does what a script says."""

    name = "scripted"
    capabilities = CommandAgent.capabilities

    def __init__(self) -> None:
        self._command = CommandAgent()

    def probe(self, processes: Processes, environ: Mapping[str, str], command: Argv | None) -> str | None:
        """It is part of this package."""
        return f"{orchestrator.__version__} (scripted, no AI)"

    def launch(self, task: AgentTask, environ: Mapping[str, str]) -> Launch:
        """This Python, this package, the brief and the script."""
        plain = self._command.launch(task, environ)
        argv = [sys.executable, "-P", "-m", PROGRAM, "--brief", str(task.brief_file)]
        if task.config.command:
            argv += ["--script", str(task.worktree / task.config.command[0])]
        return Launch(
            agent=self.name,
            argv=tuple(argv),
            env={**plain.env, "PYTHONPATH": package_path(), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=plain.cwd,
            secrets=plain.secrets,
            artifacts=plain.artifacts,
            warnings=plain.warnings,
        )

    def parse(self, line: bytes) -> tuple[Event, ...]:
        """Every line is words."""
        return self._command.parse(line)

    def finish(self, end: RunEnd) -> RunResult:
        """As for any program."""
        return self._command.finish(end)


def package_path() -> str:
    """The folder from which this very package is imported."""
    return str(Path(orchestrator.__file__).resolve().parent.parent)
