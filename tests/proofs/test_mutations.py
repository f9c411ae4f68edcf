"""Each seeded bug is found by the law that was meant to find it, in a run that can be repeated."""

from pathlib import Path

import pytest

from tests.proofs.explorer import Stage, explore
from tests.proofs.interleaving import Diverged
from tests.proofs.mutations import MUTATIONS, Mutation

SCHEDULES = 600

pytestmark = pytest.mark.usefixtures("quietly")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_bug_is_found(memory_folder: Path, monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    stage = mutation.stage(memory_folder / "with", monkeypatch)
    budget = stage.scenario.budget
    report = explore(stage, preemptions=budget.preemptions, seconds=500, schedules=SCHEDULES)
    assert report.found is not None
    assert any(mutation.finds in said for said in report.found.broken), report.found.broken

    again = stage.run(report.found.choices, explain=True)
    assert again.broken == report.found.broken

    monkeypatch.undo()
    try:
        unharmed = Stage(mutation.where, memory_folder / "without").run(report.found.choices, explain=True)
    except Diverged:
        return  # without the bug the run cannot even go that way
    assert unharmed.broken == []
