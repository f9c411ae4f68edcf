"""Databases of a PostgreSQL of the benchmark's own to measure on: the binaries of the tests, on a unix socket, with
everything on that makes a commit durable.

Its data stay in the folder, so that large databases are built once. Where the folder's path is too long for a socket,
or the user that a server runs as may not come there, a temporary one is taken instead and nothing is kept.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.bare import Bare, BarePostgres
from benchmarks.database import LIVE, REFILL, Store, batches, build, fingerprint, history
from orchestrator.db.database import Database
from orchestrator.db.migrate_postgres import init_postgres
from orchestrator.db.postgres import PostgresDatabase
from orchestrator.domain.ids import TaskId
from orchestrator.runtime.entropy import SystemEntropy
from tests.postgres_server import (
    LONGEST_SOCKET,
    PostgresServer,
    for_everybody,
    postgres_version,
    short_folder,
    start_postgres,
    stop_postgres,
)

SETTINGS = {  # as the peers were measured, but for the socket
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "2GB",
    "max_connections": "200",
    "listen_addresses": "",
    "jit": "off",
}
# Each kind of measurement leaves dead rows behind. No other kind, and no other database, shall pay for them.
TOUCHED = ("jobs", "lanes", "tasks", "transition_epoch", "transition_lease")


@dataclass(frozen=True)
class ServerStore:
    """One database."""

    url: str
    name: str

    def open(self) -> Database:
        return PostgresDatabase(self.url)

    def bare(self) -> Bare:
        return BarePostgres(self.url)

    def movers(self) -> list[TaskId]:
        with closing(psycopg.connect(self.url)) as connection:
            return [TaskId(row[0]) for row in connection.execute(LIVE)]

    def refill(self) -> None:
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            connection.execute(REFILL)
            for table in TOUCHED:
                connection.execute(f"VACUUM {table}".encode())


class Servers:
    """The databases of one server."""

    name = "postgres"
    version = postgres_version()
    sixteen_aim = 1.4

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    def prepared(self, finished: int) -> Store:
        name = f"tasks_{finished}_{fingerprint('postgres')}"
        if self._exists(name):
            return self._store(name)
        half = f"{name}_building"
        self.server.sql(f"DROP DATABASE IF EXISTS {half} WITH (FORCE)")
        self.server.sql(f"CREATE DATABASE {half} TEMPLATE template0")
        store = self._store(half)
        init_postgres(store.url, entropy=SystemEntropy())
        database = store.open()
        build(database, lambda: _fill(store.url, finished))
        database.close()
        with closing(psycopg.connect(store.url, autocommit=True)) as connection:
            connection.execute("VACUUM ANALYZE")
        self.server.sql(f"ALTER DATABASE {half} RENAME TO {name}")
        return self._store(name)

    def copied(self, original: Store, name: str) -> Store:
        assert isinstance(original, ServerStore)
        self.server.sql(f"DROP DATABASE IF EXISTS copy_{name} WITH (FORCE)")
        self.server.sql(f"CREATE DATABASE copy_{name} TEMPLATE {original.name} STRATEGY FILE_COPY")
        os.sync()
        return self._store(f"copy_{name}")

    def discard(self, store: Store) -> None:
        assert isinstance(store, ServerStore)
        self.server.drop(store.url)

    def _store(self, name: str) -> ServerStore:
        return ServerStore(self.server.url(name), name)

    def _exists(self, name: str) -> bool:
        with closing(psycopg.connect(self.server.url("postgres"))) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
            return found.fetchone() is not None


@contextmanager
def serving(folder: Path) -> Iterator[Servers]:
    """A server for the length of the block, with what an earlier one has kept."""
    place = folder / f"postgres-{postgres_version().split()[-1]}"
    kept = len(str(place)) < LONGEST_SOCKET and (os.getuid() != 0 or for_everybody(folder))
    place = place if kept else short_folder()
    place.mkdir(exist_ok=True)
    server = start_postgres(place, SETTINGS)
    try:
        yield Servers(server)
    finally:
        stop_postgres(server)
        if not kept:
            shutil.rmtree(place, ignore_errors=True)


def _fill(url: str, finished: int) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("SET synchronous_commit = off")
        for numbers in batches(finished):
            with connection.transaction():
                for statement in history(numbers[0], numbers[-1]):
                    connection.execute(statement.encode())
        connection.execute(  # numbers that were written are not drawn again
            "SELECT setval(pg_get_serial_sequence('tasks', 'id'), greatest(max(id), 1)) FROM tasks"
        )
