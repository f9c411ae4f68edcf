"""Breadth first over all interleavings, then backwards: which states can no longer come to rest.

A state is kept as one number: the parts of which states are made (a task's record, the actors, the world) repeat all
the time, are numbered once each, and the numbers are packed together. Labels are not kept; a trace is found again by
taking the steps from the start once more.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from tests.model.configuration import Configuration
from tests.model.laws import at_rest, laws_for
from tests.model.people import Label
from tests.model.protocol import Protocol
from tests.model.state import State

PART_BITS = 22  # up to four million different records of a kind

CLEAN, VIOLATION, STUCK, CAPPED = "clean", "VIOLATION", "STUCK", "CAPPED"


@dataclass(frozen=True, slots=True)
class Explored:
    """What was found."""

    result: str
    law: str  # that was broken, or what is stuck
    states: int
    edges: int
    trace: tuple[Label, ...]
    protocol: Protocol
    last: State | None = None


class Codes:
    """States as numbers and back."""

    def __init__(self) -> None:
        self._numbers: list[dict[object, int]] = []
        self._parts: list[list[object]] = []

    def encode(self, state: State) -> int:
        """The state's number."""
        key = 0
        parts = (*state.tasks, state.world, state.calls, state.actors, state.budget, state.broken)
        if not self._numbers:
            self._numbers = [{} for _ in parts]
            self._parts = [[] for _ in parts]
        for place, part in enumerate(parts):
            known = self._numbers[place]
            number = known.get(part)
            if number is None:
                number = known[part] = len(known)
                self._parts[place].append(part)
            key = key << PART_BITS | number
        return key

    def decode(self, key: int) -> State:
        """The state of a number."""
        found: list[object] = []
        mask = (1 << PART_BITS) - 1
        for place in range(len(self._parts) - 1, -1, -1):
            found.append(self._parts[place][key & mask])
            key >>= PART_BITS
        found.reverse()
        return State(tuple(found[:-5]), *found[-5:])  # type: ignore[arg-type]


def explore(
    configuration: Configuration,
    *,
    cap: int = 10_000_000,
    progress: Callable[[int], None] = lambda states: None,
) -> Explored:
    """All reachable states; stops at the first that breaks a law, which is one of the nearest."""
    protocol, codes = Protocol(configuration), Codes()
    laws = tuple(laws_for(configuration.driven, configuration.mute).items())
    start = codes.encode(protocol.start())
    index: dict[int, int] = {start: 0}
    order, came_from = [start], array("i", [-1])
    ends, firsts, goals = array("i"), array("l"), bytearray()
    here = 0
    while here < len(order):
        state = codes.decode(order[here])
        law = next(iter(state.broken), "") or next((name for name, holds in laws if not holds(state)), "")
        if law:
            trace = _trace(protocol, codes, order, came_from, here)
            return Explored(VIOLATION, law, len(order), len(ends), trace, protocol, state)
        goals.append(at_rest(state))
        firsts.append(len(ends))
        for _, new in protocol.successors(state):
            key = codes.encode(new)
            there = index.get(key)
            if there is None:
                there = index[key] = len(order)
                order.append(key)
                came_from.append(here)
            ends.append(there)
        here += 1
        if here % 10_000 == 0:
            progress(here)
        if len(order) > cap:
            return Explored(CAPPED, "", len(order), len(ends), (), protocol)
    firsts.append(len(ends))
    stuck = _stuck(goals, firsts, ends)
    if stuck:
        trace = _trace(protocol, codes, order, came_from, stuck[0])
        what = f"{len(stuck)} states can never come to rest"
        return Explored(STUCK, what, len(order), len(ends), trace, protocol, codes.decode(order[stuck[0]]))
    return Explored(CLEAN, "", len(order), len(ends), (), protocol)


def _stuck(goals: bytearray, firsts: "array[int]", ends: "array[int]") -> list[int]:
    """States from which no state at rest can be reached: walk the edges backwards from those."""
    states = len(goals)
    into = array("l", bytes(8 * (states + 1)))  # where each state's predecessors begin
    for there in ends:
        into[there + 1] += 1
    for here in range(states):
        into[here + 1] += into[here]
    free, sources = array("l", into), array("i", bytes(4 * len(ends)))
    for here in range(states):
        for there in ends[firsts[here] : firsts[here + 1]]:
            sources[free[there]] = here
            free[there] += 1
    can = bytearray(goals)
    waiting = [here for here in range(states) if can[here]]
    while waiting:
        there = waiting.pop()
        for here in sources[into[there] : into[there + 1]]:
            if not can[here]:
                can[here] = 1
                waiting.append(here)
    return [here for here in range(states) if not can[here]]


def _trace(
    protocol: Protocol, codes: Codes, order: list[int], came_from: "array[int]", to: int
) -> tuple[Label, ...]:
    path = [to]
    while came_from[path[-1]] >= 0:
        path.append(came_from[path[-1]])
    path.reverse()
    labels = []
    for before, after in zip(path, path[1:], strict=False):
        for label, new in protocol.successors(codes.decode(order[before])):
            if codes.encode(new) == order[after]:
                labels.append(label)
                break
    return tuple(labels)
