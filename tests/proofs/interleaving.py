"""One run of several actors over one world, step by step: who goes next, what fails, is one list of choices.

A step is what an actor does from one call (database, authority) up to its next. Only one actor runs at any time. The
same list of choices gives the same run. An actor that crashes is left where it stands: whatever its code still tries
on its way out is refused, as if it had been killed there.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from orchestrator.db.database import Database, Row, Tx
from orchestrator.db.statements import statement
from orchestrator.domain.errors import DatabaseError
from tests.proofs.scheduler import PASS, Late, Point, Scheduler, Step

T = TypeVar("T")


class Crashed(BaseException):
    """This actor's process has died at this very point."""


class Abandoned(BaseException):
    """The run is over; whoever still stands somewhere is sent home."""


class Diverged(Exception):
    """A list of choices does not fit the run it came from: something outside the choices has decided."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How often the world may misbehave in one run."""

    preemptions: int = 1
    crashes: int = 0
    late: int = 0
    lost: int = 0
    slow: int = 0
    coins: int = 0


Cost = Sequence[str]  # fields of the budget that a choice draws on


@dataclass(frozen=True, slots=True)
class Branch:
    """Another choice that a run could have made."""

    at: int
    choice: str
    preemptions: int  # that a run which takes it will have made by then


class Decisions:
    """Takes the choices it was given, then the first of each; notes what else there was."""

    def __init__(self, choices: Sequence[str], budget: Budget) -> None:
        self._given = choices
        self._budget = budget
        self.made: list[str] = []
        self.branches: list[Branch] = []
        self.used = dict.fromkeys(Budget.__dataclass_fields__, 0)

    @property
    def free(self) -> bool:
        """Whether what follows is new."""
        return len(self.made) >= len(self._given)

    def choose(self, options: Sequence[tuple[str, Cost]]) -> str:
        """One of the options, of which the first costs nothing more than having to be taken."""
        at, affordable = len(self.made), [option for option in options if self._can(option[1])]
        if len(affordable) == 1:
            name, cost = affordable[0]
        elif self.free:
            (name, cost), *others = affordable
            for other, price in others:
                made = self.used["preemptions"] + list(price).count("preemptions")
                self.branches.append(Branch(at, other, made))
            self.made.append(name)
        else:
            name = self._given[at]
            found = [price for option, price in affordable if option == name]
            if not found:
                raise Diverged(f"{name} is none of {[option for option, _ in affordable]} at choice {at}")
            cost = found[0]
            self.made.append(name)
        for kind in cost:
            self.used[kind] += 1
        return name

    def _can(self, cost: Cost) -> bool:
        return all(self.used[kind] + list(cost).count(kind) <= getattr(self._budget, kind) for kind in cost)


class ActorThread:
    """An actor in a thread of its own, held at each of its calls until it is sent on."""

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        back: threading.Lock,
        again: Callable[["ActorThread"], str | None],
    ) -> None:
        """``again`` is asked at each call: the order to go on with at once, or None where somebody else is next."""
        self.name = name
        self._again = again
        self.kind = "begin"  # of the call before which it stands
        self.at = "begin"
        self.ended = False
        self.crashed = False
        self.waiting = False  # for a lock that another one has
        self.error: Exception | None = None
        self.chain = b""  # all that it has seen, which is all that its local state depends on
        self.order = ""
        self._work = work
        self._back = back
        self._go = threading.Lock()
        self._go.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def send_on(self, order: str) -> None:
        """Let it do its next step; returns when it stands again."""
        self.order = order
        if self.at == "begin":
            if order == "abandon":
                self.ended = True
                return
            self._thread.start()
        else:
            self._go.release()
        self._until_it_stands()
        if self.ended and not self.waiting:
            self._thread.join()

    def hold(self, point: str, kind: str) -> str:
        """In its own thread: wait for an order."""
        if self.order == "abandon":
            raise Abandoned
        if self.crashed:
            raise Crashed
        self.at, self.kind = point, kind
        self.saw(point)  # where nothing was answered, it has come here all the same
        order = None if self.waiting else self._again(self)
        if order is not None:
            self.order = order
            return order
        self._hand_over()
        self._go.acquire()
        if self.order == "crash":
            self.crashed = True
            raise Crashed
        if self.order == "abandon":
            raise Abandoned
        return self.order

    def saw(self, *what: object) -> None:
        self.chain = digest(self.chain, what)

    @property
    def inside(self) -> bool:
        """Whether it stands in the middle of a transaction."""
        return False

    def come(self) -> bool:
        """Where it waits for a lock: whether it has got it by now and stands again."""
        return True

    def _until_it_stands(self) -> None:
        self._back.acquire()

    def _hand_over(self) -> None:
        self._back.release()

    def _run(self) -> None:
        try:
            self._work()
        except (Crashed, Abandoned):
            pass
        except Exception as error:  # noqa: BLE001 - told to the judge
            self.error = error
        self.ended = True
        self._hand_over()


