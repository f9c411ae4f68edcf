"""Watches runs that were adopted, all with one thread: a dead process may have left thousands.

What must hold: every run is looked at and kept adopted, however many there are (law 8), and looking takes a small part
of the time. One that has ended, or is to be ended, is handed on; so many at a time that the service stays at work, the
others wait their turn. One whose folder cannot be used is dropped and told; the reaper comes back to it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.job import AgentRun, Job
from orchestrator.launcher import Flight, Launcher
from orchestrator.observability.never_raise import never_raises
from orchestrator.runtime.clock import Clock

log = structlog.get_logger(__name__)

POLL_S = 0.2
REST = 9  # times as long as a pass took: nine parts of ten are others' …
SLICE_S = 0.02  # of looking; then others have as long
MOST_REST_S = 5.0  # … but with so many runs that their adoption has to be renewed before
AT_ONCE = 16  # handed on and not done yet


@dataclass(eq=False, slots=True)
class Watched:
    """A run of a job of ours; ``flight`` is None until its folder has been looked into."""

    job: Job
    run: AgentRun
    flight: Flight | None = None
    stop: threading.Event = field(default_factory=threading.Event)  # set: it is to be ended
    end: Callable[[str], None] = lambda reason: None  # what is registered to end it
    known: bool = False  # it has been looked at
    kept_at: float | None = None  # when it was last kept adopted


class RunWatch:
    """Of one process."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        clock: Clock,
        stopping: threading.Event,
        wanted: Callable[[Job], bool],
        hand_on: Callable[[Watched, Flight], threading.Thread | None],
        drop: Callable[[Watched], None],
    ) -> None:
        """``wanted``: whether the job is still this process's. ``hand_on`` starts a thread that sees the run to its
        end. ``stopping`` ends the watch; agents go on."""
        self._launcher = launcher
        self._clock = clock
        self._stopping = stopping
        self._wanted = wanted
        self._hand_on = hand_on
        self._drop = drop
        self._lock = threading.Lock()
        self._watched: dict[Watched, None] = {}  # in the order in which they came
        self._busy: list[threading.Thread] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()

    def add(self, watched: Watched) -> None:
        """Watch one more."""
        with self._lock:
            self._watched[watched] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="orch-run-watch", daemon=True)
                self._thread.start()
        self._changed.set()

    def wake(self) -> None:
        """Something is to be ended, or everything."""
        self._changed.set()

    def threads(self) -> list[threading.Thread]:
        """What is to be waited for at the end."""
        with self._lock:
            return [self._thread] if self._thread is not None else []

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.clear()
            began = self._clock.boottime()
            with self._lock:
                every = list(self._watched)
            since = began
            for each in every:
                if self._stopping.is_set():
                    return
                if (over := self._look(each)) is None:
                    self._drop(each)
                if over is not False:
                    with self._lock:
                        del self._watched[each]
                if (spent := self._clock.boottime() - since) > SLICE_S:  # others want to run, too
                    self._clock.wait(self._stopping, spent)
                    since = self._clock.boottime()
            rest = REST * (self._clock.boottime() - began)
            self._clock.wait(self._changed, max(POLL_S, min(rest, MOST_REST_S)))

    @never_raises(None, log)
    def _look(self, each: Watched) -> bool | None:
        """Whether there is nothing more to be watched; None where it cannot be told."""
        try:
            if each.flight is None:
                each.flight = self._launcher.adopt(each.job, each.run)
            return self._seen(each, each.flight)
        except OutsideError as error:
            log.error("run not watched; the reaper looks at it again", job=each.job.id, reason=str(error))
            return None

    def _seen(self, each: Watched, flight: Flight) -> bool:
        if not each.known:
            each.known = True
            if not self._wanted(each.job):  # whoever cancelled it earlier found nobody to be told
                each.stop.set()
        if each.stop.is_set() or self._launcher.has_ended(flight):
            return self._handed_on(each, flight)
        each.kept_at = self._launcher.keep(flight, each.kept_at)
        return False

    def _handed_on(self, each: Watched, flight: Flight) -> bool:
        self._busy = [thread for thread in self._busy if thread.is_alive()]
        if len(self._busy) >= AT_ONCE:
            return False
        thread = self._hand_on(each, flight)
        if thread is not None:
            self._busy.append(thread)
        return True
