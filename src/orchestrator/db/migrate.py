"""Brings a database to this version's schema, one numbered step at a time.

Additive, idempotent, safe to interrupt: each step and its number are one transaction. A newer database is
refused untouched.
"""

import os
import re
import sqlite3
from contextlib import closing
from importlib.resources import files
from pathlib import Path

from orchestrator.db.sqlite import connect
from orchestrator.domain.errors import DatabaseError, SchemaError
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy

APPLICATION_ID = 0x4F524348  # "ORCH" in the file's header: tells our databases from others'
_ADDS_COLUMN = re.compile(r"^ALTER TABLE (?P<table>\w+) ADD COLUMN (?P<column>\w+) ", re.MULTILINE)
_NUMBERED = re.compile(r"^(\d{4})_\w+\.sql$")


def init_db(path: Path, *, clock: Clock, entropy: Entropy) -> int:
    """Create or migrate the database and return the number of its schema.

    :raises SchemaError: it was written by a newer version, or is not ours.
    :raises DatabaseError: it cannot be opened or written.
    """
    steps = migrations()
    newest = max(steps)
    _create_private(path)
    try:
        if path.stat().st_size:
            _refuse_what_is_not_ours(path, clock, newest)
        with closing(connect(path, clock)) as connection:
            for number in sorted(steps):
                _apply(connection, path, number, steps[number])
            connection.execute(
                "INSERT INTO installation (one, installation_id, created_at) VALUES (1, ?, utc_now()) "
                "ON CONFLICT DO NOTHING",
                (entropy.token(16),),
            )
    except sqlite3.Error as error:
        raise DatabaseError(f"The database {path} could not be brought up to date: {error}.") from error
    return newest


def _create_private(path: Path) -> None:
    """An empty file of mode 0600 where there is none: the log beside it gets the same mode from SQLite."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise DatabaseError(
            f"The database {path} cannot be opened: {error.strerror}.",
            hint="Check that the state folder exists and is writable.",
        ) from error


def _refuse_what_is_not_ours(path: Path, clock: Clock, newest: int) -> None:
    """Looks read-only, before a connection of ours would switch the file's journal."""
    with closing(connect(path, clock, readonly=True)) as connection:
        connection.execute("BEGIN")  # one state: another process may be making the schema just now
        found = _version(connection, path)
    if found > newest:
        raise SchemaError(
            f"The database {path} has schema {found}; this version of orch knows {newest}.",
            hint="Nothing was changed. Start the newer version, or restore a backup from before the upgrade.",
        )


def migrations(dialect: str = "sqlite") -> dict[int, str]:
    """Number → SQL of every step this version knows, in order and without a gap."""
    folder = files("orchestrator.db").joinpath("migrations", dialect)
    found = {int(m[1]): entry for entry in folder.iterdir() if (m := _NUMBERED.match(entry.name))}
    first = min(found)  # the databases that came later begin with the whole schema of their time
    return {number: found[number].read_text(encoding="utf-8") for number in range(first, first + len(found))}


def newest() -> int:
    """The number of this version's schema, which is the same on both databases."""
    return max(migrations())


def schema_of(connection: sqlite3.Connection) -> str:
    """The schema as text, for comparison and for the reference page."""
    rows = connection.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type = 'trigger', type = 'index', tbl_name, name"
    )
    return "\n\n".join(f"{row[0]};" for row in rows)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    try:
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.OperationalError:
        raise  # busy, unreadable: says nothing about whose it is
    except sqlite3.DatabaseError as error:
        raise SchemaError(
            f"{path} cannot be read as a database: {error}.",
            hint="Nothing was changed. Name another file in ORCH_DATABASE_URL, or move this one away.",
        ) from error
    if application != APPLICATION_ID and (application or version or tables):
        raise SchemaError(
            f"{path} is a database, but not one of orch.",
            hint="Nothing was changed. Name another file in ORCH_DATABASE_URL, or move this one away.",
        )
    return version


def _apply(connection: sqlite3.Connection, path: Path, number: int, sql: str) -> None:
    """One step and its number, in one transaction; nothing where somebody has been there before."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection, path) >= number:
            connection.execute("ROLLBACK")
            return
        for single in split_statements(sql):
            apply_statement(connection, single)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {number:d}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def apply_statement(connection: sqlite3.Connection, statement: str) -> None:
    """Execute one statement of a step; a column that is there already is not added again."""
    added = _ADDS_COLUMN.search(statement)
    if added is not None:
        known = connection.execute("SELECT name FROM pragma_table_info(?)", (added["table"],)).fetchall()
        if added["column"] in [row[0] for row in known]:
            return
    connection.execute(statement)


def split_statements(sql: str) -> list[str]:
    """The statements of a script; unlike ``executescript`` this lets them share the caller's transaction."""
    found, current = [], ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    return found
