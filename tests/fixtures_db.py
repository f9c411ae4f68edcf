"""A migrated database of its own for each test, with a clock that stands still and predictable ids.

SQLite, unless a folder's ``conftest.py`` says otherwise for its tests (``database_kind``).
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.db import leases, repositories, tasks
from orchestrator.db.database import Database
from orchestrator.db.migrate import init_db
from orchestrator.db.opening import place_of
from orchestrator.db.postgres import PostgresDatabase
from orchestrator.db.postgres_text import translated
from orchestrator.db.repositories import Repository
from orchestrator.db.sqlite import SqliteDatabase, connect
from orchestrator.domain.errors import LostRace
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task, Ticket
from orchestrator.runtime.clock import stamp
from orchestrator.runtime.entropy import SeededEntropy
from tests.clock import FakeClock

REPO = RepoName("sample")


REFUSED = (
    sqlite3.IntegrityError,
    psycopg.IntegrityError,
    psycopg.DataError,
)  # by the schema, of a raw statement


@dataclass
class Store:
    """One database and what a test does to it."""

    database: Database
    clock: FakeClock
    entropy: SeededEntropy = field(default_factory=SeededEntropy)
    url: str | None = None  # of PostgreSQL

    @property
    def path(self) -> Path:
        assert isinstance(self.database, SqliteDatabase)
        return self.database.path

    @property
    def place(self) -> str:
        """Where it is, for people on this side."""
        return place_of(self.url or f"sqlite://{self.path}")

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

    def rows(self, query: str, params: Mapping[str, object] | None = None) -> list[Any]:
        """What the database holds, seen from a connection beside the product's."""
        if self.url is not None:
            return self._on_postgres(query, params).fetchall()
        with closing(connect(self.path, self.clock, readonly=True)) as connection:
            return connection.execute(query, params or {}).fetchall()

    def raw(self, statement: str, params: Mapping[str, object] | None = None) -> int:
        """Write past the product's code, as a person with a database's shell would; the guards of the schema hold."""
        if self.url is not None:
            return self._on_postgres(statement, params).rowcount
        with closing(connect(self.path, self.clock)) as connection:
            return connection.execute(statement, params or {}).rowcount

    def refuse(self, name: str, table: str, event: str, because: str, *, when: str = "true") -> None:
        """A guard that the product does not know: such a row cannot be written."""
        if self.url is not None:
            self.raw(f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW WHEN ({when}) "
                     f"EXECUTE FUNCTION refuse('{because}')")  # fmt: skip
        else:
            self.raw(f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {when} "
                     f"BEGIN SELECT RAISE(ABORT, '{because}'); END")  # fmt: skip

    def drop_guard(self, name: str, table: str) -> None:
        """As somebody with rights might."""
        self.raw(f"DROP TRIGGER {name}" + (f" ON {table}" if self.url is not None else ""))

    def _on_postgres(self, text: str, params: Mapping[str, object] | None) -> "psycopg.Cursor[Any]":
        assert self.url is not None
        with closing(psycopg.connect(self.url, autocommit=True, row_factory=both_ways)) as connection:
            connection.execute("SELECT set_config('orch.now', %s, false)", [stamp(self.clock.utc())])
            return connection.execute(translated(text).encode(), params or {})


def shell(url: str, text: str, *values: object) -> list[Any]:
    """Past the product, as a person with a database's shell would; the rows that it answers, by name and position."""
    if url.startswith("postgresql://"):
        with closing(psycopg.connect(url, autocommit=True, row_factory=both_ways)) as connection:
            cursor = connection.execute(translated(text).replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []
    file = f"file:{url.removeprefix('sqlite://')}?mode=rw"
    with closing(sqlite3.connect(file, uri=True, timeout=30, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(text, values).fetchall()


NO_TABLE = (sqlite3.OperationalError, psycopg.errors.UndefinedTable)  # nothing has been made yet


class Both(tuple[Any, ...]):
    """A row by position and by name, as SQLite's are."""

    names: Sequence[str] = ()

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names.index(key) if isinstance(key, str) else key)

    def keys(self) -> Sequence[str]:
        return self.names


def both_ways(cursor: "psycopg.Cursor[Any]") -> Callable[[Sequence[Any]], Both]:
    names = [column.name for column in cursor.description or ()]

    def row(values: Sequence[Any]) -> Both:
        made = Both(values)
        made.names = names
        return made

    return row


def open_store(path: Path, clock: FakeClock) -> Store:
    """Migrate, open, and register the sample repository."""
    entropy = SeededEntropy()
    init_db(path, clock=clock, entropy=entropy)
    database = SqliteDatabase(path, clock=clock)
    add_sample(database)
    return Store(database, clock, entropy)


def add_sample(database: Database) -> None:
    """Register the sample repository."""
    with database.write() as tx:
        repositories.add(tx, Repository(REPO, "local", "/nowhere", "SMP"))


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


def on_each(names: str, everywhere: list[Any], on_sqlite: list[Any]) -> pytest.MarkDecorator:
    """Cases for both databases, and cases that only SQLite can hold."""
    cases = [
        pytest.param(kind, *case.values, id=f"{kind}-{case.id}")
        for kind, known in (("sqlite", [*everywhere, *on_sqlite]), ("postgres", everywhere))
        for case in known
    ]
    return pytest.mark.parametrize(f"database_kind,{names}", cases, indirect=["database_kind"])


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    """Where the ledger of a test is: as the test or its folder asks for it, else as the command line does."""
    return str(getattr(request, "param", request.config.getoption("--database")))


@pytest.fixture
def store(request: pytest.FixtureRequest, database_kind: str, fake_clock: FakeClock) -> Iterator[Store]:
    if database_kind == "sqlite":
        opened = open_store(request.getfixturevalue("tmp_path") / "orch.db", fake_clock)
    else:
        url = request.getfixturevalue("postgres_url")
        opened = Store(PostgresDatabase(url, clock=fake_clock), fake_clock, url=url)
        add_sample(opened.database)
    yield opened
    opened.database.close()
