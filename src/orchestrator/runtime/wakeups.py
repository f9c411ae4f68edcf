"""Signals inside one process: whom to look at soon, that the queue has work, and what to end. Lossy by design: a slow
timer is the net under every one of them."""

import threading
from collections.abc import Callable, Iterable

from orchestrator.domain.lease import Actor


class Wakeups:
    """Connects those who write with those who wait; everyone may call everything from any thread."""

    def __init__(self) -> None:
        self.queue = threading.Event()  # the job queue may have something
        self.outbox = threading.Event()  # a message may be waiting
        self.alerts = threading.Event()  # an alert may be waiting for a further channel
        self.inbox = threading.Event()  # something has arrived, or its task may have become free
        self.stopping = threading.Event()  # the service ends: nobody waits for anything outside any more
        self._lock = threading.Lock()
        self._on_tasks: Callable[[Iterable[int], Actor], None] | None = None
        self._stops: dict[int, Callable[[str], None]] = {}

    def on_tasks(self, listener: Callable[[Iterable[int], Actor], None]) -> None:
        """Who is told of tasks to look at."""
        self._on_tasks = listener

    def tasks(self, ids: Iterable[int], owner: Actor = Actor.RECONCILER) -> None:
        """These tasks should be looked at soon, on behalf of ``owner``."""
        if self._on_tasks is not None:
            self._on_tasks(ids, owner)

    def everything(self) -> None:
        """A commit may have left work of any kind."""
        self.queue.set()
        self.outbox.set()
        self.alerts.set()
        self.inbox.set()

    def register_stop(self, job_id: int, stop: Callable[[str], None]) -> None:
        """How to end what runs for a job."""
        with self._lock:
            self._stops[job_id] = stop

    def forget_stop(self, job_id: int, stop: Callable[[str], None]) -> None:
        """What was registered runs no more; a later registration for the same job stays."""
        with self._lock:
            if self._stops.get(job_id) is stop:
                del self._stops[job_id]

    def stop(self, job_id: int, reason: str = "the task no longer wants it") -> None:
        """End what runs for a job, if anything does; what the task has begun since goes on."""
        with self._lock:
            stop = self._stops.get(job_id)
        if stop is not None:
            stop(reason)
