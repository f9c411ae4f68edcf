"""Connections to PostgreSQL: how they are made, what is asked of each, and what their errors mean to a person.

A URL holds a password: nothing here repeats it (:func:`server_of` says what may be shown).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg import adapt
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown

from orchestrator.domain.errors import ConfigError, DatabaseError

log = structlog.get_logger(__name__)

OLDEST = 150000  # PostgreSQL 15
DEFAULTS: dict[str, str | int] = {
    "application_name": "orch",
    "connect_timeout": 10,
    # A partition is noticed within a minute; a unix socket knows no such thing and passes over it.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# on waits for the standby where there is one; local and remote_write are durable on this server's own disk at least.
DURABLE = frozenset({"on", "local", "remote_write", "remote_apply"})
NOTHING_STORED = "Nothing of this step was stored; it will be tried again."
UNREACHABLE = "Nothing was started. Does it run, does ORCH_DATABASE_URL name it, can it be reached from here?"
ASKED = """
SELECT pg_backend_pid() AS pid, current_setting('server_version_num')::int AS version,
       current_setting('synchronous_commit') AS synchronous_commit, pg_is_in_recovery() AS standby,
       current_setting('server_encoding') AS encoding, current_setting('client_encoding') AS client_encoding
"""
# Every promotion of a standby, and every restore to a moment, begins a new timeline.
TIMELINE = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) AS timeline"
WHICH = """
SELECT (SELECT system_identifier FROM pg_control_system())::text AS system,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS number
"""
PASSING = frozenset(
    {"08", "40", "53", "55", "57", "58"}
)  # classes of faults that say nothing about the question
HINTS = {
    "42501": "Grant the user of ORCH_DATABASE_URL everything on this database; best, let it own it.",
    "42P01": "The schema is not there: another program has taken it away, or this is another database.",
    "25006": "The server takes no writes: it is a standby, or set to read-only. Name its primary in ORCH_DATABASE_URL.",
    "53100": "The server's disk is full: free space; nothing was half written and work goes on by itself.",
    "53300": "The server has no connection left: raise its max_connections, or start fewer processes.",
    "28P01": "Correct user or password: in ORCH_DATABASE_URL, or in the file that its passfile names.",
    "28000": "Let the user of ORCH_DATABASE_URL in: it has to exist, and the server's pg_hba.conf decides.",
    "3D000": "Create the database first, or name another one in ORCH_DATABASE_URL.",
}
# A refused connection carries no code, only the server's words or libpq's.
REFUSALS = (
    (re.compile(r"password authentication failed|no password supplied", re.IGNORECASE), "28P01"),
    (re.compile(r"no pg_hba\.conf entry|authentication failed|role \".*\" does not exist"), "28000"),
    (re.compile(r"database \".*\" does not exist"), "3D000"),
    (re.compile(r"too many connections|remaining connection slots", re.IGNORECASE), "53300"),
)
NO_PARAMETER = re.compile(r'invalid URI query parameter: "([a-z_]{1,40})"')


@dataclass(frozen=True, slots=True)
class History:
    """What commits of one life all lie on: a server's files, its timeline, and which of its databases by number."""

    system: str
    timeline: str
    number: int


class _Numbers(adapt.Loader):
    """A sum of integers is an integer, as on SQLite; any other NUMERIC a float."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode("ascii")
        return int(text) if text.lstrip("-").isdigit() else float(text)


class _Text(StrDumperUnknown):
    """PostgreSQL's text holds no NUL: what an agent or a ticket has there is stored as the mark of a lost character."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)


def _adapters() -> AdaptersMap:
    found = AdaptersMap(psycopg.adapters)
    found.register_loader("numeric", _Numbers)
    found.register_dumper(str, _Text)
    found.register_dumper(int, Int8Dumper)  # one type for every number: one plan for every statement
    return found


def conninfo_of(url: str) -> str:
    """The URL with our settings, where it says nothing of its own about them.

    :raises ConfigError: it is no URL of a PostgreSQL database.
    """
    said = _parts(url)
    return make_conninfo(url, **{key: value for key, value in DEFAULTS.items() if key not in said})


def server_of(url: str) -> str:
    """Where the database is, for people and for the log: host, port and name; no user, no password.

    :raises ConfigError: it is no URL of a PostgreSQL database.
    """
    said = _parts(url)
    host = said.get("host") or said.get("hostaddr") or "local socket"
    port = f":{said['port']}" if said.get("port") else ""
    return f"PostgreSQL {said.get('dbname') or ''} at {host}{port}".replace("  ", " ")


