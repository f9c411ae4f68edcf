"""Copies a whole ledger from a SQLite file into an empty PostgreSQL database, or back.

Must hold: the target has all of it or nothing of it, and what it has is read again and compared before it is committed.
The source is not touched. Guards of the schema are off for the rows, which passed them once; keys and checks are not.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from orchestrator.db.file_lock import own_file
from orchestrator.db.migrate import init_db
from orchestrator.db.migrate_postgres import init_postgres
from orchestrator.db.opening import file_of, place_of
from orchestrator.db.postgres import BEGIN_READ
from orchestrator.db.postgres_connection import connecting, database_error
from orchestrator.db.sqlite import connect
from orchestrator.domain.errors import ConfigError, DatabaseError, RequestRefused
from orchestrator.domain.ids import BootId
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy

ITS_OWN = frozenset({"installation", "schema_version"})  # what a database without any ledger has in it
NOT_COPIED = "schema_version"  # each has its own number
BATCH = 1000
LOST_CHARACTER = "\ufffd"  # PostgreSQL's text holds no NUL

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied."""

    tables: int
    rows: int


class Ledger(Protocol):
    """One side, inside one transaction."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        """All rows in any order, a NUL in a text replaced."""
        ...


class Target(Ledger, Protocol):
    """The side that is filled."""

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> int:
        """Store rows; how many."""
        ...

    def clear(self, table: str) -> None:
        """Take every row out."""
        ...

    def ready(self) -> None:
        """Let the guards be on again, and numbers go on where they stand."""
        ...


def copy_ledger(
    source: str,
    target: str,
    *,
    by: BootId,
    state_id: str | None,
    alone: Callable[[], None],
    owned: Path,
    clock: Clock,
    entropy: Entropy,
) -> Copied:
    """Copy everything but that the process ``by`` is at work, which nobody would ever take out of the target.

    ``state_id``: of the state folder that the copy belongs to; None where it will lie in the folder itself.

    ``alone`` raises where somebody works on ``source``: asked before, and again before the commit, for what has been
    stored there meanwhile is not in the copy. ``owned`` is the file that this process has locked already; it may be the
    target.

    :raises ConfigError: not one of the two is a file and the other a server's.
    :raises RequestRefused: there is a ledger in the target already; it was not changed.
    :raises StateInUse: the target is in use.
    :raises DatabaseError: one of them cannot be read or written, or holds what the other cannot; nothing was copied.
    """
    if (file_of(source) is None) == (file_of(target) is None):
        raise ConfigError(
            "A ledger is copied from a SQLite file to a PostgreSQL database, or back; nothing was copied.",
            hint="From file to file copy the file; from server to server use pg_dump.",
        )
    alone()
    with _opened(source, clock) as old, _filled(target, owned, clock, entropy) as new:
        tables = _tables(next(side for side in (old, new) if isinstance(side, _Sqlite)))
        taken = [name for name in tables if name not in ITS_OWN and next(new.rows(name, tables[name]), None)]
        if taken:
            raise RequestRefused(
                f"There is a ledger in {place_of(target)} already ({', '.join(taken[:3])} …); nothing was copied.",
                hint="Name an empty database, or a file that is not there yet.",
            )
        new.clear("installation")
        copied = _AsCopied(old, by, state_id)
        stored = sum(_copy(copied, new, table, columns) for table, columns in tables.items())
        new.ready()
        alone()
        return Copied(len(tables), stored)


@dataclass(frozen=True, slots=True)
class _AsCopied:
    """A side without what says that a process is at work, and with the state folder of the copy."""

    side: Ledger
    boot_id: BootId
    state_id: str | None

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        """See :class:`Ledger`."""
        rows = self.side.rows(table, columns)
        if table == "installation":
            at = columns.index("state_id")
            return ((*row[:at], self.state_id, *row[at + 1 :]) for row in rows)
        if table != "processes":
            return rows
        own = columns.index("boot_id")
        return (row for row in rows if row[own] != self.boot_id)


def _copy(old: Ledger, new: Target, table: str, columns: Sequence[str]) -> int:
    """One table, read again and compared."""
    stored = new.fill(table, columns, old.rows(table, columns))
    if _digest(old.rows(table, columns)) != _digest(new.rows(table, columns)):
        raise DatabaseError(
            f"The table {table} reads otherwise in the copy than in what was copied.",
            hint="Nothing was copied. It holds values that the other database stores in another way: report this.",
        )
    return stored


def _digest(rows: Iterable[Row]) -> str:
    """Of all rows, whatever order the database sorts texts in."""
    count = total = 0
    for row in rows:
        count += 1
        total += int.from_bytes(hashlib.sha256(repr(row).encode("utf-8", "surrogatepass")).digest()[:16])
    return f"{count}:{total}"


def _tables(side: "_Sqlite") -> dict[str, tuple[str, ...]]:
    """Tables with their columns, those first to which others refer; SQLite tells of both databases, for their schemas
    have the same tables."""
    connection = side.connection
    named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    waiting = {
        name: {row["table"] for row in connection.execute(f"PRAGMA foreign_key_list({name})")} - {name}
        for (name,) in connection.execute(named)
        if name != NOT_COPIED
    }
    ordered: dict[str, tuple[str, ...]] = {}
    while waiting:
        free = sorted(name for name, needs in waiting.items() if needs <= ordered.keys())
        for name in free:
            ordered[name] = tuple(row["name"] for row in connection.execute(f"PRAGMA table_info({name})"))
            del waiting[name]
        if not free:
            raise DatabaseError(
                f"These tables refer to each other in a circle: {', '.join(sorted(waiting))}."
            )
    return ordered


def _named(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _select(table: str, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL("SELECT {} FROM {}").format(_named(columns), sql.Identifier(table))


def _delete(table: str) -> sql.Composed:
    return sql.SQL("DELETE FROM {}").format(sql.Identifier(table))


# --- a SQLite file ----------------------------------------------------------------------------------------------------


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self._path = path
        self._guards = [
            (row["name"], row["sql"])
            for row in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        ]

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        declared = {
            row["name"]: row["type"] for row in self.connection.execute(f"PRAGMA table_info({table})")
        }
        of_bytes = [declared[name] == "BLOB" for name in columns]
        try:
            for row in self.connection.execute(_select(table, columns).as_string()):
                yield tuple(map(_storable, row, of_bytes, repeat(table)))
        except sqlite3.Error as error:
            raise DatabaseError(f"The table {table} in {self._path} cannot be read: {error}.") from error

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> int:
        command = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table), _named(columns), sql.SQL(", ").join([sql.SQL("?")] * len(columns))
        )
        return self.connection.executemany(command.as_string(), rows).rowcount

    def clear(self, table: str) -> None:
        self.connection.execute(_delete(table).as_string())

    def unguarded(self) -> None:
        for name, _ in self._guards:
            self.connection.execute(f'DROP TRIGGER "{name}"')

    def ready(self) -> None:
        for _, text in self._guards:
            self.connection.execute(text)


def _storable(value: object, of_bytes: bool, table: str) -> object:
    """Where bytes belong, nothing else is taken, and where they do not, no bytes: the other database would not."""
    if value is not None and isinstance(value, bytes) is not of_bytes:
        wrong, right = "bytes", "a text or a number belongs"
        if of_bytes:
            wrong, right = "a text or a number", "bytes belong"
        raise DatabaseError(
            f"A row of {table} holds {wrong} where {right}: the file is damaged, or was written to by hand. "
            "Nothing was copied.",
            hint="Correct the row, or restore a backup.",
        )
    return value.replace("\0", LOST_CHARACTER) if isinstance(value, str) else value


# --- a database of PostgreSQL -----------------------------------------------------------------------------------------


class _Postgres:
    def __init__(self, connection: psycopg.Connection[DictRow]) -> None:
        self._connection = connection
        self._filled: list[str] = []

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        with self._connection.cursor(f"rows_{table}") as cursor:
            cursor.itersize = BATCH
            for row in cursor.execute(_select(table, columns)):
                yield tuple(row.values())

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> int:
        self._connection.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(sql.Identifier(table)))
        self._filled.append(table)
        command = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), _named(columns))
        with self._connection.cursor() as cursor:
            with cursor.copy(command) as copy:
                for row in rows:
                    copy.write_row(row)
            return cursor.rowcount

    def clear(self, table: str) -> None:
        self._connection.execute(_delete(table))

    def ready(self) -> None:
        for table in self._filled:
            name = sql.Identifier(table)
            self._connection.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(name))
            numbered = self._connection.execute(
                "SELECT pg_get_serial_sequence(%s, column_name) AS sequence FROM information_schema.columns "
                "WHERE table_schema = current_schema() AND table_name = %s AND column_name = 'id' "
                "AND is_identity = 'YES'",
                (table, table),
            ).fetchone()
            if numbered is not None:
                self._connection.execute(
                    sql.SQL("SELECT setval(%s, greatest(max(id), 1), max(id) IS NOT NULL) FROM {}").format(
                        name
                    ),
                    (numbered["sequence"],),
                )


# --- opening ----------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(url: str, clock: Clock) -> Iterator["_Sqlite | _Postgres"]:
    """One snapshot of the source."""
    path = file_of(url)
    if path is not None:
        with closing(connect(path, clock, readonly=True)) as connection:
            connection.execute("BEGIN")
            yield _Sqlite(connection, path)
        return
    with _talking(url) as server:
        server.execute(BEGIN_READ.encode())
        yield _Postgres(server)


@contextmanager
def _filled(url: str, owned: Path, clock: Clock, entropy: Entropy) -> Iterator["_Sqlite | _Postgres"]:
    """The target at this version's schema, in a transaction that is committed where the block does not raise."""
    path = file_of(url)
    if path is None:
        init_postgres(url, entropy=entropy)
        with _talking(url) as server, server.transaction():
            yield _Postgres(server)
        return
    # With a server as the source our lock is a shared one; nobody else is there (``alone``), nor can own the file.
    with nullcontext() if path.resolve() == owned.resolve() else own_file(path, role="db copy"):
        init_db(path, clock=clock, entropy=entropy)
        with closing(connect(path, clock)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("PRAGMA defer_foreign_keys=ON")  # until the commit
            side = _Sqlite(connection, path)
            try:
                side.unguarded()
                yield side
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise DatabaseError(f"{path} takes not everything: {error}. Nothing was copied.") from error


@contextmanager
def _talking(url: str) -> Iterator[psycopg.Connection[DictRow]]:
    try:
        with connecting(url) as connection:
            yield connection
    except psycopg.Error as error:
        raise database_error(error, place_of(url), hint="Nothing was copied.") from error
