"""This life of this process on the list of processes: entered before anything is acquired, kept up by heartbeats."""

from dataclasses import dataclass

import structlog

from orchestrator.db import leases
from orchestrator.db.database import Database
from orchestrator.domain.errors import OrchestratorError
from orchestrator.domain.ids import BootId
from orchestrator.ownership.term import Term
from orchestrator.runtime.clock import Clock, parse_stamp
from orchestrator.runtime.process import Processes

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registration:
    """One process's entry."""

    database: Database
    boot_id: BootId
    processes: Processes
    clock: Clock
    term: Term
    role: str
    switches: str

    def enter(self) -> None:
        """Say that this process lives, and begin its term."""
        since = self.clock.boottime()
        with self.database.write() as tx:
            leases.register_process(tx, self.boot_id, "", self.processes.own(), self.role, self.switches)
        self.term.renew(since)

    def beat(self) -> bool:
        """Say it again. False where it could not be stored: trust in our own leases then ends by itself."""
        since = self.clock.boottime()  # before the write: our term must not outlast what others grant us
        try:
            with self.database.write() as tx:
                stored = leases.heartbeat(tx, self.boot_id)
            if stored is not None:
                self.term.renew(since, parse_stamp(stored))
                return True
            self.term.end()
            log.warning(
                "this process was off the list: its leases may have been taken over", boot_id=self.boot_id
            )
            self.enter()
        except OrchestratorError as error:
            log.warning("heartbeat not stored", reason=str(error))
            return False
        return True

    def leave(self) -> None:
        """Be forgotten at an orderly end, unless a lease still names this process."""
        self.term.end()
        with self.database.write() as tx:
            if not any(row.owner_boot_id == self.boot_id for row in leases.all_rows(tx)):
                leases.forget_process(tx, self.boot_id)
