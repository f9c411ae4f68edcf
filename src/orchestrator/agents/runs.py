"""Runs of agents, as the orchestrator sees them: start, adopt, wait, stop, revoke, and the result (law 8).

What must hold: one run folder starts one agent at most; whoever creates ``STARTED`` first decides. A run is judged over
only when its exit record is there, or when its supervisor is provably dead and everything it left has been ended.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.agents.agent import Launch, Limits, Session
from orchestrator.domain.job import RunResult, Usage
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.process import ProcessIdentity, Processes


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A run that was started or adopted."""

    run_dir: Path
    supervisor: ProcessIdentity | None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running agent is doing: for people; written about once a second."""

    at: str
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    tool: str | None = None
    text: str = ""
    log_bytes: int = 0


class Runs:
    """All agent runs of this process and of the processes before it."""

    def __init__(self, processes: Processes, clock: Clock, entropy: Entropy, environ: Mapping[str, str]) -> None:
        self._processes, self._clock, self._entropy, self._environ = processes, clock, entropy, environ

    def start(self, run_dir: Path, launch: Launch, limits: Limits) -> RunHandle:
        """Write ``launch.json`` and start the run's supervisor, detached."""
        raise NotImplementedError

    def adopt(self, run_dir: Path) -> RunHandle | None:
        """Take over a run that another process started; None where nothing lives there any more."""
        raise NotImplementedError

    def result(self, run_dir: Path) -> RunResult | None:
        """How the run ended; None while it runs or may still start."""
        raise NotImplementedError

    def wait(
        self, handle: RunHandle, stop: threading.Event, on_progress: Callable[[Progress], None] | None = None
    ) -> RunResult | None:
        """Block until the run has ended, keeping it adopted; None when ``stop`` was set first (the run goes on)."""
        raise NotImplementedError

    def stop(self, handle: RunHandle, reason: str) -> None:
        """Ask the supervisor to end the run; ``wait`` or ``result`` tells when it has."""
        raise NotImplementedError

    def revoke(self, run_dir: Path) -> bool:
        """Make sure that nothing can start in this folder any more; False where it has started."""
        raise NotImplementedError

    def touch(self, handle: RunHandle) -> None:
        """Say that the run is still wanted (adoption)."""
        raise NotImplementedError

    def session_of(self, run_dir: Path) -> Session | None:
        """The conversation an ended run left, to be resumed; None where it left none."""
        raise NotImplementedError
