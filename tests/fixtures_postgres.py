"""A real PostgreSQL for the tests that want one.

One server for each worker, started by the first test that asks. Tests find a migrated database without a task in it: it
is emptied behind each, and made anew behind one that has changed the schema. The server dies with the worker.
"""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from orchestrator.db.migrate_postgres import init_postgres
from orchestrator.runtime.entropy import SeededEntropy
from tests.postgres_server import PostgresServer, running_postgres

TABLES = b"SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_version'"
NUMBERS = b"SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'"
SCHEMA = b"SELECT oid FROM pg_class UNION SELECT oid FROM pg_trigger UNION SELECT oid FROM pg_constraint ORDER BY 1"
END_OTHERS = b"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        server.sql(f"CREATE DATABASE {server.migrated}")
        init_postgres(server.url(server.migrated), entropy=SeededEntropy())
        yield server


class Migrated:
    """The one database that a worker's tests use in turn: making one takes ten times as long as emptying it."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._url: str | None = None
        self._schema: object = None
        self._empty = b""

    def url(self) -> str:
        if self._url is None:
            self._url = self._server.new_database(self._server.migrated)
            with closing(psycopg.connect(self._url)) as connection:
                self._schema = connection.execute(SCHEMA).fetchall()
                tables = [name for (name,) in connection.execute(TABLES)]
                numbers = [name for (name,) in connection.execute(NUMBERS)]
            statements = [
                "SET session_replication_role = replica",  # the guards would not let go of anything
                *(f"DELETE FROM {name}" for name in tables),
                *(f"ALTER SEQUENCE {name} RESTART" for name in numbers),
                "INSERT INTO installation (one, installation_id, created_at) VALUES (1, 'of-the-test', utc_now())",
            ]
            self._empty = "; ".join(statements).encode()
        return self._url

    def clean(self) -> None:
        assert self._url is not None
        with closing(psycopg.connect(self._url, autocommit=True)) as connection:
            connection.execute(END_OTHERS)  # a test that failed may have left a transaction open
            if connection.execute(SCHEMA).fetchall() == self._schema:
                connection.execute(self._empty)
                return
        self._server.drop(self._url)
        self._url = None


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: PostgresServer) -> Migrated:
    return Migrated(postgres_server)


@pytest.fixture
def postgres_url(migrated_postgres: Migrated) -> Iterator[str]:
    """A migrated database that holds nothing but its installation."""
    yield migrated_postgres.url()
    migrated_postgres.clean()


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database of the test's own with nothing in it."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop(url)
