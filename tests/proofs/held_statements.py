"""Actors over PostgreSQL: held before each statement of a transaction that writes, and before its COMMIT.

A statement may wait for a lock that another actor has. Then it is let wait, as the server does it: the actor is out of
the game until the other's transaction has ended, and stands at its next call when it has got what it waited for. So
who goes on, and what each statement sees, is decided by the list of choices alone.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from orchestrator.db.database import Row, Tx
from orchestrator.domain.errors import DatabaseError
from tests.proofs.interleaving import ActorThread, HeldDatabase, Noted, digest

T = TypeVar("T")

LOOK_S = 0.005


class WaitingActor(ActorThread):
    """An actor that may be kept waiting by another one."""

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        back: threading.Lock,
        again: Callable[[ActorThread], str | None],
        blocked: Callable[[int], bool],
    ) -> None:
        """``blocked`` is asked whether a connection waits for a lock."""
        super().__init__(name, work, back, again)
        self.backend: int | None = None  # of the transaction that it is in
        self._blocked = blocked
        self._arrived = threading.Event()

    @property
    def inside(self) -> bool:
        return self.backend is not None

    def come(self) -> bool:
        """Somebody else's transaction may have ended: True where this one has its lock and stands again."""
        while not self._arrived.is_set():
            if self.backend is not None and self._blocked(self.backend):
                return False
            self._arrived.wait(LOOK_S)
        self._arrived.clear()
        self.waiting = False
        if self.ended:
            self._thread.join()
        return True

    def _until_it_stands(self) -> None:
        while not self._back.acquire(timeout=LOOK_S):
            if self.backend is not None and self._blocked(self.backend):
                self.waiting = True
                return

    def _hand_over(self) -> None:
        if self.waiting:
            self._arrived.set()
        else:
            super()._hand_over()


class HeldStatements(HeldDatabase):
    """An actor's way to a server."""

    _actor: WaitingActor

    @contextmanager
    def write(self) -> Iterator[Tx]:
        self._scheduler.reach("db.write", kind="write")
        order = self._actor.order
        try:
            with self._real.write() as tx:
                connection: Any = tx
                self._actor.backend = connection._connection.info.backend_pid
                held = _HeldTx(tx, self._through)
                yield held
                self._scheduler.reach("db.commit", kind="commit")
                if order == "fail":
                    raise DatabaseError("The disk is full.")
        finally:
            self._actor.backend = None
            self._actor.saw(order)
        if held.changed:
            self._version.value = digest(self._version.value, held.changed)
        if order == "lost":
            raise DatabaseError("The answer to COMMIT was lost.")

    def _through(self, name: str, ask: Callable[[], T]) -> T:
        self._scheduler.reach(f"db.{name}", kind="statement")
        self._version.steps.append(name)
        try:
            answer = ask()
        except Exception as error:
            self._actor.saw(name, type(error).__name__)
            raise
        self._actor.saw(name, repr(answer))
        return answer


class _HeldTx(Noted):
    """A transaction, statement by statement."""

    def __init__(self, tx: Tx, through: Callable[[str, Callable[[], Any]], Any]) -> None:
        super().__init__(tx)
        self._through = through

    def execute(self, name: str, /, **params: object) -> int:
        ask = super().execute
        found: int = self._through(name, lambda: ask(name, **params))
        return found

    def one(self, name: str, /, **params: object) -> Row | None:
        ask = super().one
        found: Row | None = self._through(name, lambda: ask(name, **params))
        return found

    def all(self, name: str, /, **params: object) -> Sequence[Row]:
        ask = super().all
        found: Sequence[Row] = self._through(name, lambda: ask(name, **params))
        return found
