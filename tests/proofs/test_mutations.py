"""Each seeded bug is found by the law that was meant to find it, in a run that can be repeated."""

import pytest

from tests.proofs.explorer import Stage, explore
from tests.proofs.interleaving import Diverged
from tests.proofs.memory_ledgers import NewLedger
from tests.proofs.mutations import MUTATIONS, ON_POSTGRES, Mutation

SCHEDULES = 600

pytestmark = pytest.mark.usefixtures("quietly")


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_bug_is_found(new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    _is_found(new_ledger, monkeypatch, mutation)


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("mutation", ON_POSTGRES, ids=lambda mutation: mutation.name)
def test_the_bug_is_found_between_two_statements(
    new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch, mutation: Mutation
) -> None:
    """Of two transactions side by side; SQLite has one writer at a time and never shows it."""
    _is_found(new_ledger, monkeypatch, mutation)


def _is_found(new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    stage = mutation.stage(new_ledger(), monkeypatch)
    budget = stage.scenario.budget
    report = explore(stage, preemptions=budget.preemptions, seconds=500, schedules=SCHEDULES)
    assert report.found is not None
    assert any(mutation.finds in said for said in report.found.broken), report.found.broken

    again = stage.run(report.found.choices, explain=True)
    assert again.broken == report.found.broken

    monkeypatch.undo()
    try:
        unharmed = Stage(mutation.where, new_ledger()).run(report.found.choices, explain=True)
    except Diverged:
        return  # without the bug the run cannot even go that way
    assert unharmed.broken == []
