"""SQLite behind the seam: one writer connection with grouped commits, readers in parallel.

What must hold: a ``write`` block returns only after the COMMIT of its group (``synchronous=FULL``); a block that
raised has left nothing; if COMMIT fails, every member of the group fails; outside a transaction no statement runs,
so that nothing of a block survives when SQLite has given the transaction up. One process owns the file
(:mod:`orchestrator.db.file_lock`).
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, LifoQueue

from orchestrator.db.database import Row
from orchestrator.db.statements import statement
from orchestrator.domain.errors import ConstraintRefused, DatabaseError, InvariantError
from orchestrator.runtime.clock import Clock, periods_since, stamp, stamp_after
from orchestrator.runtime.waypoints import NoWaypoints, Waypoints

BUSY_TIMEOUT_S = 10.0
MAX_GROUP = 32  # bounds how long the first of a group waits for its commit
MAX_IDLE_READERS = 8
STATEMENT_CACHE = 256
NOTHING_STORED = "Nothing of this step was stored; it will be tried again."


class SqliteTx:
    """Named statements on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, name: str, /, **params: object) -> int:
        """Run a statement; the number of rows it changed."""
        return self._run(name, params).rowcount

    def one(self, name: str, /, **params: object) -> Row | None:
        """The first row, or None."""
        cursor = self._run(name, params)
        try:
            row: Row | None = cursor.fetchone()
        except sqlite3.Error as error:
            raise _database_error(error) from error
        return row

    def all(self, name: str, /, **params: object) -> Sequence[Row]:
        """All rows."""
        cursor = self._run(name, params)
        try:
            return cursor.fetchall()
        except sqlite3.Error as error:
            raise _database_error(error) from error

    def _run(self, name: str, params: dict[str, object]) -> sqlite3.Cursor:
        if not self._connection.in_transaction:  # given up by SQLite: what follows would commit by itself
            raise DatabaseError(f"The transaction had ended before {name}.", hint=NOTHING_STORED)
        try:
            return self._connection.execute(statement(name), params)
        except sqlite3.IntegrityError as error:
            raise ConstraintRefused(f"The database refused {name}: {error}.") from error
        except sqlite3.Error as error:
            raise _database_error(error) from error


class _Group:
    """Transactions that share one COMMIT."""

    def __init__(self) -> None:
        self.members = 0
        self.waiting: list[threading.Lock] = []  # one for each member that left the commit to a later one
        self.error: BaseException | None = None

    def wait_later(self) -> "threading.Lock":
        """A lock that opens when the group is over: cheaper than an event, for nobody shares it."""
        mine = threading.Lock()
        mine.acquire()
        self.waiting.append(mine)
        return mine

    def end(self) -> None:
        """Let every member go."""
        for lock in self.waiting:
            lock.release()


