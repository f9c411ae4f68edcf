"""How often a Plane may be asked: one for all that is done with one key there, whichever project it is about.

What must hold: in any minute no more calls are begun than :class:`Pace` allows; a "later" of the server is kept, and a
server that does not answer is left alone for ever longer. Nobody waits inside: who comes too early is told how long.
Several processes with one key do not know of each other; the server's own count, which its answers bear, slows them.
"""

import threading
from collections import deque

from orchestrator.runtime.clock import Clock

WINDOW_S = 60.0
RESERVE = 10  # calls in a minute that looking around leaves to messages and to what people have just said
FIRST_PAUSE_S = 2.0
MAX_PAUSE_S = 300.0
UNSAID_S = 30.0  # where "later" comes without a number


class Pace:
    """Safe for many threads."""

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._clock = clock
        self._most = per_minute
        self._begun: deque[float] = deque()
        self._closed_until = 0.0
        self._faults = 0
        self._left: int | None = None  # by the server's count
        self._lock = threading.Lock()

    def wait_s(self, *, background: bool = False) -> float:
        """Begin a call: 0, or how long to wait, in seconds, before asking again; then none was begun.

        ``background``: looking around without a cause, which leaves a reserve to others.
        """
        with self._lock:
            now = self._clock.boottime()
            while self._begun and self._begun[0] <= now - WINDOW_S:
                self._begun.popleft()
            if now < self._closed_until:
                return self._closed_until - now
            room = self._most - (min(RESERVE, self._most // 2) if background else 0)
            few_left = background and self._left is not None and self._left < RESERVE
            if len(self._begun) >= room or (few_left and self._begun):
                return self._begun[0] + WINDOW_S - now
            self._begun.append(now)
            return 0.0

    def answered(self, left: int | None) -> None:
        """An answer came; ``left`` is how many more the server will take, where it said so."""
        with self._lock:
            self._faults, self._left = 0, left

    def later(self, seconds: float | None) -> float:
        """The server has said "later"; for how long it is left alone now."""
        return self._close(min(max(seconds if seconds is not None else UNSAID_S, 1.0), MAX_PAUSE_S))

    def failed(self) -> float:
        """No answer came, or none of the server's own; for how long it is left alone now."""
        with self._lock:
            self._faults += 1
            pause = min(FIRST_PAUSE_S * 2 ** min(self._faults - 1, 20), MAX_PAUSE_S)
        return self._close(pause)

    def _close(self, seconds: float) -> float:
        with self._lock:
            until = self._clock.boottime() + seconds
            self._closed_until = max(self._closed_until, until)
            return seconds