class Held:
    """The scheduler's policy: every call of an actor is held; named points in between are passed."""

    def __init__(self, actors: Mapping[str, ActorThread]) -> None:
        self._actors = actors

    def choose(self, point: Point) -> Step:
        actor = self._actors.get(point.actor)
        kind = point.data.get("kind")
        if actor is None or not isinstance(kind, str) or point.name.endswith(".after"):
            return PASS
        order = actor.hold(point.name.removesuffix(".before"), kind)
        return Late() if order == "late" else PASS


class HeldWire:
    """An actor's way to the authorities, through the scheduler."""

    def __init__(
        self, scheduler: Scheduler, actor: Callable[[], ActorThread], noted: Callable[[], None]
    ) -> None:
        self._scheduler, self._actor, self._noted = scheduler, actor, noted

    def ask(self, name: str, look: Callable[[], T]) -> T:
        return self._through(name, "ask", look)

    def act(self, name: str, call: Callable[[], T]) -> T:
        def noted() -> T:
            self._noted()
            return call()

        return self._through(name, "act", noted)

    def _through(self, name: str, kind: str, call: Callable[[], T]) -> T:
        try:
            answer = self._scheduler.call(name, call, kind=kind)
        except Exception as error:
            self._actor().saw(name, repr(error))
            raise
        self._actor().saw(name, repr(answer))
        return answer


@dataclass
class Version:
    """Which state the database is in, told by what was written."""

    value: bytes = b""
    steps: list[str] = field(default_factory=list)


class HeldDatabase:
    """An actor's own connections: held before each transaction; a COMMIT may fail, or its answer be lost."""

    def __init__(self, real: Database, scheduler: Scheduler, actor: ActorThread, version: Version) -> None:
        self._real, self._scheduler, self._actor, self._version = real, scheduler, actor, version

    @contextmanager
    def write(self) -> Iterator[Tx]:
        self._scheduler.reach("db.write", kind="write")
        order = self._actor.order
        with self._real.write() as tx:
            noted = Noted(tx)
            try:
                yield noted
                if order == "fail":
                    raise DatabaseError("The disk is full.")
            finally:
                self._actor.saw(noted.seen, order)
        if noted.changed:
            self._version.value = digest(self._version.value, noted.changed)
        self._version.steps += noted.names
        if order == "lost":
            raise DatabaseError("The answer to COMMIT was lost.")

    @contextmanager
    def read(self) -> Iterator[Tx]:
        self._scheduler.reach("db.read", kind="read")
        with self._real.read() as tx:
            noted = Noted(tx)
            try:
                yield noted
            finally:
                self._actor.saw(noted.seen)
        self._version.steps += noted.names

    def close(self) -> None:
        self._real.close()


class Noted:
    """A transaction that notes what was asked, answered and changed."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.names: list[str] = []
        self.seen: list[object] = []
        self.changed: list[object] = []

    def execute(self, name: str, /, **params: object) -> int:
        count = self._tx.execute(name, **params)
        self._note(name, params, count, changed=count > 0)
        return count

    def one(self, name: str, /, **params: object) -> Row | None:
        row = self._tx.one(name, **params)
        self._note(name, params, _shown(row) if row else None, changed=row is not None and _writes(name))
        return row

    def all(self, name: str, /, **params: object) -> Sequence[Row]:
        rows = self._tx.all(name, **params)
        self._note(name, params, [_shown(row) for row in rows], changed=bool(rows) and _writes(name))
        return rows

    def _note(self, name: str, params: Mapping[str, Any], answer: object, *, changed: bool) -> None:
        self.names.append(name)
        self.seen.append((name, answer))
        if changed:
            self.changed.append((name, sorted(params.items())))


def _shown(row: Any) -> tuple[object, ...]:
    """A row's values, whichever database it comes from."""
    return tuple(row.values()) if isinstance(row, dict) else tuple(row)


def _writes(name: str) -> bool:
    return not statement(name).lstrip().upper().startswith(("SELECT", "WITH"))


def digest(before: bytes, what: object) -> bytes:
    return hashlib.blake2b(before + repr(what).encode(), digest_size=16).digest()
