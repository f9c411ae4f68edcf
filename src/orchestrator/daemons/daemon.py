"""The one loop: wakes on an event, and on a slow timer as a net; backs off after faults; stops when told."""

import threading
from typing import Protocol

import structlog

from orchestrator.observability.never_raise import never_raises
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy

log = structlog.get_logger(__name__)

MAX_BACKOFF_S = 60.0


class Daemon(Protocol):
    """One repeated duty."""

    name: str
    interval_s: float

    def run_once(self) -> dict[str, int]:
        """Do the duty once and say what was done, in counts; a quiet pass returns zeros.

        :raises OrchestratorError: the pass failed; the next one starts afresh.
        """
        ...


class Loop:
    """A thread that runs a daemon until it is stopped."""

    def __init__(
        self,
        daemon: Daemon,
        *,
        clock: Clock,
        entropy: Entropy,
        telemetry: Telemetry,
        wake: threading.Event | None = None,
    ) -> None:
        self._daemon = daemon
        self._clock = clock
        self._entropy = entropy
        self._telemetry = telemetry
        self._wake = wake or threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"orch-{daemon.name}", daemon=True)
        self._last: dict[str, int] = {}

    def start(self) -> None:
        """Begin; the first pass comes at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; the current pass finishes."""
        self._stopping.set()
        self._wake.set()

    def join(self, seconds: float) -> bool:
        """Wait for the end; False where it takes longer."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def snapshot(self) -> dict[str, object]:
        """Whether it runs and what its last pass did."""
        return {"alive": self._thread.is_alive(), "interval_s": self._daemon.interval_s, "last": self._last}

    @never_raises(None, log)
    def _pass(self) -> dict[str, int]:
        """A fault in one pass never ends the duty (law 9)."""
        return self._daemon.run_once()

    def _run(self) -> None:
        faults = 0
        while True:
            self._wake.clear()
            if self._stopping.is_set():  # asked only now: a stop that came before has lost its wake
                return
            done = self._pass()
            if done is None:
                faults += 1
                self._telemetry.count(Metric.DAEMON_FAULTS, self._daemon.name)
            else:
                faults, self._last = 0, done
            pause = self._daemon.interval_s if not faults else min(2.0**faults, MAX_BACKOFF_S)
            self._clock.wait(self._wake, self._entropy.jitter(pause))
