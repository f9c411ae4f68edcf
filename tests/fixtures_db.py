"""A migrated SQLite database of its own for each test, with a clock that stands still and predictable ids."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.db import leases, repositories, tasks
from orchestrator.db.migrate import init_db
from orchestrator.db.repositories import Repository
from orchestrator.db.sqlite import SqliteDatabase, connect
from orchestrator.domain.errors import LostRace
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task, Ticket
from orchestrator.runtime.entropy import SeededEntropy
from tests.clock import FakeClock

REPO = RepoName("sample")


@dataclass
class Store:
    """One database and what a test does to it."""

    database: SqliteDatabase
    clock: FakeClock
    entropy: SeededEntropy = field(default_factory=SeededEntropy)

    @property
    def path(self) -> Path:
        return self.database.path

    def new_task(
        self, title: str = "Say hello", *, stage: Stage = Stage.CREATED, priority: int = 0, **ticket: str
    ) -> Task:
        """A task of the sample repository, moved straight to ``stage`` by one stage write."""
        with self.database.write() as tx:
            number = repositories.next_work_item(tx, REPO)
            task = tasks.add(tx, REPO, number, Ticket(title, **ticket), priority=priority)
            assert task is not None
            if stage is not Stage.CREATED:
                assert tasks.update_task_stage_cas(tx, task.id, Stage.CREATED, stage, epoch=0)
            return tasks.get(tx, task.id)

    def task(self, task_id: TaskId) -> Task:
        with self.database.read() as tx:
            return tasks.get(tx, task_id)

    def move(self, task_id: TaskId, target: Stage) -> Task:
        """One stage write from wherever the task stands."""
        with self.database.write() as tx:
            task = tasks.get(tx, task_id)
            if not tasks.update_task_stage_cas(tx, task_id, task.stage, target, epoch=task.epoch):
                raise LostRace("the task moved")
            return tasks.get(tx, task_id)

    def epoch(self, task_id: TaskId) -> int | None:
        with self.database.read() as tx:
            return leases.lock_epoch(tx, task_id)

    def rows(self, query: str, params: Mapping[str, object] | None = None) -> list[sqlite3.Row]:
        """What the file holds, seen from a connection beside the product's."""
        with closing(connect(self.path, self.clock, readonly=True)) as connection:
            return connection.execute(query, params or {}).fetchall()

    def raw(self, statement: str, params: Mapping[str, object] | None = None) -> int:
        """Write past the product's code, as a person with a SQLite shell would; the guards of the schema hold."""
        with closing(connect(self.path, self.clock)) as connection:
            return connection.execute(statement, params or {}).rowcount


def open_store(path: Path, clock: FakeClock) -> Store:
    """Migrate, open, and register the sample repository."""
    entropy = SeededEntropy()
    init_db(path, clock=clock, entropy=entropy)
    database = SqliteDatabase(path, clock=clock)
    with database.write() as tx:
        repositories.add(tx, Repository(REPO, "local", "/nowhere", "SMP"))
    return Store(database, clock, entropy)


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    opened = open_store(tmp_path / "orch.db", fake_clock)
    yield opened
    opened.database.close()
