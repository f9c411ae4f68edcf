"""Time, handed in (law 12)."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """All the time the product knows. Stored times are UTC text of fixed width, so that they sort as text."""

    def utc(self) -> datetime:
        """Now, aware, in UTC: for people and for stored rows. Never used to trust one's own lease."""
        ...

    def boottime(self) -> float:
        """Seconds since the machine booted, suspend included (CLOCK_BOOTTIME): for every deadline and interval."""
        ...

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Block until ``event`` is set or ``seconds`` have passed; True iff it was set."""
        ...


class SystemClock:
    """The machine's own clock."""

    def utc(self) -> datetime:
        """Now in UTC."""
        return datetime.now(UTC)

    def boottime(self) -> float:
        """CLOCK_BOOTTIME in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Block on the event."""
        return event.wait(seconds)


def stamp(moment: datetime) -> str:
    """``2026-01-05T10:00:00.000000Z``: UTC, fixed width, sorts as text."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_stamp(text: str) -> datetime:
    """The moment a stored stamp names.

    :raises ValueError: it is no stamp.
    """
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def moment(text: str) -> datetime:
    """A time as others write it: ISO 8601, with a zone.

    :raises ValueError: it is none, or has no zone.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a time without a zone")
    return found


def stamp_after(clock: Clock, seconds: float) -> str:
    """The stamp ``seconds`` from now."""
    return stamp(clock.utc() + timedelta(seconds=seconds))


def periods_since(clock: Clock, since: str, period_s: float) -> int:
    """How often a period, in seconds, has passed since a stamp; 0 for one that is still to come, or is no stamp."""
    try:
        passed = clock.utc() - datetime.fromisoformat(since)
    except (TypeError, ValueError):  # a damaged row holds up no other
        return 0
    return max(0, int(passed.total_seconds() // period_s))
