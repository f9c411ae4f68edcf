"""The step scheduler under every proof: it knows each named waypoint, commit and outside call, and what to do there.

What must hold: the product runs unchanged; whatever is done is done at a point with a name and a number, so that the
same choice can be made again; before a point is not simply passed, it is told to ``tell`` (a file, a pipe), for the
process may not live to say so later.

A :class:`Policy` decides. It may be asked by many threads at once.
"""

import os
import re
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orchestrator
from orchestrator.domain.effect import EffectName
from orchestrator.domain.errors import AuthorityUnreachable, InvariantError

T = TypeVar("T")

KEPT = 5_000  # points that a scheduler remembers


@dataclass(frozen=True, slots=True)
class Point:
    """A place that a step of the product has reached. ``occurrence`` counts this name, ``index`` all points, from 1."""

    name: str
    occurrence: int
    index: int
    actor: str  # the thread's name
    data: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}#{self.occurrence}"


@dataclass(frozen=True, slots=True)
class Pass:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL this very process, here."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """SIGSTOP this very process, here, until somebody sends SIGCONT."""


@dataclass(frozen=True, slots=True)
class Block:
    """Hold this thread until :meth:`Scheduler.release`."""


@dataclass(frozen=True, slots=True)
class Late:
    """At ``<call>.before``: accept the call, cut the connection, apply it after ``seconds`` (None: when it is told to
    :meth:`Scheduler.land`)."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Raise; at ``<call>.after`` that is an answer lost after the act took place."""

    error: Callable[[], Exception]


@dataclass(frozen=True, slots=True)
class Hurt:
    """At ``<program>.before``: the program is hit by a signal while it is at work, ``and_us`` together with us.

    ``git update-ref`` is hit between the prepare and the commit of its transaction; a detached program ``after`` so
    many seconds.
    """

    signum: int
    after: float = 0.0
    and_us: bool = False


Step = Pass | Kill | Freeze | Block | Late | Fault | Hurt
PASS = Pass()


class Policy(Protocol):
    """Chooses what happens at a point."""

    def choose(self, point: Point) -> Step:
        """The step; asked once for each point, in the thread that has reached it."""
        ...


class Free:
    """Lets everything pass."""

    def choose(self, point: Point) -> Step:
        return PASS


class At:
    """Does something when a named point is reached for the n-th time, once; ``data`` narrows it."""

    def __init__(self, name: str, step: Step, occurrence: int = 1, **data: object) -> None:
        self._name, self._step, self._data = name, step, data
        self._left = occurrence
        self._lock = threading.Lock()

    def choose(self, point: Point) -> Step:
        if point.name != self._name or not self._data.items() <= point.data.items():
            return PASS
        with self._lock:
            self._left -= 1
            return self._step if self._left == 0 else PASS


class Nth:
    """Does something at the n-th point of all."""

    def __init__(self, index: int, step: Step) -> None:
        self._index, self._step = index, step

    def choose(self, point: Point) -> Step:
        return self._step if point.index == self._index else PASS


class First:
    """The first of several policies that does not let the point pass."""

    def __init__(self, *policies: Policy) -> None:
        self._policies = policies

    def choose(self, point: Point) -> Step:
        return next((s for p in self._policies if not isinstance(s := p.choose(point), Pass)), PASS)


@dataclass(slots=True)
class LateCall:
    """An outside call that was accepted and has not been applied."""

    point: Point
    act: Callable[[], object]


