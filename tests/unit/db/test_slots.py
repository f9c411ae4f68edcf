"""Shared places: both or neither, freed with the stage, given to the freeze; and a baseline that never falls."""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

import pytest

from orchestrator.db import repositories, slots
from orchestrator.db.database import Row, Tx
from orchestrator.db.repositories import Repository
from orchestrator.db.slots import environment_slot, merge_slot
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.domain.task import Task
from tests.fixtures_db import REPO, Store

at_a_server = pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)

TAKEN = (
    "INSERT INTO slots (name, repo, holder, task_id, taken_at) VALUES (:name, 'other', 'task', :task_id, 'x')"
)
NAMES = [merge_slot(REPO), environment_slot("staging")]


def take(store: Store, task: Task, names: list[str]) -> slots.Slot | None:
    """As a caller does it: what is busy undoes what was taken."""
    try:
        with store.database.write() as tx:
            busy = slots.take_all(tx, REPO, task.id, names)
            if busy is not None:
                raise LookupError(busy)
    except LookupError as refused:
        busy = refused.args[0]
        assert isinstance(busy, slots.Slot)
        return busy
    return None


class Between:
    """A transaction, and what others commit between the statements of it that this test is about."""

    def __init__(self, tx: Tx, before: Mapping[str, Callable[[], object]]) -> None:
        self._tx = tx
        self._before = before

    def execute(self, name: str, /, **params: object) -> int:
        self._before.get(name, lambda: None)()
        return self._tx.execute(name, **params)

    def one(self, name: str, /, **params: object) -> Row | None:
        self._before.get(name, lambda: None)()
        return self._tx.one(name, **params)

    def all(self, name: str, /, **params: object) -> Sequence[Row]:
        return self._tx.all(name, **params)


def held(store: Store, task: Task) -> list[str]:
    with store.database.read() as tx:
        return slots.held_by(tx, task.id)


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids=lambda order: order[0])
def test_all_or_none(store: Store, order: tuple[str, ...]) -> None:
    one, two = store.new_task(), store.new_task()
    assert take(store, one, [environment_slot("staging")]) is None
    busy = take(store, two, list(order))
    assert busy is not None
    assert (busy.name, busy.task_id, busy.work_item) == (environment_slot("staging"), one.id, one.work_item)
    assert held(store, two) == []
    assert take(store, one, list(order)) is None  # what is held already is no obstacle
    assert held(store, one) == sorted(NAMES)


def test_what_is_freed_can_be_taken(store: Store) -> None:
    one, two = store.new_task(), store.new_task()
    take(store, one, NAMES)
    with store.database.write() as tx:
        slots.free(tx, one.id, environment_slot("staging"))
        slots.free(tx, two.id, merge_slot(REPO))  # not its own: nothing happens
    assert held(store, one) == [merge_slot(REPO)]
    with store.database.write() as tx:
        assert slots.free_all(tx, REPO, one.id) == 1
    assert take(store, two, NAMES) is None


class Passing:
    """A place that a ticket of another repository has just taken, or has just freed: nothing else queues the two."""

    def __init__(self, store: Store, place: str) -> None:
        self._store = store
        self._row = {"name": place, "task_id": store.new_task().id}
        with store.database.write() as tx:
            repositories.add(tx, Repository(RepoName("other"), "local", "/elsewhere", "OTH"))

    def take(self) -> None:
        self._store.raw(TAKEN, self._row)

    def free(self) -> None:
        self._store.raw("DELETE FROM slots WHERE repo = 'other'")


@at_a_server
def test_what_is_freed_just_when_it_was_in_the_way_is_taken(store: Store) -> None:
    """A file has one writer."""
    task, place = store.new_task(), environment_slot("production")
    other = Passing(store, place)
    other.take()
    with store.database.write() as tx:
        assert slots.take_all(Between(tx, {"slots.get": other.free}), REPO, task.id, [place]) is None
    assert held(store, task) == [place]


@at_a_server
def test_what_goes_from_hand_to_hand_is_not_taken(store: Store) -> None:
    task, place = store.new_task(), environment_slot("production")
    other = Passing(store, place)
    with store.database.write() as tx:
        between = Between(tx, {"slots.take": other.take, "slots.get": other.free})
        busy = slots.take_all(between, REPO, task.id, [place])
    assert busy is not None
    assert (busy.name, busy.task_id, busy.frozen) == (place, None, False)
    assert held(store, task) == []


def test_a_freeze_keeps_the_merge_slot_until_it_is_lifted(store: Store) -> None:
    broken, other = store.new_task(), store.new_task()
    take(store, broken, [merge_slot(REPO)])
    with store.database.write() as tx:
        slots.freeze(tx, REPO, "production is ill", broken.id)
        slots.freeze(tx, REPO, "a later reason", other.id)
        slots.give_to_freeze(tx, REPO, broken.id)
        frozen = slots.frozen(tx, REPO)
        assert frozen is not None
        assert (frozen.reason, frozen.work_item) == ("production is ill", broken.work_item)
        assert slots.freezes(tx) == [frozen]
    busy = take(store, other, NAMES)
    assert busy is not None
    assert (busy.frozen, busy.task_id) == (True, None)
    with store.database.write() as tx:
        assert slots.unfreeze(tx, REPO)
        assert not slots.unfreeze(tx, REPO)
        assert slots.all_slots(tx) == []
    assert take(store, other, NAMES) is None


def test_a_frozen_slot_returns_to_its_freeze_and_is_never_free(store: Store) -> None:
    broken, fix = store.new_task(), store.new_task()
    take(store, broken, NAMES)
    with store.database.write() as tx:
        slots.freeze(tx, REPO, "production is ill", broken.id)
        assert slots.free_all(tx, REPO, broken.id) == 2
        slots.lend(tx, REPO, fix.id)
        kept = slots.get(tx, merge_slot(REPO))
        frozen = slots.frozen(tx, REPO)
    assert (kept.frozen, kept.task_id) == (True, None) if kept else False
    assert (frozen.lent_to, frozen.lent_item) == (fix.id, fix.work_item) if frozen else False
    with store.database.write() as tx:
        assert slots.take_from_freeze(tx, REPO, fix.id)
        assert not slots.take_from_freeze(tx, REPO, fix.id)
    assert take(store, fix, NAMES) is None
    with store.database.write() as tx:
        assert slots.free_all(tx, REPO, fix.id) == 2
        kept = slots.get(tx, merge_slot(REPO))
        assert slots.end_loan(tx, fix.id)
    assert kept is not None
    assert kept.frozen


@pytest.mark.parametrize("order", list(permutations([81.0, 82.0, 80.5])), ids=str)
def test_the_baseline_is_the_highest_that_landed_whatever_the_order(
    store: Store, order: tuple[float, ...]
) -> None:
    task = store.new_task()
    seen = []
    for number, measured in enumerate(order):
        with store.database.write() as tx:
            assert slots.ratchet(tx, REPO, Sha(f"{number:040}"), measured, task.id)
            assert not slots.ratchet(tx, REPO, Sha(f"{number:040}"), 99.0, task.id)  # a merge counts once
            now = slots.baseline(tx, REPO)
            assert now is not None
            seen.append(now.percent)
    assert seen == [max(order[: n + 1]) for n in range(3)]


def test_no_baseline_before_the_first_merge(store: Store) -> None:
    with store.database.read() as tx:
        assert slots.baseline(tx, REPO) is None
