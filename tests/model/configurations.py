"""Which spaces are explored: the short ones by the suite, the long ones by hand; each is the full protocol.

The bounds differ because their product would not end. Each row lets a few things go wrong together that could matter
to one another, and every pair of them meets in some row of the long form.
"""

from tests.model.configuration import Configuration
from tests.model.pipeline import CREATED, MERGES, PREPARES, STAGES, STARTS
from tests.model.state import Budget

STAGED = frozenset({PREPARES, STAGES, MERGES, STARTS})


def whole(name: str, budget: Budget, *, actors: int = 2) -> Configuration:
    """One task through the whole pipeline, every effect driven through the ledger."""
    return Configuration(name, first=CREATED, driven=None, budget=budget, actors=actors)


def staged(name: str, budget: Budget, *, tasks: int = 1, actors: int = 2) -> Configuration:
    """From the slots on, with the push of the candidate and the start in staging as effects of their own."""
    return Configuration(name, driven=STAGED, budget=budget, tasks=tasks, actors=actors)


def late(name: str, budget: Budget, *, tasks: int = 1, actors: int = 2) -> Configuration:
    """From the slots on, merge and production as effects; the steps before the merge are one."""
    return Configuration(name, budget=budget, tasks=tasks, actors=actors)


SHORT = (
    whole("whole: rejections, cancel", Budget(steals=1, fails=1, cancels=1)),
    whole("whole: main moves, unhealthy", Budget(steals=1, late=1, pushes=1, sick=1)),
    whole("whole: silence, retry, crash", Budget(crashes=1, pushes=1, silent=1, sick=1, retries=1)),
    late("cancel while main moves", Budget(steals=1, late=1, cancels=1, pushes=1)),
    late("branch moved and back", Budget(steals=1, strays=2, outages=1)),
    late("deploy, undo, start again", Budget(steals=1, late=1, sick=1, outages=1, retries=1)),
    late("three actors", Budget(steals=2, late=1, cancels=1), actors=3),
    staged("candidate and staging", Budget(steals=1, late=1, pushes=1, cancels=1)),
    late("two: cancel, unhealthy", Budget(cancels=1, sick=1, crashes=1), tasks=2),
    late("two: late calls, main moves", Budget(steals=1, late=1, pushes=1), tasks=2),
    late("two: late deploys", Budget(steals=1, late=1, sick=1), tasks=2),
    late("two: both unhealthy, started again", Budget(steals=1, sick=2, retries=1), tasks=2),
    staged("two: staging", Budget(steals=1, pushes=1), tasks=2),
)

EVERYTHING = Budget(crashes=1, late=1, pushes=1, strays=1, cancels=1, fails=1, sick=1, silent=1, retries=1)
LONG = (
    whole("whole, long: rejections, cancel", Budget(steals=1, crashes=1, fails=2, cancels=1)),
    whole("whole, long: main moves", Budget(steals=1, late=1, pushes=1, cancels=1, outages=1)),
    whole("whole, long: deploy", Budget(steals=1, late=1, silent=1, sick=1, retries=1, outages=1)),
    late("outages", Budget(steals=1, crashes=1, strays=1, fails=1, silent=1, outages=1)),
    whole(
        "whole, long: rejections, taken over twice", Budget(steals=2, crashes=1, late=1, fails=2, cancels=1)
    ),
    whole("whole, long: two undos", Budget(steals=2, late=2, sick=2, retries=1, outages=1)),
    late("everything once", EVERYTHING._replace(steals=1)),
    late("everything once, nobody taken over", EVERYTHING),
    late("everything once, no late call", EVERYTHING._replace(steals=1, crashes=0, late=0)),
    late("branch and main move", Budget(steals=1, late=2, pushes=1, strays=2)),
    late("three actors: merge", Budget(steals=2, crashes=1, late=1, pushes=1, cancels=1), actors=3),
    late(
        "three actors: merge, branch moved",
        Budget(steals=2, crashes=1, late=2, pushes=1, strays=1, cancels=1),
        actors=3,
    ),
    late("three actors: deploy", Budget(steals=2, crashes=1, late=1, fails=1, sick=1), actors=3),
    staged("staging, long", Budget(steals=2, late=1, pushes=1, cancels=1, fails=1)),
    late("two, long: merge", Budget(steals=1, late=1, pushes=1, cancels=1), tasks=2),
    late("two, long: merge and undo", Budget(steals=1, late=1, pushes=1, cancels=1, sick=1), tasks=2),
    late("two, long: deploy", Budget(steals=1, late=1, cancels=1, sick=1), tasks=2),
    late("two, long: crash", Budget(crashes=1, late=1, fails=1, sick=1), tasks=2),
    late("two, long: both unhealthy", Budget(steals=1, late=1, sick=2, retries=1), tasks=2),
    late("two, long: three actors", Budget(steals=1, cancels=1, sick=1), tasks=2, actors=3),
)


def named(wanted: str) -> list[Configuration]:
    """All configurations whose name holds the text."""
    return [configuration for configuration in (*SHORT, *LONG) if wanted in configuration.name]
