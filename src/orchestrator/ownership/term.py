"""How long this process may trust its own leases, and whether the clocks agree by which others are judged (law 12).

What must hold: trust ends before anybody else may take us for dead. It is counted by CLOCK_BOOTTIME from before the
last heartbeat was sent, for a part of the TTL only; that part times the drift that is tolerated stays below the whole.
"""

import threading
from datetime import datetime

import structlog

from orchestrator.domain.errors import LostRace
from orchestrator.domain.lease import Lease, own_term_s
from orchestrator.runtime.clock import Clock

log = structlog.get_logger(__name__)

DRIFT = 0.2  # of the time that passed: more, and nothing is taken over
NEVER = float("-inf")


class Term:
    """One process's trust in itself. Terms are numbered: a lease of an earlier one stays untrusted when another begins,
    for somebody may have owned the task in between."""

    def __init__(self, clock: Clock, process_ttl_s: float) -> None:
        self.process_ttl_s = process_ttl_s
        self.length_s = own_term_s(process_ttl_s)
        self._clock = clock
        self._lock = threading.Lock()
        self._number = 0
        self._ends: float | None = None  # None: it has never begun
        self._compared: tuple[float, datetime] | None = None
        self._apart_until = NEVER

    def renew(self, since: float, database: datetime | None = None) -> None:
        """A heartbeat has been stored: ``since`` is CLOCK_BOOTTIME from before it was sent, ``database`` its own
        time."""
        if database is not None:
            self.compare(since, database)
        with self._lock:
            if self._ends is not None and self._clock.boottime() >= self._ends:
                self._number += 1
                log.warning("own leases were not trusted for a while", term=self._number)
            self._ends = since + self.length_s

    def end(self) -> None:
        """Nobody has to believe that we live any more: no lease is trusted until the next heartbeat."""
        with self._lock:
            self._ends = NEVER

    def number(self) -> int | None:
        """The term that runs; None where it has ended."""
        with self._lock:
            return self._number if self._left() > 0 else None

    def check(self, lease: Lease) -> None:
        """The last look before something outside is called (laws 3, 12).

        :raises LostRace: the term in which the lease was taken has ended; somebody else may own the task.
        """
        if lease.durable and self.number() != lease.term:
            raise LostRace(
                f"the term of this process's leases has ended: task {lease.task_id} may have another owner"
            )

    def compare(self, boottime: float, database: datetime) -> None:
        """Hold the database's clock against our own, both read at about the same time."""
        with self._lock:
            if self._compared is None:
                self._compared = boottime, database
                return
            passed = boottime - self._compared[0]
            told = (database - self._compared[1]).total_seconds()
            if abs(told - passed) > DRIFT * max(passed, self.process_ttl_s):
                log.warning(
                    "the database's clock and our own drift apart; nothing is taken over",
                    own_s=round(passed, 3),
                    database_s=round(told, 3),
                    for_s=self.process_ttl_s,
                )
                self._apart_until = boottime + self.process_ttl_s
                self._compared = boottime, database
            elif passed >= self.process_ttl_s:
                self._compared = boottime, database

    def apart(self) -> bool:
        """Whether the clocks drifted apart within the last TTL: whoever lives has sent a heartbeat since then."""
        with self._lock:
            return self._clock.boottime() < self._apart_until

    def snapshot(self) -> dict[str, object]:
        """What people see of it."""
        with self._lock:
            left = self._left()
        return {"trusted": left > 0, "length_s": round(self.length_s, 3), "left_s": round(max(left, 0.0), 3)}

    def _left(self) -> float:
        return NEVER if self._ends is None else self._ends - self._clock.boottime()