def _parts(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error as error:  # its text may quote the URL
        named = NO_PARAMETER.search(str(error))
        # An @ behind the question mark: what looks like a parameter may be a part of the password.
        named = None if "@" in url.partition("?")[2] else named
        why = f": {named[1]} is no parameter of libpq" if named else ""
        raise ConfigError(
            f"ORCH_DATABASE_URL is no URL of a PostgreSQL database{why}; nothing was started.",
            hint="Write postgresql://user@host:port/database, with what is special in user and password "
            "percent-encoded; other parameters of libpq follow behind a question mark.",
        ) from None


def settings() -> dict[str, Any]:
    """What every connection is made with. Transactions are begun and ended by name: psycopg would begin a new one by
    itself after the server had given one up, and half a block would be committed."""
    return {"autocommit": True, "row_factory": dict_row, "context": _adapters()}


@contextmanager
def connecting(url: str) -> Iterator[psycopg.Connection[DictRow]]:
    """One connection outside of any pool, for the length of the block.

    :raises DatabaseError: nobody answers, or does not let us in.
    """
    try:
        connection = psycopg.connect(conninfo_of(url), **settings())
    except psycopg.Error as error:
        hint = HINTS.get(error.sqlstate or _refusal(str(error)), UNREACHABLE)
        raise database_error(error, server_of(url), hint=hint) from error
    try:
        yield connection
    finally:
        connection.close()


def _refusal(said: str) -> str:
    return next((code for words, code in REFUSALS if words.search(said)), "")


def check(connection: psycopg.Connection[DictRow], server: str) -> None:
    """See that what is committed here is kept, and find a pooler in between.

    A pooler that gives each transaction another server connection knows none of our prepared statements: with one in
    between, none are used. It shows by the process number that the server gave at the start not being its own.

    :raises DatabaseError: commits are not durable here, or the server is not usable.
    """
    try:
        found = connection.execute(ASKED, prepare=False).fetchone()
    except psycopg.Error as error:
        raise database_error(error, server) from error
    if found is None:
        raise DatabaseError(f"The database ({server}) answered a question with nothing.")
    if found["version"] < OLDEST:
        raise DatabaseError(
            f"The database ({server}) is version {found['version'] // 10000}; {OLDEST // 10000} is the oldest we know.",
            hint="Upgrade the server.",
        )
    if found["synchronous_commit"] not in DURABLE:
        raise DatabaseError(
            f"The database ({server}) does not wait for the disk: synchronous_commit is {found['synchronous_commit']}.",
            hint="Set it to on, for the server or for the user of ORCH_DATABASE_URL: what is committed must be kept.",
        )
    if found["standby"]:
        raise DatabaseError(f"The database ({server}) is a standby.", hint=HINTS["25006"])
    if found["encoding"] != "UTF8":
        raise DatabaseError(
            f"The database ({server}) stores {found['encoding']}, which cannot hold every character.",
            hint="Create it with ENCODING 'UTF8' TEMPLATE template0.",
        )
    if found["pid"] != connection.info.backend_pid:
        connection.prepare_threshold = None


def history_of(connection: psycopg.Connection[DictRow], server: str) -> History | None:
    """On what history this connection commits; None where the server does not tell, as some that others run do not.

    :raises DatabaseError: the connection was lost, or the server could not say just now.
    """
    try:
        which = connection.execute(WHICH, prepare=False).fetchone()
        since = connection.execute(TIMELINE, prepare=False).fetchone()
    except psycopg.Error as error:
        if connection.broken or (error.sqlstate or "")[:2] in PASSING:
            raise database_error(error, server) from error
        log.warning("a fail-over cannot be told from a restart of the server", reason=str(error).strip())
        return None
    return History(which["system"], since["timeline"], which["number"]) if which and since else None


def pooled(connection: psycopg.Connection[DictRow]) -> bool:
    """Whether a pooler is in between that may give each transaction another connection."""
    found = connection.execute("SELECT pg_backend_pid() AS pid", prepare=False).fetchone()
    return found is None or found["pid"] != connection.info.backend_pid


def database_error(error: psycopg.Error, server: str = "", *, hint: str | None = None) -> DatabaseError:
    """What a person reads; the first line of what the server said, which holds no values."""
    place = f" ({server})" if server else ""
    said = (error.diag.message_primary or str(error)).strip().split("\n")[0].rstrip(".")
    if hint is None:
        hint = HINTS.get(error.sqlstate or "", NOTHING_STORED)
    return DatabaseError(f"The database{place} refused: {said or type(error).__name__}.", hint=hint)
