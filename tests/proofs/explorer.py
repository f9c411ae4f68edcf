"""Explores every schedule of a scenario up to a bound on preemptions, fewest first; no state is gone through twice.

A run is repeated from its list of choices. Two runs are in the same state when every actor has seen the same, the
database has had the same writes in the same order, and the outside is the same: what can follow is then the same too.
"""

import logging
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import structlog

from tests.proofs.interleaving import Budget, Decisions
from tests.proofs.memory_ledgers import MemoryLedger
from tests.proofs.memory_world import MemoryProcess, register
from tests.proofs.play import REST, Play, Run, Scenario


@dataclass
class Report:
    """What an exploration has covered."""

    scenario: str
    schedules: int = 0
    pruned: int = 0
    steps: int = 0
    seconds: float = 0.0
    preemptions: int = 0  # the bound up to which nothing is left
    complete: bool = False
    found: Run | None = None
    frontier: list[list[str]] = field(default_factory=list)


class Stage:
    """A scenario made ready to be run many times."""

    def __init__(self, scenario: Scenario, ledger: MemoryLedger, *, without: Sequence[str] = ()) -> None:
        """``without`` names triggers of the schema to be dropped: the last guards, behind those of the code."""
        self.scenario = scenario
        self.ledger = ledger
        self.template = scenario.make(ledger)
        self.numbers = sorted({actor.process for actor in scenario.actors if actor.process} | {REST})
        database = ledger.open()
        try:
            for number in self.numbers:
                register(database, MemoryProcess(number))
        finally:
            database.close()
        for trigger in without:
            ledger.drop_guard(trigger)
        ledger.keep()

    def run(
        self, choices: Sequence[str], *, budget: Budget | None = None, visited: dict[bytes, int] | None = None,
        explain: bool = False,
    ) -> Run:  # fmt: skip
        """Repeat these choices, then go on as simply as it goes; ``visited`` ends it where nothing new can come."""
        decisions = Decisions(choices, budget or self.scenario.budget)
        play = Play(self, self.template.begin(), decisions, visited, explain=explain)
        try:
            return play.to_the_end()
        finally:
            play.close()


def explore(
    stage: Stage, *, preemptions: int, seconds: float, schedules: int | None = None,
    begin: Sequence[Sequence[str]] = ((),),
) -> Report:  # fmt: skip
    """All schedules with no preemption, then those with one, and so on to the bound or until the time is over."""
    report = Report(stage.scenario.name)
    budget = replace(stage.scenario.budget, preemptions=preemptions)
    waiting: list[list[list[str]]] = [[] for _ in range(preemptions + 1)]
    chance = random.Random(0)
    waiting[0].extend(list(choices) for choices in begin)
    visited: dict[bytes, int] = {}
    started = time.monotonic()
    for bound, queue in enumerate(waiting):
        while queue:
            report.seconds = time.monotonic() - started
            if report.seconds > seconds or (schedules is not None and report.schedules >= schedules):
                report.frontier = [choices for rest in waiting for choices in rest]
                return report
            choices = queue.pop(
                chance.randrange(len(queue))
            )  # in no order: cut short, it still looks everywhere
            run = stage.run(choices, budget=budget, visited=visited)
            report.schedules += 1
            report.pruned += run.pruned
            report.steps += run.steps
            if run.broken:
                report.found = run
                return report
            for branch in run.branches:
                waiting[branch.preemptions].append([*run.choices[: branch.at], branch.choice])
        report.preemptions = bound
    report.complete = True
    report.seconds = time.monotonic() - started
    return report


@contextmanager
def quiet() -> Iterator[None]:
    """No log: thousands of runs warn of what is meant to happen."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=False
    )
    try:
        yield
    finally:
        structlog.configure(**before)
