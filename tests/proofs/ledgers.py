"""Where the database of a world lies, and its copies: SQLite files, or databases of one PostgreSQL server.

A database is named by a path in the folder of its world. On a server the file at that path holds nothing but the name
of the database; a folder that was copied says so by itself which databases have to be copied with it.
"""

import itertools
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from orchestrator.db.migrate_postgres import init_postgres
from orchestrator.db.postgres_text import translated
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from tests.fixtures_db import both_ways
from tests.postgres_server import PostgresServer, dump, running_postgres, turn_clock

INSIDE_S = 0.3  # whoever is that long in the middle of a write stays there
SETTLE_S = 10.0
IDLE_INSIDE = """
SELECT EXTRACT(epoch FROM clock_timestamp() - state_change)::float AS seconds FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
  AND backend_xid IS NOT NULL
"""
AT_WORK = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'
  AND wait_event_type IS DISTINCT FROM 'Lock'
"""
END_OTHERS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"


class Ledgers(Protocol):
    """One kind of database and what is done to it past the product's code."""

    lets_go: bool
    """Whether a process that stands still inside a write loses its locks by itself."""

    def of(self, root: Path) -> Path:
        """The path that names a world's own database."""
        ...

    def variables(self, database: Path) -> Mapping[str, str]:
        """How the service is told of it."""
        ...

    def make(self, database: Path, *, since: str, speed: float) -> None:
        """What has to be there before the service's first start. Its clock runs ``speed`` times as fast as the
        machine's, with which it agreed then."""
        ...

    def copy(self, source: Path, target: Path) -> None:
        """Put a copy of one database in another's place; no service runs on either."""
        ...

    def copied(self, folder: Path) -> None:
        """A folder is a copy of another one: give it databases of its own."""
        ...

    def forget(self, folder: Path) -> None:
        """A folder is about to be removed."""
        ...

    def write_out(self, folder: Path) -> None:
        """Keep what is in a folder's databases for a person to look at, when no server is there any more."""
        ...

    def rows(self, database: Path, question: str, values: Sequence[object]) -> list[Any]:
        """An answer, read beside whoever owns it: rows by name and by position."""
        ...

    def change(self, database: Path, statement: str) -> None:
        """Write, as a person with a database's shell would."""
        ...

    def unguard(self, database: Path, table: str, *triggers: str) -> None:
        """Take these guards of a table out, or all that it has."""
        ...

    def held(self, database: Path) -> bool:
        """Whether somebody is in the middle of a write transaction, and stays there."""
        ...

    def settle(self, database: Path) -> None:
        """Wait until nothing changes any more that was asked for by somebody who is dead or stands still."""
        ...


class Files:
    """SQLite."""

    lets_go = False

    def of(self, root: Path) -> Path:
        return root / "state" / "orchestrator.db"

    def variables(self, database: Path) -> Mapping[str, str]:
        return {}  # it lies where it lies without being told

    def make(self, database: Path, *, since: str, speed: float) -> None:
        """The service makes it, and judges time by its own clock."""

    def copy(self, source: Path, target: Path) -> None:
        """``sqlite3 … ".backup …"``, or ``.restore``."""
        with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)

    def copied(self, folder: Path) -> None:
        """The files were copied with it."""

    def forget(self, folder: Path) -> None:
        """Nor does anything stay behind."""

    def write_out(self, folder: Path) -> None:
        """They can be looked at."""

    def rows(self, database: Path, question: str, values: Sequence[object]) -> list[Any]:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(question, values).fetchall()

    def change(self, database: Path, statement: str) -> None:
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(statement)

    def unguard(self, database: Path, table: str, *triggers: str) -> None:
        known = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
        for name in triggers or [row["name"] for row in self.rows(database, known, (table,))]:
            self.change(database, f"DROP TRIGGER {name}")

    def held(self, database: Path) -> bool:
        with closing(sqlite3.connect(database, timeout=INSIDE_S, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return True
        return False

    def settle(self, database: Path) -> None:
        """Who is dead changes nothing."""


class Databases:
    """PostgreSQL."""

    lets_go = True

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        # A question every few milliseconds: each process keeps its connections, and touches no other's.
        self._connections: dict[tuple[int, str], psycopg.Connection[Any]] = {}

    def of(self, root: Path) -> Path:
        return root / "orchestrator.db"

    def variables(self, database: Path) -> Mapping[str, str]:
        return {"ORCH_DATABASE_URL": self._server.url(database.read_text())}

    def make(self, database: Path, *, since: str, speed: float) -> None:
        self._create(database, "template0")
        address = self._server.url(database.read_text())
        init_postgres(address, entropy=SystemEntropy())
        turn_clock(address, speed=speed, since=since)

    def copy(self, source: Path, target: Path) -> None:
        """A new database, as ``pg_restore`` would make it; the old one is gone."""
        self._drop(target)
        self._create(target, self._left_alone(source))

    def copied(self, folder: Path) -> None:
        for path in folder.glob("*.db"):
            self._create(path, self._left_alone(path))

    def forget(self, folder: Path) -> None:
        for path in folder.glob("*.db"):
            self._drop(path)

    def write_out(self, folder: Path) -> None:
        for path in folder.glob("*.db"):
            dump(self._server.url(path.read_text()), path.with_suffix(".sql"))

    def rows(self, database: Path, question: str, values: Sequence[object]) -> list[Any]:
        text = translated(question).replace("?", "%s").encode()
        return self._connection(database.read_text()).execute(text, values).fetchall()

    def change(self, database: Path, statement: str) -> None:
        self._connection(database.read_text()).execute(translated(statement).encode(), [])

    def unguard(self, database: Path, table: str, *triggers: str) -> None:
        for name in triggers or ["USER"]:
            self.change(database, f"ALTER TABLE {table} DISABLE TRIGGER {name}")

    def held(self, database: Path) -> bool:
        clock, never = SystemClock(), threading.Event()
        end = clock.boottime() + 2 * INSIDE_S
        while clock.boottime() < end and (inside := self.rows(database, IDLE_INSIDE, ())):
            if any(row["seconds"] > INSIDE_S for row in inside):
                return True
            never.wait(INSIDE_S / 10)
        return False

    def settle(self, database: Path) -> None:
        clock, never = SystemClock(), threading.Event()
        end = clock.boottime() + SETTLE_S
        while self.rows(database, AT_WORK, ()) and clock.boottime() < end:
            never.wait(0.005)

    def _create(self, path: Path, template: str) -> None:
        name = f"world_{next(self._numbers)}"
        self._server.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        path.write_text(name)

    def _drop(self, path: Path) -> None:
        if path.exists():
            self._server.drop(self._server.url(self._left_alone(path)))

    def _left_alone(self, path: Path) -> str:
        """The name of a database to which nobody is connected any more."""
        name = path.read_text()
        kept = self._connections.pop((os.getpid(), name), None)
        if kept is not None:
            kept.close()
        with closing(psycopg.connect(self._server.url("postgres"), autocommit=True)) as connection:
            connection.execute(END_OTHERS, [name])
        return name

    def _connection(self, name: str) -> "psycopg.Connection[Any]":
        key = (os.getpid(), name)
        if key not in self._connections:
            url = self._server.url(name)
            self._connections[key] = psycopg.connect(url, autocommit=True, row_factory=both_ways)
        return self._connections[key]


FILES = Files()


@contextmanager
def ledgers_of(kind: str) -> Iterator[Ledgers]:
    """``sqlite``, or ``postgres``: a server for the length of the block, which dies with this process."""
    if kind == "sqlite":
        yield FILES
        return
    with running_postgres() as server:
        yield Databases(server)
