"""The short form of the explorer: in every scenario the first schedules of many, each judged step by step."""

import pytest

from tests.proofs.explorer import Stage, explore
from tests.proofs.memory_ledgers import MemoryLedger
from tests.proofs.play import Scenario
from tests.proofs.scenarios import SCENARIOS

# schedules of a scenario; the long form takes them all. Statement by statement each takes much longer.
SHORT = {"sqlite": 8, "postgres": 2}

pytestmark = [
    pytest.mark.usefixtures("quietly"),
    pytest.mark.parametrize("database_kind", ["sqlite", "postgres"], indirect=True),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_schedule_breaks_a_law(
    memory_ledger: MemoryLedger, database_kind: str, scenario: Scenario
) -> None:
    stage = Stage(scenario, memory_ledger)
    report = explore(
        stage, preemptions=scenario.budget.preemptions, seconds=60, schedules=SHORT[database_kind]
    )
    if report.found is not None:
        told = stage.run(report.found.choices, explain=True)
        pytest.fail("\n".join([*told.broken, *told.trace, repr(told.choices)]))
    assert report.schedules > 1


def test_the_same_choices_give_the_same_run(memory_ledger: MemoryLedger) -> None:
    stage = Stage(SCENARIOS[0], memory_ledger)
    first = stage.run([], explain=True)
    branch = first.branches[len(first.branches) // 2]
    again = [stage.run([*first.choices[: branch.at], branch.choice], explain=True) for _ in range(2)]
    assert again[0].trace == again[1].trace != first.trace
