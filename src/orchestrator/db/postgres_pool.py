"""A pool of connections that keeps the one used last at hand: who works alone always meets the same server process,
whose plans and caches are warm. The library's pool gives out the one that has rested longest, so that a lone actor
would go round all that a busy moment has left.

What must hold: no more connections than configured, and nobody waits while one is at hand. Whoever has a turn finds a
connection at hand, idle in the library's pool, or room for another one.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from orchestrator.db.postgres_connection import conninfo_of, settings

Connection = psycopg.Connection[DictRow]


class Connections:
    """Of one database. Safe to use from many threads."""

    def __init__(
        self, url: str, *, name: str, most: int, wait_s: float, configure: Callable[[Connection], None]
    ) -> None:
        """``configure`` is called once with each new connection."""
        self._wait_s = wait_s
        self._turns = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._at_hand: Connection | None = None
        self._closed = False
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            conninfo_of(url),
            kwargs=settings(),
            min_size=1,
            max_size=most,
            timeout=wait_s,
            configure=configure,
            name=name,
            open=True,
        )

    def take(self) -> Connection:
        """A connection; whoever takes one gives it back.

        :raises psycopg.Error: none is free or can be made within ``wait_s``.
        :raises PoolClosed: there are none any more.
        """
        if not self._turns.acquire(timeout=self._wait_s):
            raise PoolTimeout(f"couldn't get a connection after {self._wait_s:.2f} sec")
        try:
            with self._lock:
                found, self._at_hand = self._at_hand, None
            return found if found is not None else self._pool.getconn()
        except BaseException:
            self._turns.release()
            raise

    def give_back(self, connection: Connection) -> None:
        """The pool throws away what is broken, or still inside a transaction."""
        idle = connection.info.transaction_status is TransactionStatus.IDLE
        with self._lock:
            keep = idle and not self._closed and self._at_hand is None
            if keep:
                self._at_hand = connection
        if not keep:
            self._pool.putconn(connection)
        self._turns.release()

    def close(self) -> None:
        """Close every connection; one in use is closed when it is given back."""
        with self._lock:
            self._closed = True
            found, self._at_hand = self._at_hand, None
        self._pool.close()
        if found is not None:
            with suppress(PoolClosed):
                self._pool.putconn(found)
