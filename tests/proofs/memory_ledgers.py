"""The database of a scenario in memory: made once, and before each run again what it was when it was kept."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

import psycopg

from orchestrator.db.database import Database
from orchestrator.db.migrate import init_db
from orchestrator.db.migrate_postgres import init_postgres
from orchestrator.db.postgres import PostgresDatabase
from orchestrator.db.sqlite import SqliteDatabase, connect
from orchestrator.runtime.entropy import SeededEntropy
from tests.clock import FakeClock
from tests.postgres_server import PostgresServer, running_postgres
from tests.proofs.ledger_reader import LedgerReader

PATIENCE_S = 600.0  # whoever is held inside a transaction may stay there for as long as a run takes
TABLES = (
    b"SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"
)
NUMBERS = b"SELECT sequencename, coalesce(last_value, 1), last_value IS NOT NULL FROM pg_sequences"
GUARD = "SELECT tgrelid::regclass FROM pg_trigger WHERE tgname = %s"
RUNS = 100  # between two times of clearing what deleted rows have left


class MemoryLedger(Protocol):
    """One kind of database under a scenario."""

    clock: FakeClock
    by_statement: bool
    """Whether others may come between two statements of one transaction that writes."""

    def open(self) -> Database:
        """The product's way to it; whoever opens it closes it."""
        ...

    def reader(self) -> LedgerReader:
        """A judge's way to it."""
        ...

    def keep(self) -> None:
        """What it holds now is what each run begins with; nobody has it open."""
        ...

    def begin(self) -> None:
        """Be what was kept; nobody has it open."""
        ...

    def drop_guard(self, name: str) -> None:
        """Take away a trigger of the schema."""
        ...

    def close(self) -> None:
        """It is needed no more."""
        ...


class FileLedger:
    """SQLite: one writer at a time, so that a transaction is one step."""

    by_statement = False

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.clock = FakeClock()
        self.path = folder / "run.db"
        self._kept = folder / "kept.db"
        init_db(self.path, clock=self.clock, entropy=SeededEntropy())

    def open(self) -> SqliteDatabase:
        return SqliteDatabase(self.path, clock=self.clock)

    def reader(self) -> LedgerReader:
        return LedgerReader.of_file(self.path)

    def keep(self) -> None:
        shutil.copyfile(self.path, self._kept)

    def begin(self) -> None:
        for name in ("", "-wal", "-shm"):
            Path(f"{self.path}{name}").unlink(missing_ok=True)
        shutil.copyfile(self._kept, self.path)

    def drop_guard(self, name: str) -> None:
        with closing(connect(self.path, self.clock)) as connection:
            connection.execute(f"DROP TRIGGER {name}")

    def close(self) -> None:
        """The folder goes with everything in it."""


class ServerLedger:
    """PostgreSQL: transactions side by side under READ COMMITTED, each statement a step."""

    by_statement = True

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.clock = FakeClock()
        self.url = server.new_database()
        init_postgres(self.url, entropy=SeededEntropy())
        self._database = PostgresDatabase(self.url, clock=self.clock, idle_s=PATIENCE_S)
        self._aside = psycopg.connect(self.url, autocommit=True)
        self._begin = b""
        self._runs = 0

    def open(self) -> Database:
        return _Shared(self._database)

    def reader(self) -> LedgerReader:
        return LedgerReader.of_server(self.url)

    def keep(self) -> None:
        """Aside, in a schema that the product does not see."""
        ask = self._aside.execute
        tables = [str(name) for (name,) in ask(TABLES)]
        ask(b"DROP SCHEMA IF EXISTS kept CASCADE")
        ask(b"CREATE SCHEMA kept")
        for name in tables:
            ask(f"CREATE TABLE kept.{name} AS TABLE public.{name}".encode())
        parts = [
            "SET session_replication_role = replica",  # the guards would not let go of anything
            *(f"DELETE FROM {name}" for name in tables),
            *(f"INSERT INTO {name} SELECT * FROM kept.{name}" for name in tables),
            *(f"SELECT setval('{name}', {value}, {used})" for name, value, used in ask(NUMBERS)),
        ]
        self._begin = "; ".join(parts).encode()

    def begin(self) -> None:
        self._aside.execute(self._begin)
        self._runs += 1
        if self._runs % RUNS == 0:
            self._aside.execute(b"VACUUM")

    def drop_guard(self, name: str) -> None:
        for (table,) in self._aside.execute(GUARD, [name]).fetchall():
            self._aside.execute(f"DROP TRIGGER {name} ON {table}".encode())

    def blocked(self, backend: int) -> bool:
        """Whether a connection waits for a lock that another one has."""
        row = self._aside.execute(b"SELECT cardinality(pg_blocking_pids(%s)) > 0", [backend]).fetchone()
        return row is not None and bool(row[0])

    def close(self) -> None:
        self._database.close()
        self._aside.close()
        self._server.drop(self.url)


NewLedger = Callable[[], MemoryLedger]


@contextmanager
def new_ledgers(kind: str, folder: Path) -> Iterator[NewLedger]:
    """Makes them: ``sqlite`` in ``folder``, or ``postgres`` on a server for the length of the block."""
    numbers = itertools.count()
    if kind == "sqlite":
        yield lambda: FileLedger(folder / str(next(numbers)))
        return
    with running_postgres() as server:
        yield lambda: ServerLedger(server)


class _Shared:
    """Everybody's pool; it is closed with the ledger."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.write, self.read = database.write, database.read

    def close(self) -> None:
        """Others may need it."""
