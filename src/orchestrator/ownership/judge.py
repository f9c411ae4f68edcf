"""Whether an owner lives: judged by its process, never by "is it me" (DESIGN §5, departure 4).

Looking into /proc is nothing to do in a write block: an owner is judged outside, and whoever then takes its lease
compares what was judged with what is there.
"""

import threading
from datetime import UTC, datetime
from typing import cast

import structlog

from orchestrator.db.homes import WorkerHome
from orchestrator.db.leases import Held, LeaseRow, ProcessRow
from orchestrator.domain.ids import BootId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.observability.never_raise import never_raises
from orchestrator.ownership.term import Term
from orchestrator.runtime.clock import Clock, parse_stamp, stamp
from orchestrator.runtime.process import Liveness, Processes

log = structlog.get_logger(__name__)

ACQUIRED_AT = "%Y-%m-%d %H:%M:%S"  # the seed's form of time
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WATCHED = 1000  # processes whose heartbeats are remembered


class Judge:
    """One process's view of the others."""

    def __init__(self, *, boot_id: BootId, processes: Processes, clock: Clock, term: Term) -> None:
        self._boot_id = boot_id
        self._processes = processes
        self._clock = clock
        self._term = term
        self._lock = threading.Lock()
        self._beats: dict[
            BootId, tuple[str, float]
        ] = {}  # the last heartbeat seen, and since when there is no other

    @never_raises(Liveness.UNKNOWN, log)
    def owner(self, row: LeaseRow, process: ProcessRow | None) -> Liveness:
        """Whether a lease's owner lives. Unknown is a reason to wait, never to act (FR-5)."""
        if row.owner_boot_id == self._boot_id:
            return Liveness.ALIVE
        if process is None:  # it registers before it acquires and is forgotten only when it has ended
            return Liveness.DEAD
        return self.process(process)

    @never_raises(False, log)
    def replaceable(self, held: Held, read_at: float) -> bool:
        """Whether its lease may be taken over: its owner is dead, and no clock has jumped by which that was judged
        (law 12). ``read_at`` is CLOCK_BOOTTIME from before the lease was read."""
        self.compare(held.read_at, read_at)
        return self.owner(held.row, held.process) is Liveness.DEAD and self.may_take_over()

    @never_raises(False, log)
    def ended(self, process: ProcessRow | None, told: str, read_at: float) -> bool:
        """Whether what another process was at may be taken over. ``process`` is None where it is not on the list any
        more; ``told`` is the database's time at which that was read, ``read_at`` ours from before."""
        self.compare(told, read_at)
        dead = process is None or self.process(process) is Liveness.DEAD
        return dead and self.may_take_over()

    @never_raises(False, log)
    def home_is_lost(self, home: WorkerHome | None, told: str, read_at: float) -> bool:
        """Whether nothing in a worker's home runs any more, and what was begun there may be taken over; ``told`` and
        ``read_at`` as for :meth:`ended`."""
        self.compare(told, read_at)
        return (home is None or home.lost) and self.may_take_over()

    def compare(self, told: str, read_at: float) -> None:
        """Hold the database's time, as it was ``told``, against our own from before that was read."""
        self._term.compare(read_at, parse_stamp(told))

    def may_take_over(self) -> bool:
        """Whether this process may take anything from anybody now: its own term runs, and the clocks agree by which
        others are judged (law 12). Asked before each step that cannot be taken back."""
        return self._term.number() is not None and not self._term.apart()

    def process(self, row: ProcessRow) -> Liveness:
        """At once where /proc proves it; else dead once its term has ended."""
        silent = self._quiet_for(row) > self._term.process_ttl_s or row.silent
        proven = self._processes.liveness(row.identity)
        return Liveness.DEAD if proven is Liveness.UNKNOWN and silent else proven

    def _quiet_for(self, row: ProcessRow) -> float:
        """How long we ourselves have seen no new heartbeat: a database's clock that was set back hides the silence."""
        now = self._clock.boottime()
        with self._lock:
            known = self._beats.get(row.boot_id)
            if known is None or known[0] != row.heartbeat_at:
                if len(self._beats) >= WATCHED:
                    self._beats.clear()
                known = self._beats[row.boot_id] = row.heartbeat_at, now
        return now - known[1]


def age_s(row: LeaseRow, now: str) -> float | None:
    """How long a lease has been held by the database's clock; None where one of the two is no time."""
    try:
        since = datetime.strptime(row.acquired_at, ACQUIRED_AT).replace(tzinfo=UTC)
        return (parse_stamp(now) - since).total_seconds()
    except (ValueError, TypeError):
        return None


def warn_if_odd(row: LeaseRow) -> None:
    """Say what no version of ours would have written; such a row is judged by its process like any other. SQLite
    holds whatever it is given."""
    pid, boot_id, run_id = cast("tuple[object, ...]", (row.owner_pid, row.owner_boot_id, row.run_id))
    odd = [
        name
        for name, fine in (
            ("owner", row.owner in set(Actor)),
            ("owner_pid", pid is None or (isinstance(pid, int) and pid > 0)),
            ("owner_boot_id", isinstance(boot_id, str) and boot_id != ""),
            ("run_id", run_id is None or isinstance(run_id, int)),
            ("stage", row.stage in set(Stage)),
            ("acquired_at", age_s(row, stamp(EPOCH)) is not None),
        )
        if not fine
    ]
    if odd:
        shown = {name: ascii(getattr(row, name))[:60] for name in odd}
        named = row.work_item or row.task_id
        log.warning("lease row with odd values; only its process counts", task=named, odd=shown)
