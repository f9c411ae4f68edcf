"""Signals inside one process, and to others of its database where there are any: whom to look at soon, that the queue
has work, and what to end. Lossy by design: a slow timer is the net under every one of them."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.domain.errors import OrchestratorError
from orchestrator.domain.lease import Actor


@dataclass(frozen=True, slots=True)
class Signal:
    """What another process is told.

    ``what`` is "queue" (there may be work that it has room for), "everything", "tasks" (``ids`` should be looked at, on
    behalf of ``said``) or "stop" (end what runs for the jobs ``ids``, because of ``said``).
    """

    what: str
    ids: tuple[int, ...] = ()
    said: str = ""


class Wakeups:
    """Connects those who write with those who wait; everyone may call everything from any thread."""

    def __init__(self) -> None:
        self.queue = threading.Event()  # the job queue may have something
        self.outbox = threading.Event()  # a message may be waiting
        self.alerts = threading.Event()  # an alert may be waiting for Telegram
        self.further_alerts = threading.Event()  # and for a further channel
        self.inbox = threading.Event()  # something has arrived, or its task may have become free
        self.tickets = threading.Event()  # a tracker elsewhere has hinted at something
        self.told = threading.Event()  # a message may be waiting for a ticket elsewhere
        self.issues = threading.Event()  # GitHub has hinted at an issue
        self.told_at_github = threading.Event()  # a message may be waiting for an issue
        self.stopping = threading.Event()  # the service ends: nobody waits for anything outside any more
        self._lock = threading.Lock()
        self._on_tasks: Callable[[Iterable[int], Actor], None] | None = None
        self._others_too = False
        self._stops: dict[int, Callable[[str], None]] = {}
        self._tell: Callable[[Signal], None] = lambda signal: None
        self._on_end: Callable[[OrchestratorError], None] = lambda why: None

    def relay(self, tell: Callable[[Signal], None]) -> None:
        """How other processes are told of what this one has no use for, or no room."""
        self._tell = tell

    def hear(self, signal: Signal) -> None:
        """What another process has said; what no version of ours would say is passed over."""
        match signal.what:
            case "queue":
                self.queue.set()
            case "everything":
                self._set_all()
            case "tasks" if self._on_tasks is not None and signal.said in set(Actor):
                self._on_tasks(signal.ids, Actor(signal.said))
            case "stop":
                for job_id in signal.ids:
                    self._stop_here(job_id, signal.said)

    def on_end(self, listener: Callable[[OrchestratorError], None]) -> None:
        """Who ends this process where it must not go on; it is told why."""
        self._on_end = listener

    def end(self, why: OrchestratorError) -> None:
        """This process must not go on: a newer version, or another database, has taken its place."""
        self._on_end(why)

    def on_tasks(self, listener: Callable[[Iterable[int], Actor], None], *, others_too: bool = False) -> None:
        """Who is told of tasks to look at. ``others_too``: this process does not do all that a task may need."""
        self._on_tasks, self._others_too = listener, others_too

    def tasks(self, ids: Iterable[int], owner: Actor = Actor.RECONCILER) -> None:
        """These tasks should be looked at soon, on behalf of ``owner``: here, where anybody does that."""
        told = tuple(ids)
        if self._on_tasks is not None:
            self._on_tasks(told, owner)
        if self._on_tasks is None or self._others_too:
            self._tell(Signal("tasks", told, owner))

    def work_queued(self) -> None:
        """A commit has queued a job: whoever has room for it need not wait until its task has come to rest."""
        self.queue.set()
        self._tell(Signal("queue"))

    def everything(self) -> None:
        """A commit may have left work of any kind. What this process does itself it need not tell; but it may have no
        room for a job."""
        self._set_all()
        all_of_it = self._on_tasks is None or self._others_too
        self._tell(Signal("everything" if all_of_it else "queue"))

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
        """End what runs for a job, here or elsewhere, if anything does; what the task has begun since goes on."""
        if not self._stop_here(job_id, reason):
            self._tell(Signal("stop", (job_id,), reason))

    def _stop_here(self, job_id: int, reason: str) -> bool:
        with self._lock:
            stop = self._stops.get(job_id)
        if stop is not None:
            stop(reason)
        return stop is not None

    def _set_all(self) -> None:
        self.queue.set()
        self.outbox.set()
        self.alerts.set()
        self.further_alerts.set()
        self.inbox.set()
        self.tickets.set()
        self.told.set()
        self.issues.set()
        self.told_at_github.set()
