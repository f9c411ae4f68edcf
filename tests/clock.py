"""A clock that tests set: no test waits for time to pass."""

import threading
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 5, 10, 0, 0, tzinfo=UTC)


class FakeClock:
    """Stands still until it is moved; both its hands move together unless ``set_utc`` turns the wall clock alone."""

    def __init__(self, start: datetime = START) -> None:
        self._lock = threading.Lock()
        self._utc = start
        self._boottime = 1_000.0

    def utc(self) -> datetime:
        with self._lock:
            return self._utc

    def boottime(self) -> float:
        with self._lock:
            return self._boottime

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """A wait without an end is a real one; any other passes at once, and so does its time."""
        if seconds is None:
            return event.wait()
        if not event.is_set():
            self.advance(seconds)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._utc += timedelta(seconds=seconds)
            self._boottime += seconds

    def set_utc(self, moment: datetime) -> None:
        """Somebody sets the wall clock."""
        with self._lock:
            self._utc = moment
