"""Looks at tasks that somebody pointed to: a few threads over a set of due tasks, with back-off per task."""

import heapq
import threading
from collections.abc import Iterable

import structlog

from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import Actor
from orchestrator.observability.never_raise import never_raises
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.wakeups import Wakeups
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.situation import Outcome

log = structlog.get_logger(__name__)

DEFER_S = 0.5  # somebody else is at it
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 60.0
AGAIN = frozenset({Outcome.RETRY, Outcome.ASKED})


class TaskDriver:
    """Drives tasks on with the engine. A task is looked at by one thread at a time and never lost from the set."""

    def __init__(
        self, engine: StageEngine, *, threads: int, clock: Clock, entropy: Entropy, wakeups: Wakeups
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._entropy = entropy
        self._wakeups = wakeups
        self._lock = threading.Lock()
        self._due: list[tuple[float, TaskId]] = []
        self._earliest: dict[TaskId, float] = {}  # when a waiting task is next due; stale heap entries differ
        self._busy: dict[TaskId, threading.Thread] = {}  # who looks at a task now
        self._again: set[TaskId] = set()  # woken while being looked at
        self._one_look: set[TaskId] = set()  # not to be driven on at once
        self._finalize: set[TaskId] = set()  # to be looked at as the finalizer
        self._owners: dict[TaskId, Actor] = {}  # on whose behalf, where that is not the reconciler
        self._tries: dict[TaskId, int] = {}
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._threads = [self._thread(n) for n in range(threads)]

    def wake(self, ids: Iterable[int], owner: Actor = Actor.RECONCILER, *, after_s: float = 0.0) -> None:
        """Have these tasks looked at on behalf of ``owner``; an earlier time wins, and so does whoever is no net."""
        at = self._clock.boottime() + after_s
        with self._lock:
            for raw in ids:
                task_id = TaskId(raw)
                if owner is not Actor.RECONCILER:
                    self._owners[task_id] = owner
                if task_id in self._busy:
                    self._again.add(task_id)
                elif at < self._earliest.get(task_id, float("inf")):
                    self._earliest[task_id] = at
                    heapq.heappush(self._due, (at, task_id))
        self._changed.set()

    def settle(self, ids: Iterable[TaskId], owner: Actor) -> None:
        """Have these tasks looked at once each, for what is unsettled comes first in a look; what they may do then
        waits its turn behind all others."""
        told = list(ids)
        with self._lock:
            self._one_look.update(told)
        self.wake(told, owner)

    def finalize(self, task_id: TaskId) -> None:
        """Have a task looked at whose deploy has restarted us (Phase C)."""
        with self._lock:
            self._finalize.add(task_id)
        self.wake([task_id])

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Take nothing new; what is being done is finished."""
        self._stopping.set()
        self._changed.set()

    def join(self, seconds: float) -> bool:
        """Wait for the threads; False where one takes longer."""
        end = self._clock.boottime() + seconds
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, end - self._clock.boottime()))
        return not any(thread.is_alive() for thread in threads)

    def give_up(self, ids: Iterable[TaskId]) -> None:
        """The threads that look at these tasks hang, and what they hold has been taken from them: have others do it.
        A thread that wakes up after all changes nothing here and ends."""
        with self._lock:
            for task_id in ids:
                hung = self._busy.pop(task_id, None)
                if hung is None:
                    continue
                self._again.discard(task_id)
                self._threads.remove(hung)
                self._threads.append(fresh := self._thread(len(self._threads)))
                fresh.start()

    def snapshot(self) -> dict[str, object]:
        """How many are looked at and how many wait for a look."""
        with self._lock:
            return {"busy": len(self._busy), "due": len(self._earliest)}

    def _thread(self, n: int) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"orch-driver-{n}", daemon=True)

    def _run(self) -> None:
        while not self._stopping.is_set() and threading.current_thread() in self._threads:
            task_id, pause = self._next()
            if task_id is None:
                self._clock.wait(self._changed, pause)
                self._changed.clear()
                if self._stopping.is_set():
                    self._changed.set()  # another thread may only be about to wait
                continue
            self._look(task_id)

    def _next(self) -> tuple[TaskId | None, float | None]:
        with self._lock:
            while self._due:
                at, task_id = self._due[0]
                if self._earliest.get(task_id) != at:
                    heapq.heappop(self._due)
                    continue
                wait = at - self._clock.boottime()
                if wait > 0:
                    return None, wait
                heapq.heappop(self._due)
                del self._earliest[task_id]
                self._busy[task_id] = threading.current_thread()
                if self._due:
                    self._changed.set()  # another thread may have cleared the event for this one's sake
                return task_id, 0.0
            return None, None

    def _look(self, task_id: TaskId) -> None:
        with self._lock:
            owner = self._owners.pop(task_id, Actor.RECONCILER)
        outcome = self._advance(task_id, owner)
        self._wakeups.everything()
        self._rest(task_id, owner, outcome)

    @never_raises(Outcome.RETRY, log)
    def _advance(self, task_id: TaskId, owner: Actor) -> Outcome:
        """A fault in one task, even one of ours, never stops the queue (law 9)."""
        with self._lock:
            finalize = task_id in self._finalize
            self._finalize.discard(task_id)
            one_look = task_id in self._one_look
            self._one_look.discard(task_id)
        if one_look and not finalize:
            return self._engine.look(task_id, owner)
        if finalize:
            return self._engine.run_deploy_finalizer(task_id)
        if owner is Actor.RECONCILER:
            return self._engine.advance_if_gate_passed(task_id)
        return self._engine.advance_stage(task_id, owner)

    def _rest(self, task_id: TaskId, owner: Actor, outcome: Outcome) -> None:
        with self._lock:
            if self._busy.get(task_id) is not threading.current_thread():
                return  # given up
            del self._busy[task_id]
            again = task_id in self._again
            self._again.discard(task_id)
            tries = self._tries.pop(task_id, 0)
            if outcome in AGAIN:
                self._tries[task_id] = tries + 1
        if again:
            self.wake([task_id])
        elif outcome is Outcome.MOVED:
            self.wake([task_id], owner)
        elif outcome is Outcome.DEFERRED:
            self.wake([task_id], owner, after_s=self._entropy.jitter(DEFER_S))
        elif outcome in AGAIN:
            pause = self._entropy.jitter(min(FIRST_RETRY_S * 2**tries, MAX_RETRY_S))
            self.wake([task_id], owner, after_s=pause)
