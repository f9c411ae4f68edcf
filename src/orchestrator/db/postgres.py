"""PostgreSQL behind the seam: a pool of connections, each transaction on one of its own.

What must hold: a ``write`` block returns only after its COMMIT, and a block that raised has left nothing; where the
answer to COMMIT is lost, the error says that nobody knows, and the transition's id decides (law 2). Whoever owns a
task locks its epoch row first: READ COMMITTED alone guards nothing. A ``read`` is one snapshot. Nothing is kept in a
session, so that a pooler between us and the server may give each transaction another one. A process that hangs inside
a transaction loses it, and with it every lock, after :data:`IDLE_S` (law 6). All transactions of one life lie on one
history: nothing is written to a server that was promoted, restored or exchanged meanwhile (DESIGN §6).
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow
from psycopg_pool import PoolClosed

from orchestrator.db.database import Row
from orchestrator.db.postgres_connection import (
    NOTHING_STORED,
    TIMELINE,
    check,
    connecting,
    database_error,
    history_of,
    server_of,
)
from orchestrator.db.postgres_pool import Connection, Connections
from orchestrator.db.postgres_text import text_of
from orchestrator.domain.errors import ConstraintRefused, DatabaseError, DatabaseReplaced, InvariantError
from orchestrator.runtime.clock import Clock, stamp
from orchestrator.runtime.waypoints import NoWaypoints, Waypoints

MAX_CONNECTIONS = 16
POOL_WAIT_S = 10.0  # for a connection, or for the server to come back
LOCK_S = 10  # for a row that another transaction holds; as long as SQLite's writers wait for each other
IDLE_S = 10.0  # between two statements: there is nothing but SQL inside a block
BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
BEGIN_WRITE = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '{LOCK_S}s'; "
    "SET LOCAL idle_in_transaction_session_timeout = {idle_ms:d}"
)
UNKNOWN = "Whether this step was stored is not known yet; it is looked up before it is tried again."


class PostgresTx:
    """Named statements on one connection, inside its transaction."""

    def __init__(self, connection: Connection, *, snapshot: bool) -> None:
        self._connection = connection
        self._snapshot = snapshot

    def execute(self, name: str, /, **params: object) -> int:
        """Run a statement; the number of rows it changed."""
        return self._run(name, params).rowcount

    def one(self, name: str, /, **params: object) -> Row | None:
        """The first row, or None."""
        return self._run(name, params).fetchone()

    def all(self, name: str, /, **params: object) -> Sequence[Row]:
        """All rows."""
        return self._run(name, params).fetchall()

    def _run(self, name: str, params: dict[str, object]) -> psycopg.Cursor[DictRow]:
        # Outside of a transaction, or in one that failed, nothing runs: it would commit by itself.
        if self._connection.info.transaction_status is not TransactionStatus.INTRANS:
            raise DatabaseError(f"The transaction had ended before {name}.", hint=NOTHING_STORED)
        try:
            return self._connection.execute(text_of(name, snapshot=self._snapshot), params)
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            said = error.diag.message_primary or str(error)
            raise ConstraintRefused(f"The database refused {name}: {said}.") from error
        except psycopg.Error as error:
            raise database_error(error) from error


class PostgresDatabase:
    """One PostgreSQL database. Safe to use from many threads and many processes."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        waypoints: Waypoints | None = None,
        max_connections: int = MAX_CONNECTIONS,
        idle_s: float = IDLE_S,
        readonly: bool = False,
    ) -> None:
        """``clock``: for tests; without one the server's own clock judges (law 12). ``idle_s``: how long a transaction
        may do nothing. ``readonly``: to look beside whoever works on it; every write is refused by the server.

        :raises DatabaseError: it cannot be reached, or does not keep what it says.
        """
        self._server = server_of(url)
        self._clock = clock
        self._waypoints = waypoints or NoWaypoints()
        self._inside = threading.local()  # whether this thread is in a write block
        self._size = max_connections
        self._elsewhere = threading.Event()  # a connection has led to another history than the first one
        with connecting(url) as first:  # the pool would only say that nobody answered in time
            check(first, self._server)
            self._history = history_of(first, self._server)
        self._begin_write = BEGIN_READ if readonly else BEGIN_WRITE.format(idle_ms=int(idle_s * 1000))
        self._connections = Connections(
            url,
            name=f"orch {self._server}",
            most=max_connections,
            wait_s=POOL_WAIT_S,
            configure=self._configure,
        )

    @contextmanager
    def write(self) -> Iterator[PostgresTx]:
        """A transaction of its own; durable once left. Its first failed statement ends it."""
        if getattr(self._inside, "writing", False):
            raise InvariantError("a write block was opened inside another one")
        connection = self._begin(self._begin_write, writing=True)
        self._inside.writing = True
        try:
            yield PostgresTx(connection, snapshot=False)
            self._commit(connection)
        finally:
            self._inside.writing = False
            self._give_back(connection)

    @contextmanager
    def read(self) -> Iterator[PostgresTx]:
        """One snapshot; the server refuses to write in it."""
        connection = self._begin(BEGIN_READ)
        try:
            yield PostgresTx(connection, snapshot=True)
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close every connection; one in use is closed when it is given back."""
        self._connections.close()

    def _begin(self, begin: str, *, writing: bool = False) -> Connection:
        """A connection inside a fresh transaction. One that the server has closed meanwhile, at its restart for
        instance, is thrown away: nothing was done on it.

        :raises DatabaseReplaced: it would write to another history.
        """
        for last in (*[False] * self._size, True):
            connection = self._connection()
            try:
                cursor = connection.execute(self._at_the_time(begin, writing), prepare=False)
                if writing:
                    self._same_history(connection, cursor)
                return connection
            except psycopg.Error as error:
                lost = connection.broken
                self._give_back(connection)
                if last or not lost:
                    raise database_error(error, self._server) from error
        raise InvariantError("no attempt was the last")

    def _at_the_time(self, begin: str, writing: bool) -> bytes:
        now = "" if self._clock is None else f"; SET LOCAL orch.now = '{stamp(self._clock.utc())}'"
        asked = f"; {TIMELINE}" if writing and self._history is not None else ""
        return (begin + now + asked).encode()

    def _configure(self, connection: Connection) -> None:
        """See each new connection once: it may lead elsewhere than those before. Said by whoever writes next: the pool
        would only try for another one."""
        check(connection, self._server)
        if self._history is not None and history_of(connection, self._server) != self._history:
            self._elsewhere.set()

    def _same_history(self, connection: Connection, cursor: psycopg.Cursor[DictRow]) -> None:
        """See each transaction: a pooler may have led a connection of ours to another server."""
        if self._history is None:
            return
        while cursor.nextset():
            pass
        found = cursor.fetchone()
        if found is not None and found["timeline"] == self._history.timeline and not self._elsewhere.is_set():
            return
        self._elsewhere.set()
        self._give_back(connection)
        raise DatabaseReplaced(
            f"The database ({self._server}) is another one than when this process began: a standby was promoted, or a "
            "backup restored. Commits may be missing: nothing more is stored or done by this process.",
            hint="Start it anew, which compares the database with what was done; `orch restore status` then tells.",
        )

    def _connection(self) -> Connection:
        try:
            return self._connections.take()
        except PoolClosed as error:
            raise DatabaseError("The database has been closed.") from error
        except psycopg.Error as error:
            raise database_error(error, self._server) from error

    def _commit(self, connection: Connection) -> None:
        self._waypoints.reach("db.before_commit", members=1)
        try:
            answer = connection.execute(b"COMMIT", prepare=False).statusmessage
        except psycopg.Error as error:
            unknown = connection.broken
            raise database_error(error, self._server, hint=UNKNOWN if unknown else None) from error
        if answer != "COMMIT":  # a statement had failed, and the block went on
            raise DatabaseError(
                f"The database ({self._server}) undid the transaction instead of committing it."
            )
        self._waypoints.reach("db.after_commit", members=1)

    def _give_back(self, connection: Connection) -> None:
        """End what is still open; a broken connection is thrown away."""
        if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            with suppress(psycopg.Error):
                connection.execute(b"ROLLBACK", prepare=False)
        self._connections.give_back(connection)
