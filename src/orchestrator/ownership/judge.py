"""Whether an owner lives: judged by its process, never by "is it me" (DESIGN §5, departure 4).

Looking into /proc is nothing to do in a write block: an owner is judged outside, and whoever then takes its lease
compares what was judged with what is there.
"""

import structlog

from orchestrator.db.leases import Held, LeaseRow, ProcessRow
from orchestrator.domain.ids import BootId
from orchestrator.observability.never_raise import never_raises
from orchestrator.runtime.process import Liveness, Processes

log = structlog.get_logger(__name__)


class Judge:
    """One process's view of the others."""

    def __init__(self, *, boot_id: BootId, processes: Processes) -> None:
        self._boot_id = boot_id
        self._processes = processes

    @never_raises(Liveness.UNKNOWN, log)
    def owner(self, row: LeaseRow, process: ProcessRow | None) -> Liveness:
        """Whether a lease's owner lives. Unknown is a reason to wait, never to act (FR-5)."""
        if row.owner_boot_id == self._boot_id:
            return Liveness.ALIVE
        if process is None:  # it registers before it acquires and is forgotten only when it has ended
            return Liveness.DEAD
        return self.process(process)

    def held(self, held: Held) -> Liveness:
        """The same for a lease as it was found."""
        return self.owner(held.row, held.process)

    def process(self, row: ProcessRow) -> Liveness:
        """At once where /proc proves it; else dead once its term has ended."""
        proven = self._processes.liveness(row.identity)
        if proven is Liveness.UNKNOWN and row.silent:
            return Liveness.DEAD
        return proven
