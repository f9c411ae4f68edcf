"""The service as one process after another: each ends itself by SIGKILL at a point where a crash does the most harm.

``python -m orchestrator.demo.lives <parent> <note> <point>`` is one life; an empty point is one that goes on. What must
hold: a life ends with whoever started it, and needs no orderly end, the last one neither. A death counts only where the
life has noted the point and the kernel says SIGKILL: any other end is a fault, and is told as one.
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
from orchestrator.runtime.process import Children, Liveness, ProcessIdentity
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
    """Ends this process the moment a point is reached; ``note`` is where it says so before."""

    def __init__(self, point: str, note: Path) -> None:
        self._point = point
        self._note = note

    def reach(self, name: str, **data: object) -> None:
        """SIGKILL: no handler, no clean-up."""
        if name == self._point:
            self._note.write_text(name, encoding="ascii")
            signal.raise_signal(signal.SIGKILL)


@dataclass(slots=True)
class Lives:
    """Starts the next life when one has ended, in a fixed order of deaths."""

    environ: Mapping[str, str]
    log: Path
    processes: Children
    clock: Clock
    ended: list[str] = field(default_factory=list)  # how each life that is over had ended
    _life: ProcessIdentity | None = None

    def go_on(self) -> str | None:
        """See that somebody lives; says what happened since the last look, if anything did.

        :raises OutsideError: a life ended that was not to, or not there, or not so.
        """
        if self._life is not None:
            if self.processes.liveness(self._life) is not Liveness.DEAD:
                return None
            self.ended.append(self._death(self._life))
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

    def _death(self, life: ProcessIdentity) -> str:
        """How a life has ended, which must be as it was to."""
        point, harm = self._next()
        code = self.processes.exit_of(life)
        noted = self._note.read_text(encoding="ascii") if self._note.exists() else ""
        if not point or noted != point or code != -signal.SIGKILL:
            how = "in a way that is not known" if code is None else f"with {_said(code)}"
            wanted = f", and not by SIGKILL at {point}" if point else ""
            raise OutsideError(f"The service ended {how}{wanted}; its log is {self.log}.")
        self._note.unlink()
        return f"SIGKILL at {point}: {harm}"

    @property
    def _note(self) -> Path:
        return self.log.with_suffix(".point")

    def _next(self) -> tuple[str, str]:
        return POINTS[len(self.ended)] if len(self.ended) < len(POINTS) else ("", "")

    def _begin(self) -> None:
        point, _ = self._next()
        self._note.unlink(missing_ok=True)
        self._life = self.processes.spawn(
            (sys.executable, "-P", "-m", MODULE, str(self.processes.own().pid), str(self._note), point),
            cwd=self.log.parent,
            env={**self.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
            output=self.log,
        )


def main(parent: int, note: Path, point: str) -> None:
    """One life: the service of the installation that the environment names, until its point or its parent's end.

    The parent is named by itself: one that has ended before this line would not be known by asking.
    """
    settings = load_settings({name: value for name, value in os.environ.items() if name.startswith("ORCH_")})
    environ = {n: v for n, v in os.environ.items() if not n.startswith("ORCH_") and n != "PYTHONPATH"}
    outside = Outside(environ, waypoints=KillHere(point, note))
    never = threading.Event()
    with open_app(settings, environ, role="demo", outside=outside) as app, Service(app):
        while os.getppid() == parent:
            app.clock.wait(never, POLL_SECONDS)


def _said(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"code {code}"


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
