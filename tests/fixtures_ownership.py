"""The ownership of one process over a test's database, and lease rows that others might have left."""

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from orchestrator.db import leases
from orchestrator.db.database import Database, Tx
from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.ids import BootId
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.domain.task import Task
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.ownership.term import Term
from orchestrator.runtime.process import Processes, SystemProcesses
from orchestrator.transition_lease import Ownership
from tests.fixtures_db import Store

TTL_S = 30.0
ME, OTHER = BootId("me"), BootId("other")
OFF, NOBODY = Scope(enabled=False), Scope(repos=frozenset())


Logged = list[MutableMapping[str, Any]]


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What is logged, however an earlier test of this worker has set the log up."""
    before = structlog.get_config()
    structlog.reset_defaults()
    with capture_logs() as entries:
        yield entries
    structlog.configure(**before)


class Endless(Term):
    """The term of a process whose heartbeats never fail."""

    def number(self) -> int:
        return 0


class Failing:
    """The real database, but for transactions that end in a full disk while ``broken`` says so."""

    def __init__(self, store: Store) -> None:
        self._real = store.database
        self.broken: Callable[[], bool] = lambda: False

    @contextmanager
    def write(self) -> Iterator[Tx]:
        with self._real.write() as tx:
            yield tx
            if self.broken():
                raise DatabaseError("The database refused: database or disk is full.")

    @contextmanager
    def read(self) -> Iterator[Tx]:
        if self.broken():
            raise DatabaseError("The database refused: disk I/O error.")
        with self._real.read() as tx:
            yield tx

    def close(self) -> None:
        self._real.close()


def ownership(
    store: Store,
    boot_id: BootId = ME,
    *,
    scope: Scope = EVERYTHING,
    processes: Processes | None = None,
    term: Term | None = None,
    database: Database | None = None,
) -> Ownership:
    """One process's ownership; the process is on the list."""
    with store.database.write() as tx:
        if leases.process(tx, boot_id, TTL_S) is None:
            leases.register_process(tx, boot_id, "here", SystemProcesses().own(), "test", "")
    return Ownership(
        database or store.database,
        boot_id=boot_id,
        processes=processes or SystemProcesses(),
        clock=store.clock,
        liveness=FinalizerLiveness(),
        term=term or Endless(store.clock, TTL_S),
        scope=scope,
    )


def register(store: Store, boot_id: BootId = OTHER, **other: object) -> None:
    """A process on the list that is this one but for what is named."""
    identity = replace(SystemProcesses().own(), **other)  # type: ignore[arg-type]
    with store.database.write() as tx:
        leases.register_process(tx, boot_id, "here", identity, "test", "")


def plant(
    store: Store,
    task: Task,
    *,
    boot_id: object = OTHER,
    owner: object = "monitor",
    pid: object = 1,
    stage: object = "development",
    acquired_at: object = "2026-01-05 10:00:00",
) -> None:
    """A lease row as another process, another version or a person might have left it."""
    store.raw(
        "INSERT INTO transition_lease (task_id, owner, owner_pid, owner_boot_id, run_id, stage, acquired_at) "
        "VALUES (:task, :owner, :pid, :boot, NULL, :stage, :at)",
        {"task": task.id, "owner": owner, "pid": pid, "boot": boot_id, "stage": stage, "at": acquired_at},
    )
