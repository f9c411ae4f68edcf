"""By what a merged task may be judged while something that was merged later is not done (N8)."""

import json

import pytest

from orchestrator.db import installation
from orchestrator.db.effects import merged_since
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.effects.trial import why_on_trial
from tests.fixtures_db import REPO, Store

EFFECT = (
    "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, evidence, "
    "intent_at, settled_at) "
    "VALUES (:task, :name, :key, 1, :state, 1, :sequence, 't', 'monitor', :evidence, utc_now(), :settled)"
)


class Ledger:
    """Two tasks of a repository, the second merged after the first, and what was started since."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sequence = 9  # the next number has a digit more: numbers are not compared as text
        self.first, self.second = self._merged(), self._merged()

    def _merged(self) -> Task:
        task = self.store.new_task()
        self.write(task, "merge_pr", repo=task.repo, candidate={"sequence": self.sequence})
        return self.store.move(task.id, Stage.DEPLOY)

    def write(self, task: Task, name: str, state: str = "applied", **evidence: object) -> None:
        self.sequence += 1
        self.store.raw(
            EFFECT,
            {
                "task": task.id,
                "name": name,
                "key": f"{name}:{self.sequence}",
                "state": state,
                "sequence": self.sequence,
                "evidence": json.dumps({"environment": "production", "sha": "a" * 40, **evidence}),
                "settled": "2026" if state == "applied" else None,
            },
        )

    def why(self, *, own: bool, task: Task | None = None) -> str | None:
        with self.store.database.read() as tx:
            return why_on_trial(tx, task or self.first, "production", own=own)


@pytest.fixture
def ledger(store: Store) -> Ledger:
    store.drop_guard("start_has_its_place", "effects")  # the ledger is told, not worked for
    return Ledger(store)


def test_what_was_merged_last_is_judged_by_itself(ledger: Ledger) -> None:
    assert ledger.why(own=True, task=ledger.second) is None
    assert ledger.why(own=False, task=ledger.second) is None


def test_the_newest_merge_is_the_one_with_the_highest_number(ledger: Ledger) -> None:
    """What a forge must show of main goes by it."""
    for task in (ledger.first, ledger.second):
        fact = json.dumps({"merged": str(task.work_item)})
        ledger.store.raw("UPDATE effects SET fact = :fact WHERE task_id = :id", {"fact": fact, "id": task.id})
    with ledger.store.database.read() as tx:
        assert installation.known(tx)[REPO].merged == ledger.second.work_item


def test_by_a_later_merge_nothing_is_judged_before_that_is_done(ledger: Ledger) -> None:
    ledger.write(ledger.first, "deploy_init")
    assert f"{ledger.second.work_item}, merged after" in str(ledger.why(own=False))
    ledger.write(ledger.second, "deploy_init")
    assert "may still be undone" in str(ledger.why(own=False))
    assert "may still be undone" in str(ledger.why(own=True))
    ledger.store.move(ledger.second.id, Stage.DONE)
    assert ledger.why(own=False) is None
    assert ledger.why(own=True) is None


def test_a_later_merge_that_was_never_started_takes_nothing_away(ledger: Ledger) -> None:
    assert ledger.why(own=True) is None
    ledger.write(ledger.first, "deploy_init")
    assert ledger.why(own=True) is None


def test_a_later_start_that_has_been_undone_takes_nothing_away_any_more(ledger: Ledger) -> None:
    ledger.write(ledger.first, "deploy_init")
    ledger.write(ledger.second, "deploy_init")
    assert ledger.why(own=True) is not None
    ledger.write(ledger.second, "deploy_undo")
    assert ledger.why(own=True) is None
    assert ledger.why(own=False) is not None


@pytest.mark.parametrize("name", ["deploy_init", "deploy_undo"])
def test_what_is_under_way_is_waited_for(ledger: Ledger, name: str) -> None:
    ledger.write(ledger.first, "deploy_init")
    ledger.write(ledger.second, name, "intended")
    assert "not settled" in str(ledger.why(own=True))


def test_once_something_is_done_that_contains_it_later_trials_are_of_no_concern(ledger: Ledger) -> None:
    ledger.write(ledger.second, "deploy_init")
    ledger.store.move(ledger.second.id, Stage.DONE)
    third = ledger._merged()
    ledger.write(third, "deploy_init")
    with ledger.store.database.read() as tx:
        assert merged_since(tx, ledger.first.id) == third.work_item
    assert ledger.why(own=False) is None
    assert ledger.why(own=True) is None
