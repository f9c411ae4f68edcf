"""What is explored: how many tasks and actors, from where, which effects in full, and how much may go wrong."""

from dataclasses import dataclass, field

from tests.model.guards import Guards
from tests.model.pipeline import MERGES, STARTS, TESTING
from tests.model.state import Budget, World

MERGE_AND_DEPLOY = frozenset({MERGES, STARTS})


@dataclass(frozen=True, slots=True)
class Configuration:
    """One space of states."""

    name: str
    tasks: int = 1
    actors: int = 2
    first: str = TESTING  # where the tasks begin; what lies before it is passed in one step
    driven: frozenset[str] | None = MERGE_AND_DEPLOY  # through the ledger; None: every effect
    budget: Budget = Budget()
    world: World = World()
    guards: Guards = field(default_factory=Guards)
    mute: frozenset[str] = frozenset()  # laws that only repeat the guard which is taken out
