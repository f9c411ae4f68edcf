"""This life of this process on the list of processes: entered before anything is acquired, kept up by heartbeats."""

from dataclasses import dataclass

import structlog

from orchestrator.db import leases
from orchestrator.db.database import Database
from orchestrator.domain.errors import OperatorError, OrchestratorError
from orchestrator.domain.ids import BootId
from orchestrator.ownership.judge import Judge
from orchestrator.ownership.term import Term
from orchestrator.runtime.clock import Clock, parse_stamp
from orchestrator.runtime.process import Liveness, Processes

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registration:
    """One process's entry."""

    database: Database
    boot_id: BootId
    processes: Processes
    clock: Clock
    term: Term
    judge: Judge
    role: str
    switches: str

    def enter(self) -> None:
        """Say that this process lives, and begin its term.

        :raises OperatorError: another living process has other switches; this one is off the list again.
        """
        since = self.clock.boottime()
        with self.database.write() as tx:
            leases.register_process(tx, self.boot_id, "", self.processes.own(), self.role, self.switches)
        other = (
            self._with_other_switches()
        )  # looked for once we are on the list: of two that start, one sees the other
        if other is not None:
            with self.database.write() as tx:
                leases.forget_process(tx, self.boot_id)
            raise _refused(other, self.switches, self.term.process_ttl_s)
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

    def _with_other_switches(self) -> leases.ProcessRow | None:
        with self.database.read() as tx:
            others = [
                row
                for row in leases.processes(tx, self.term.process_ttl_s)
                if row.boot_id != self.boot_id and row.switches != self.switches
            ]
        return next((row for row in others if self.judge.process(row) is not Liveness.DEAD), None)


def _refused(other: leases.ProcessRow, ours: str, ttl_s: float) -> OperatorError:
    """Why two processes do not run together, naming what differs."""
    theirs, mine = _words(other.switches), _words(ours)
    differ = [
        f"{name} is {theirs.get(name, 'not said')} there and {mine.get(name, 'not said')} here"
        for name in sorted(theirs.keys() | mine.keys())
        if theirs.get(name) != mine.get(name)
    ]
    return OperatorError(
        f"Another process of this installation runs with other switches: {other.role} (pid {other.identity.pid}, last "
        f"heard of at {other.heartbeat_at}): {'; '.join(differ)}. Nothing was started.",
        hint="Stop that one first, or start with the same ORCH_TRANSITION_LEASE_ENABLED, ORCH_TRANSITION_LEASE_REPOS "
        f"and ORCH_SELF_REPO. If it has died where this cannot be seen, it counts for {ttl_s:g} s more at most.",
    )


def _words(switches: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in switches.split())
    return {name: value for name, _, value in pairs}
