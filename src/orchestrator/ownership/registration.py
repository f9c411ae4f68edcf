"""This life of this process on the list of processes: entered before anything is acquired, kept up by heartbeats."""

from dataclasses import dataclass

import structlog

from orchestrator.db import homes, leases
from orchestrator.db.database import Database, Tx
from orchestrator.domain.errors import (
    DatabaseReplaced,
    OperatorError,
    OrchestratorError,
    StateInUse,
    StrangeFolder,
)
from orchestrator.domain.ids import SHARED_HOME, BootId, Home
from orchestrator.ownership import state_folder
from orchestrator.ownership.judge import Judge
from orchestrator.ownership.term import Term
from orchestrator.runtime.clock import Clock, parse_stamp
from orchestrator.runtime.process import Liveness, Processes

log = structlog.get_logger(__name__)

SERVING = frozenset({"serve", "run"})  # roles of processes that work on tasks, and answer people
WORKER = "worker"
STATE = "state"  # among the switches: which folder a process has, that is no worker


@dataclass(frozen=True, slots=True)
class OwnHome:
    """A worker's state folder; see :mod:`orchestrator.db.homes`."""

    home: Home
    folder: str
    lost_after_s: float


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
    host: str = ""  # for people
    own_home: OwnHome | None = None  # of a worker

    def enter(self) -> None:
        """Say that this process lives, and begin its term.

        :raises OperatorError: another living process has other switches, the state folder is not the database's, or a
            worker's is not its own; this one is off the list again.
        """
        since, own = self.clock.boottime(), self.own_home
        take = self.role in SERVING and not self._served_elsewhere()
        with self.database.write() as tx:
            self._see_to_the_folder(tx, take=take)
            leases.register_process(
                tx, self.boot_id, self.host, self.processes.own(), self.role, self.switches
            )
            if own is not None:
                homes.claim(tx, own.home, host=self.host, folder=own.folder, lost_after_s=own.lost_after_s)
        # Looked for once we are on the list: of two that start, one sees the other.
        refused = self._why_not_together()
        if refused is not None:
            with self.database.write() as tx:
                leases.forget_process(tx, self.boot_id)
            raise refused
        if own is not None:
            # Not before: who is refused again and again would keep alive what nobody looks after.
            with self.database.write() as tx:
                homes.enter(tx, own.home, host=self.host, folder=own.folder, lost_after_s=own.lost_after_s)
        self.term.renew(since)

    def beat(self) -> bool:
        """Say it again. False where it could not be stored: trust in our own leases then ends by itself.

        :raises DatabaseReplaced: this is not the database that we are registered in.
        :raises StrangeFolder: another folder has taken the place of ours while we were off the list.
        """
        since = self.clock.boottime()  # before the write: our term must not outlast what others grant us
        try:
            with self.database.write() as tx:
                stored = leases.heartbeat(tx, self.boot_id)
                if stored is not None and self.own_home is not None:
                    homes.seen(tx, self.own_home.home)
            if stored is not None:
                self.term.renew(since, parse_stamp(stored))
                return True
            self.term.end()
            log.warning(
                "this process was off the list: its leases may have been taken over", boot_id=self.boot_id
            )
            self.enter()
        except (DatabaseReplaced, StrangeFolder):
            self.term.end()
            raise
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

    def alone(self, *, undone: str) -> None:
        """Go on only where no other process of this installation lives; ``undone`` tells what has not taken place.

        :raises StateInUse: one does.
        """
        for other in self.others():
            raise StateInUse(
                f"The database is in use by {named(other)}; {undone}.",
                hint="Stop every service and every worker first: what they store meanwhile would be lost. Agents may "
                "go on.",
            )

    def _see_to_the_folder(self, tx: Tx, *, take: bool) -> None:
        """Before we are on the list: of two with different folders that start at once one is never on it."""
        if self.own_home is not None:
            state_folder.refuse_to_a_worker(tx, self.own_home.home)
        elif (state := _words(self.switches).get(STATE)) and self.role != state_folder.NEW_FOLDER:
            state_folder.belongs(tx, state, take=take)

    def _served_elsewhere(self) -> bool:
        """Whether a process of a version that stored no folder yet lives with another one."""
        state = _words(self.switches).get(STATE)
        return state is not None and any(
            row.role != WORKER and _words(row.switches).get(STATE) not in (None, state)
            for row in self.others()
        )

    def _why_not_together(self) -> OperatorError | None:
        others = self.others()
        other = next((row for row in others if _differ(row, self.role, self.switches)), None)
        if other is not None:
            return _refused(other, self.role, self.switches, self.term.process_ttl_s)
        state = _words(self.switches).get(STATE)
        with self.database.read() as tx:
            worker = homes.get(tx, Home(state)) if state else None
        if worker is not None:
            return state_folder.of_a_worker(worker)
        own = self.own_home.home if self.own_home is not None else SHARED_HOME
        served = next((row for row in others if own and _words(row.switches).get(STATE) == own), None)
        if served is not None:
            with self.database.write() as tx:
                homes.forget(tx, own)
            return OperatorError(
                f"This state folder is that of {named(served)}. Nothing was started.",
                hint="A worker needs a folder of its own: name an empty one in ORCH_HOME.",
            )
        return None

    def others(self) -> list[leases.ProcessRow]:
        """Other processes of this database that live, or may."""
        with self.database.read() as tx:
            listed = leases.processes(tx, self.term.process_ttl_s)
        return [
            row
            for row in listed
            if row.boot_id != self.boot_id and self.judge.process(row) is not Liveness.DEAD
        ]

    def served(self) -> bool:
        """Whether another process works on tasks."""
        return any(row.role in SERVING for row in self.others())


def named(other: leases.ProcessRow) -> str:
    """Another process, for people."""
    where = f" on {other.host}" if other.host else ""
    return f"orch {other.role}{where} (pid {other.identity.pid}, last heard of at {other.heartbeat_at})"


def _if_it_died(ttl_s: float) -> str:
    return f"If it has died where this cannot be seen, it counts for {ttl_s:g} s more at most."


def _differ(other: leases.ProcessRow, role: str, ours: str) -> list[str]:
    """What two processes do not have alike; a worker's state folder is not compared."""
    theirs, mine = _words(other.switches), _words(ours)
    names = theirs.keys() | mine.keys()
    if WORKER in (other.role, role):
        names.discard(STATE)
    return [
        f"{name} is {theirs.get(name, 'not said')} there and {mine.get(name, 'not said')} here"
        for name in sorted(names)
        if theirs.get(name) != mine.get(name)
    ]


def _refused(other: leases.ProcessRow, role: str, ours: str, ttl_s: float) -> OperatorError:
    """Why two processes do not run together, naming what differs."""
    differ = _differ(other, role, ours)
    return OperatorError(
        f"Another process of this installation runs with other switches: {named(other)}: {'; '.join(differ)}. "
        "Nothing was started.",
        hint="Stop that one first, or start with the same ORCH_TRANSITION_LEASE_ENABLED, ORCH_TRANSITION_LEASE_REPOS "
        f"and ORCH_SELF_REPO, and with the same state folder. {_if_it_died(ttl_s)}",
    )


def _words(switches: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in switches.split())
    return {name: value for name, _, value in pairs}
