"""This life of this process on the list of processes: entered before anything is acquired, kept up by heartbeats."""

from dataclasses import dataclass

import structlog

from orchestrator.db import leases
from orchestrator.db.database import Database
from orchestrator.domain.errors import OperatorError, OrchestratorError, StateInUse
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
    alone: bool = False  # no other process may work on this database

    def enter(self) -> None:
        """Say that this process lives, and begin its term.

        :raises StateInUse: another process lives where there may be but one; this one is off the list again.
        :raises OperatorError: another living process has other switches; this one is off the list again.
        """
        since = self.clock.boottime()
        with self.database.write() as tx:
            leases.register_process(tx, self.boot_id, "", self.processes.own(), self.role, self.switches)
        refused = self._why_not()  # asked once we are on the list: of two that start, one sees the other
        if refused is not None:
            with self.database.write() as tx:
                leases.forget_process(tx, self.boot_id)
            raise refused
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

    def _why_not(self) -> OperatorError | None:
        """What a process that lives has against this one."""
        with self.database.read() as tx:
            listed = leases.processes(tx, self.term.process_ttl_s)
        others = (row for row in listed if row.boot_id != self.boot_id)
        for row in others:
            if (self.alone or row.switches != self.switches) and self.judge.process(row) is not Liveness.DEAD:
                if self.alone:
                    return _in_use(row, self.term.process_ttl_s)
                return _refused(row, self.switches, self.term.process_ttl_s)
        return None


def _in_use(other: leases.ProcessRow, ttl_s: float) -> StateInUse:
    """Why no second process works on one database."""
    return StateInUse(
        f"The database is in use by {_named(other)}. Nothing was started.",
        hint="One process works on a database: stop that one first, or use another ORCH_DATABASE_URL. "
        f"{_if_it_died(ttl_s)}",
    )


def _named(other: leases.ProcessRow) -> str:
    return f"orch {other.role} (pid {other.identity.pid}, last heard of at {other.heartbeat_at})"


def _if_it_died(ttl_s: float) -> str:
    return f"If it has died where this cannot be seen, it counts for {ttl_s:g} s more at most."


def _refused(other: leases.ProcessRow, ours: str, ttl_s: float) -> OperatorError:
    """Why two processes do not run together, naming what differs."""
    theirs, mine = _words(other.switches), _words(ours)
    differ = [
        f"{name} is {theirs.get(name, 'not said')} there and {mine.get(name, 'not said')} here"
        for name in sorted(theirs.keys() | mine.keys())
        if theirs.get(name) != mine.get(name)
    ]
    return OperatorError(
        f"Another process of this installation runs with other switches: {_named(other)}: {'; '.join(differ)}. "
        "Nothing was started.",
        hint="Stop that one first, or start with the same ORCH_TRANSITION_LEASE_ENABLED, ORCH_TRANSITION_LEASE_REPOS "
        f"and ORCH_SELF_REPO. {_if_it_died(ttl_s)}",
    )


def _words(switches: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in switches.split())
    return {name: value for name, _, value in pairs}
