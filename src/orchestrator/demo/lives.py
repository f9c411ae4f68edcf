"""The service as one process after another: each ends itself by SIGKILL at a point where a crash does the most harm.

``python -m orchestrator.demo.lives <point>`` is one life; an empty point is one that goes on. What must hold: a life
ends with whoever started it, and needs no orderly end, the last one neither.
"""

import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orchestrator
from orchestrator.config import load_settings
from orchestrator.domain.errors import OutsideError
from orchestrator.main import Service
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.process import Liveness, Processes, ProcessIdentity
from orchestrator.wiring import Outside, open_app

MODULE = "orchestrator.demo.lives"
PACKAGE_ROOT = Path(orchestrator.__file__).parent.parent
POLL_SECONDS = 0.1
END_SECONDS = 10.0
POINTS: tuple[tuple[str, str], ...] = (
    ("merge_pr.after_act", "main had moved, and the ledger did not know it yet"),
    ("deploy_init.after_act", "production had been started, and the ledger did not know it yet"),
)


class KillHere:
    """Ends this process the moment a point is reached."""

    def __init__(self, point: str) -> None:
        self._point = point

    def reach(self, name: str, **data: object) -> None:
        """SIGKILL: no handler, no clean-up, no last word."""
        if name == self._point:
            signal.raise_signal(signal.SIGKILL)


@dataclass(slots=True)
class Lives:
    """Starts the next life when one has ended, in a fixed order of deaths."""

    environ: Mapping[str, str]
    log: Path
    processes: Processes
    clock: Clock
    ended: list[str] = field(default_factory=list)  # how each life that is over had ended
    _life: ProcessIdentity | None = None

    def go_on(self) -> str | None:
        """See that somebody lives; says what happened since the last look, if anything did.

        :raises OutsideError: a life ended that was not to.
        """
        if self._life is not None and self.processes.liveness(self._life) is not Liveness.DEAD:
            return None
        if self._life is not None:
            if len(self.ended) == len(POINTS):
                raise OutsideError(f"The service ended by itself; its log is {self.log}.")
            point, harm = POINTS[len(self.ended)]
            self.ended.append(f"SIGKILL at {point}: {harm}")
        self._begin()
        return f"{self.ended[-1]}. It starts again." if self.ended else None

    def end(self) -> None:
        """End the last life as the others have ended.

        :raises OutsideError: it does not end.
        """
        if self._life is None:
            return
        self.processes.signal_group(self._life, signal.SIGKILL)
        never, deadline = threading.Event(), self.clock.boottime() + END_SECONDS
        while self.processes.liveness(self._life) is not Liveness.DEAD:
            if self.clock.boottime() > deadline:
                raise OutsideError(f"Process {self._life.pid} does not end.")
            self.clock.wait(never, POLL_SECONDS)
        self._life = None

    def _begin(self) -> None:
        point = POINTS[len(self.ended)][0] if len(self.ended) < len(POINTS) else ""
        self._life = self.processes.spawn(
            (sys.executable, "-P", "-m", MODULE, point),
            cwd=self.log.parent,
            env={**self.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
            output=self.log,
        )


def main(point: str) -> None:
    """One life: the service of the installation that the environment names, until its point or its parent's end."""
    parent = os.getppid()
    settings = load_settings({name: value for name, value in os.environ.items() if name.startswith("ORCH_")})
    environ = {n: v for n, v in os.environ.items() if not n.startswith("ORCH_") and n != "PYTHONPATH"}
    outside = Outside(environ, waypoints=KillHere(point))
    never = threading.Event()
    with open_app(settings, environ, role="demo", outside=outside) as app, Service(app):
        while os.getppid() == parent:
            app.clock.wait(never, POLL_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
