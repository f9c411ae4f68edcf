"""Opens the database that an address names: a SQLite file, or a database of a PostgreSQL server.

Whoever has a file does not load the driver of a server.
"""

import os
from pathlib import Path

from orchestrator.db.database import Database
from orchestrator.db.migrate import init_db
from orchestrator.db.sqlite import SqliteDatabase
from orchestrator.domain.errors import ConfigError
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.waypoints import Waypoints

FILE = "sqlite://"


def open_migrated(url: str, *, clock: Clock, entropy: Entropy, waypoints: Waypoints) -> Database:
    """The database, brought up to date. A server judges time by its own clock (law 12).

    :raises SchemaError: it belongs to a newer version, or is not ours.
    :raises DatabaseError: it cannot be reached, read or written.
    """
    path = file_of(url)
    if path is not None:
        init_db(path, clock=clock, entropy=entropy)
        return SqliteDatabase(path, clock=clock, waypoints=waypoints)
    from orchestrator.db.migrate_postgres import init_postgres
    from orchestrator.db.postgres import PostgresDatabase

    init_postgres(url, entropy=entropy)
    return PostgresDatabase(url, waypoints=waypoints)


def open_to_look(url: str, *, clock: Clock) -> Database:
    """The database beside whoever owns it, as it is; every write is refused.

    :raises DatabaseError: there is none, or it cannot be read.
    """
    path = file_of(url)
    if path is not None:
        return SqliteDatabase(path, clock=clock, readonly=True)
    from orchestrator.db.postgres import PostgresDatabase

    return PostgresDatabase(url, readonly=True, max_connections=1)


def has_state(url: str) -> bool:
    """Whether there is a database of ours already.

    :raises DatabaseError: its server does not answer, or does not let us in.
    :raises SchemaError: what is there is not ours.
    """
    path = file_of(url)
    if path is not None:
        _refuse_a_folder(path)
        return path.exists()
    return schema_of(url) > 0


def would_open(url: str, home: Path) -> bool:
    """Whether there is a database of ours already, where a start could use or make one. Makes nothing.

    :raises ConfigError: the URL cannot be that of a file.
    :raises DatabaseError: a start would be refused.
    :raises SchemaError: what is there is not ours.
    """
    path = file_of(url)
    if path is not None:
        refuse_unusable_place(url, home)
        return path.exists()
    from orchestrator.db import migrate_postgres

    return migrate_postgres.would_open(url) > 0


def refuse_unusable_place(url: str, home: Path) -> None:
    """See that the URL's SQLite file may lie where it says. ``home``: the state folder, which is made where it is not.

    :raises ConfigError: it may not.
    """
    path = file_of(url)
    if path is None:
        return
    _refuse_a_folder(path)
    folder = path.parent
    if folder in (home, *home.parents):
        return
    if not folder.is_dir():
        raise ConfigError(
            f"ORCH_DATABASE_URL puts the database into {folder}, and there is no such folder.",
            hint="Make that folder, or name another file in ORCH_DATABASE_URL.",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"ORCH_DATABASE_URL puts the database into {folder}, which cannot be written.",
            hint="Make that folder writable for this user, or name another file in ORCH_DATABASE_URL.",
        )


def _refuse_a_folder(path: Path) -> None:
    if path.is_dir():
        raise ConfigError(
            f"ORCH_DATABASE_URL names {path}, which is a folder and no file.",
            hint=f"Name a file, such as sqlite://{path}/orchestrator.db.",
        )


def schema_of(url: str) -> int:
    """The number of the schema that a server's database has; 0: there is none of ours.

    :raises DatabaseError: its server does not answer, or does not let us in.
    :raises SchemaError: what is there is not ours.
    """
    from orchestrator.db.migrate_postgres import schema_of_server

    return schema_of_server(url)


def place_of(url: str) -> str:
    """Where it is, for people: a path, or a server's name; never a user or a password."""
    path = file_of(url)
    if path is not None:
        return str(path)
    from orchestrator.db.postgres_connection import server_of

    return server_of(url)


def file_of(url: str) -> Path | None:
    """The SQLite file; None where the database is a server's."""
    return Path(url.removeprefix(FILE)) if url.startswith(FILE) else None