class SqliteDatabase:
    """One SQLite file. Safe to use from many threads of its owning process."""

    def __init__(
        self, path: Path, *, clock: Clock, waypoints: Waypoints | None = None, readonly: bool = False
    ) -> None:
        """``readonly``: beside a living owner; every write is refused by the database itself."""
        self.path = path
        self._clock = clock
        self._waypoints = waypoints or NoWaypoints()
        self._turn = threading.Lock()  # whose turn it is to write
        self._counting = threading.Lock()
        self._behind = 0  # writers that wait for their turn
        self._inside: int | None = None  # thread that has its turn
        self._group: _Group | None = None
        self._closed = False
        self._readers: LifoQueue[sqlite3.Connection] = LifoQueue()
        self._writer = self._connect(readonly=readonly)
        self._tx = SqliteTx(self._writer)

    @contextmanager
    def write(self) -> Iterator[SqliteTx]:
        """A transaction inside its group; durable once left (DESIGN §8)."""
        if self._inside == threading.get_ident():
            raise InvariantError("a write block was opened inside another one")
        with self._counting:
            self._behind += 1
        self._turn.acquire()
        with self._counting:
            self._behind -= 1
        self._inside = threading.get_ident()
        later: threading.Lock | None = None
        try:
            group = self._join()
            first = group.members == 1  # nobody before it: it needs no savepoint, for all of it may be undone
            try:
                if not first:
                    self._sql("SAVEPOINT member")
                try:
                    yield self._tx
                except BaseException:
                    self._undo_member(first=first)
                    raise
                if not first:
                    self._sql("RELEASE member")
            finally:
                later = self._leave(group)
        finally:
            self._inside = None
            self._turn.release()
        if later is not None:
            later.acquire()
        if group.error is not None:
            raise _database_error(group.error) from group.error

    @contextmanager
    def read(self) -> Iterator[SqliteTx]:
        """One snapshot on a read-only connection."""
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            yield SqliteTx(connection)
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close every connection; the last one folds the write-ahead log into the file."""
        self._closed = True
        with suppress(Empty):
            while True:
                self._readers.get_nowait().close()
        with self._turn:
            self._writer.close()

    def _join(self) -> _Group:
        if self._group is None:
            self._sql("BEGIN IMMEDIATE")
            self._group = _Group()
        self._group.members += 1
        return self._group

    def _leave(self, group: _Group) -> "threading.Lock | None":
        """Whoever has no writer behind him commits for the whole group, also when his own block raised; the others get
        something to wait for."""
        if (
            not self._writer.in_transaction
        ):  # its first member raised, or SQLite gave up: disk full, I/O error
            group.error = group.error or sqlite3.OperationalError(
                "the transaction was rolled back by the database"
            )
        elif self._behind and group.members < MAX_GROUP:
            return group.wait_later()
        try:
            if self._writer.in_transaction:
                self._commit(group)
        finally:
            self._group = None
            group.end()
        return None

    def _commit(self, group: _Group) -> None:
        committed = False
        try:
            self._waypoints.reach("db.before_commit", members=group.members)
            self._writer.execute("COMMIT")
            committed = True
        except sqlite3.Error as error:
            group.error = error
        finally:
            if not committed:
                group.error = group.error or sqlite3.OperationalError("the commit was given up")
                self._roll_back()
        if committed:
            self._waypoints.reach("db.after_commit", members=group.members)

    def _undo_member(self, *, first: bool) -> None:
        """Undo one member; where that fails, the whole group, for half a member must never be committed."""
        if first:
            self._roll_back()
        if not self._writer.in_transaction:
            return
        try:
            self._writer.execute("ROLLBACK TO member")
            self._writer.execute("RELEASE member")
        except sqlite3.Error:
            self._roll_back()

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
            self._writer.rollback()

    def _sql(self, text: str) -> None:
        try:
            self._writer.execute(text)
        except sqlite3.Error as error:
            raise _database_error(error) from error

    def _reader(self) -> sqlite3.Connection:
        try:
            return self._readers.get_nowait()
        except Empty:
            return self._connect(readonly=True)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        try:
            connection.rollback()  # ends the snapshot; there is nothing to keep
        except sqlite3.Error:
            connection.close()
            return
        if self._closed or self._readers.qsize() >= MAX_IDLE_READERS:
            connection.close()
        else:
            self._readers.put(connection)

    def _connect(self, *, readonly: bool = False) -> sqlite3.Connection:
        return connect(self.path, self._clock, readonly=readonly)


def connect(path: Path, clock: Clock, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection set up as every connection of ours is. Transactions are explicit.

    :raises DatabaseError: the file cannot be opened.
    """
    mode = "ro" if readonly else "rwc"
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENT_CACHE,
        )
    except sqlite3.Error as error:
        raise _database_error(error, path) from error
    try:
        connection.row_factory = sqlite3.Row
        connection.create_function("utc_now", 0, lambda: stamp(clock.utc()))
        connection.create_function("utc_after", 1, lambda seconds: stamp_after(clock, seconds))
        connection.create_function("periods_since", 2, lambda since, s: periods_since(clock, since, s))
        connection.execute("PRAGMA foreign_keys=ON")
        if readonly:
            connection.execute("PRAGMA query_only=ON")
        else:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA temp_store=MEMORY")  # what a savepoint needs to be undone
    except sqlite3.Error as error:
        connection.close()
        raise _database_error(error, path) from error
    return connection


def _database_error(error: BaseException, path: Path | None = None) -> DatabaseError:
    if isinstance(error, DatabaseError):
        return error
    place = f" ({path})" if path else ""
    code = getattr(error, "sqlite_errorname", "")
    hint = {
        "SQLITE_FULL": "The disk is full: free space; nothing was half written and work goes on by itself.",
        "SQLITE_READONLY": "The state folder is not writable: correct its permissions.",
        "SQLITE_CANTOPEN": "Check that the state folder exists and is writable.",
        "SQLITE_BUSY": "Another program holds the file; it will be tried again.",
        "SQLITE_NOTADB": "The file is no SQLite database: move it away or name another one.",
    }.get(code, NOTHING_STORED)
    return DatabaseError(f"The database{place} refused: {error}.", hint=hint)