class Scheduler:
    """Receives every point (it is a ``Waypoints``) and does what its policy says."""

    def __init__(
        self, policy: Policy | None = None, *, tell: Callable[[Point, Step], None] | None = None
    ) -> None:
        self.policy: Policy = policy or Free()
        self.late: list[LateCall] = []
        self._tell = tell
        self._turn = threading.Condition()
        self._names: Counter[str] = Counter()
        self._count = 0
        self._kept: deque[Point] = deque(maxlen=KEPT)
        self._blocked: dict[str, Point] = {}
        self._free: set[str] = set()

    # --- what the product calls -------------------------------------------------------------------------------

    def reach(self, name: str, **data: object) -> None:
        """A named waypoint, or a commit (``db.before_commit``, ``db.after_commit``)."""
        point, step = self._arrive(name, data)
        if isinstance(step, Late):
            raise InvariantError(f"{point} is no outside call: it cannot be late")
        self._do(point, step)

    def call(
        self,
        name: str,
        act: Callable[[], T],
        *,
        later: Callable[[float], None] | None = None,
        cut: Callable[[], Exception] | None = None,
        hurt: Callable[[Hurt], T] | None = None,
        **data: object,
    ) -> T:
        """An outside call, between the points ``<name>.before`` and ``<name>.after``.

        ``later`` makes it take place after some seconds, also if this process dies; ``cut`` is what a caller sees of a
        connection that broke; ``hurt`` acts with a program that is hit by a signal.
        """
        point, step = self._arrive(f"{name}.before", data)
        if isinstance(step, Late):
            if step.seconds is None:
                self.late.append(LateCall(point, act))
            elif later is None:
                raise InvariantError(f"{name} cannot be made late in another process")
            else:
                later(step.seconds)
            raise cut() if cut else AuthorityUnreachable(f"The connection broke at {point}.")
        self._do(point, step)
        answer = hurt(step) if isinstance(step, Hurt) and hurt is not None else act()
        self.reach(f"{name}.after", **data)
        return answer

    # --- what a proof calls -----------------------------------------------------------------------------------

    def points(self) -> list[Point]:
        """What has been reached, oldest first."""
        with self._turn:
            return list(self._kept)

    def blocked(self) -> dict[str, Point]:
        """Threads that are held, by name, with the point that each has reached."""
        with self._turn:
            return {actor: point for actor, point in self._blocked.items() if actor not in self._free}

    def release(self, actor: str) -> None:
        """Let a held thread go on from its point."""
        with self._turn:
            self._free.add(actor)
            self._turn.notify_all()

    def wait_for(self, what: Callable[[dict[str, Point]], bool], seconds: float) -> bool:
        """Wait until the held threads are as wanted; False where the time is over first.

        ``what`` is also asked every few milliseconds, for a thread may end or wait for a lock without telling.
        """
        for _ in range(max(1, int(seconds / 0.005))):
            with self._turn:
                held = {a: p for a, p in self._blocked.items() if a not in self._free}
                if what(held):
                    return True
                self._turn.wait(0.005)
        return False

    def land(self, late: LateCall) -> object:
        """Apply a call that was accepted long ago; what it answers, nobody hears."""
        self.late.remove(late)
        return late.act()

    # --- steps ------------------------------------------------------------------------------------------------

    def _arrive(self, name: str, data: Mapping[str, object]) -> tuple[Point, Step]:
        with self._turn:
            self._names[name] += 1
            self._count += 1
            actor = threading.current_thread().name
            point = Point(name, self._names[name], self._count, actor, data)
            self._kept.append(point)
        step = self.policy.choose(point)
        if not isinstance(step, Pass) and self._tell is not None:
            self._tell(point, step)
        return point, step

    def _do(self, point: Point, step: Step) -> None:
        if isinstance(step, Kill):
            os.kill(os.getpid(), signal.SIGKILL)
        elif isinstance(step, Freeze):
            os.kill(os.getpid(), signal.SIGSTOP)
        elif isinstance(step, Block):
            self._hold(point)
        elif isinstance(step, Fault):
            raise step.error()

    def _hold(self, point: Point) -> None:
        with self._turn:
            self._free.discard(point.actor)
            self._blocked[point.actor] = point
            self._turn.notify_all()
            self._turn.wait_for(lambda: point.actor in self._free)
            self._free.discard(point.actor)
            del self._blocked[point.actor]


# --- the points there are ---------------------------------------------------------------------------------------

COMMITS = ("db.before_commit", "db.after_commit")
TRANSITIONS = ("transition.before_commit", "transition.after_commit")
AROUND_AN_ACT = (
    "intended",
    "before_probe",
    "after_probe",
    "before_act",
    "after_act",
    "before_revoke",
    "after_revoke",
)
EFFECTS = tuple(
    f"{name.value}.{point}"
    for name in EffectName
    if name is not EffectName.RATCHET
    for point in AROUND_AN_ACT
)  # the ratchet is a row in the commit that settles the merge: there is nothing around it
PRODUCT = Path(orchestrator.__file__).parent


def literal_waypoints() -> frozenset[str]:
    """The names that stand in the product's code as they are; ``{…}`` is left where a part of one is put in."""
    found = set[str]()
    for path in PRODUCT.rglob("*.py"):
        found |= set(re.findall(r"""[.]reach\(\s*f?"([^"]+)\"""", path.read_text(encoding="utf-8")))
    return frozenset(found)


NAMED = tuple(sorted(name for name in literal_waypoints() if "{" not in name))


def around(*calls: str) -> Sequence[str]:
    """The two points of each outside call."""
    return [f"{call}.{side}" for call in calls for side in ("before", "after")]


def watched(target: Any, scheduler: Scheduler, prefix: str, *methods: str) -> Any:
    """``target``, with these methods as outside calls ``<prefix>.<method>`` of the scheduler."""
    return _Watched(target, scheduler, prefix, frozenset(methods))


class _Watched:
    def __init__(self, target: Any, scheduler: Scheduler, prefix: str, methods: frozenset[str]) -> None:
        self._target, self._scheduler, self._prefix, self._methods = target, scheduler, prefix, methods

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name not in self._methods:
            return found

        def call(*args: object, **named: object) -> object:
            return self._scheduler.call(f"{self._prefix}.{name}", lambda: found(*args, **named))

        return call
