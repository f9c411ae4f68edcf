"""Whose turn it is, to whom a freeze lends, and who is never in the line (H18, N9, N10)."""

import pytest

from orchestrator.db import jobs, slots, tasks
from orchestrator.db.slots import merge_slot
from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.repo_config.records import CiConfig, EnvironmentConfig, ProbeConfig, RepoConfig
from orchestrator.stage_engine import serial_gate
from orchestrator.stage_engine.not_now import NotNow
from orchestrator.stage_engine.serial_gate import slots_needed, slots_of_deploy
from tests.fixtures_db import REPO, Store


def waiting(store: Store, hold: Hold = Hold.SLOT) -> Task:
    """A task in testing that waits; each later than the one before."""
    task = store.new_task(stage=Stage.TESTING)
    store.clock.advance(1)
    with store.database.write() as tx:
        tasks.hold(tx, task.id, hold, "waits")
    return store.task(task.id)


def why_not(store: Store, task: Task) -> Hold | None:
    """Why the task cannot take the slot now; None where it has taken it."""
    try:
        with store.database.write() as tx:
            serial_gate.take(tx, task, [merge_slot(REPO)], Actor.RECONCILER)
    except NotNow as busy:
        return busy.hold
    return None


def first(store: Store) -> list[int]:
    with store.database.read() as tx:
        return [int(task_id) for task_id in serial_gate.whose_turn(tx, REPO)]


def frozen_by(store: Store) -> Task:
    broken = store.new_task()
    with store.database.write() as tx:
        slots.freeze(tx, REPO, "production is ill", broken.id)
    return broken


def test_the_oldest_waiter_takes_what_is_free(store: Store) -> None:
    older, younger = waiting(store), waiting(store)
    assert first(store) == [older.id]
    assert why_not(store, younger) is Hold.SLOT
    assert why_not(store, older) is None


@pytest.mark.parametrize("stage", [Stage.DEPLOY_STAGING, Stage.TESTING])
def test_who_lacks_a_place_on_the_way_to_a_start_is_woken_before_the_line(store: Store, stage: Stage) -> None:
    """With nothing else that keeps it: no job, no unsettled effect, nobody who has to decide."""
    at_its_start, behind = store.new_task(stage=stage), waiting(store)
    tasks_of_start = [at_its_start.id] if stage is Stage.DEPLOY_STAGING else []
    assert first(store) == [*tasks_of_start, behind.id]
    with store.database.write() as tx:
        job = jobs.enqueue(tx, at_its_start, jobs.NewJob(JobKind.STAGING_HEALTH))
    assert first(store) == [behind.id]
    store.raw("DELETE FROM jobs WHERE id = :id", {"id": job})
    with store.database.write() as tx:
        tasks.hold(tx, at_its_start.id, Hold.PERSON, "waits")
    assert first(store) == [behind.id]


@pytest.mark.parametrize("hold", [Hold.ESCALATED, Hold.BLOCKED, Hold.PERSON])
def test_who_waits_for_something_else_does_not_hold_the_line(store: Store, hold: Hold) -> None:
    waiting(store, hold)
    younger = waiting(store)
    assert first(store) == [younger.id]
    assert why_not(store, younger) is None


@pytest.mark.parametrize("end", [Stage.CANCELLED, Stage.DEVELOPMENT])
def test_who_has_left_does_not_hold_the_line(store: Store, end: Stage) -> None:
    older, younger = waiting(store), waiting(store)
    store.move(older.id, end)
    assert first(store) == [younger.id]
    assert why_not(store, younger) is None


def test_whom_a_freeze_lends_to_passes_it_and_the_line(store: Store) -> None:
    frozen_by(store)
    older, fix = waiting(store), waiting(store)
    assert why_not(store, fix) is Hold.FROZEN
    with store.database.write() as tx:
        assert serial_gate.lend(tx, REPO, fix, person="Ann", reason="")
        assert serial_gate.why_no_slot(tx, fix) is None
        assert serial_gate.why_no_slot(tx, older) is not None
    assert first(store) == [fix.id, older.id]
    assert why_not(store, older) is Hold.FROZEN
    assert why_not(store, fix) is None
    with store.database.write() as tx:
        serial_gate.give_back(tx, fix, Actor.MONITOR)
        assert slots.held_by(tx, fix.id) == []
        held = slots.get(tx, merge_slot(REPO))
    assert held is not None
    assert held.frozen
    assert why_not(store, fix) is None  # the loan has outlived the way back


def test_a_freeze_that_is_lifted_leaves_the_line_as_it_was(store: Store) -> None:
    """Who came first is still first, whoever is looked at first, and whether or not it has been looked at since."""
    older, younger = waiting(store), waiting(store)
    frozen_by(store)
    for held in (younger, older):
        assert why_not(store, held) is Hold.FROZEN
        store.clock.advance(1)
        with store.database.write() as tx:
            tasks.hold(tx, held.id, Hold.FROZEN, "the repository is frozen")
    assert first(store) == []
    with store.database.write() as tx:
        serial_gate.lift(tx, REPO, person="Ann", reason="")
    assert first(store) == [older.id]
    assert why_not(store, store.task(younger.id)) is Hold.SLOT
    assert why_not(store, store.task(older.id)) is None


def test_a_loan_moves_until_it_is_used(store: Store) -> None:
    frozen_by(store)
    one, two = store.new_task(stage=Stage.TESTING), store.new_task(stage=Stage.TESTING)
    with store.database.write() as tx:
        serial_gate.lend(tx, REPO, one, person="Ann", reason="")
        serial_gate.lend(tx, REPO, two, person="Ann", reason="")
    assert why_not(store, one) is Hold.FROZEN
    assert why_not(store, two) is None
    with pytest.raises(RequestRefused, match=f"with {two.work_item}"), store.database.write() as tx:
        serial_gate.lend(tx, REPO, one, person="Ann", reason="")


def test_lifting_a_freeze_leaves_the_slot_to_whoever_has_it(store: Store) -> None:
    frozen_by(store)
    fix, other = store.new_task(stage=Stage.TESTING), waiting(store)
    with store.database.write() as tx:
        serial_gate.lend(tx, REPO, fix, person="Ann", reason="")
    assert why_not(store, fix) is None
    with store.database.write() as tx:
        assert serial_gate.lift(tx, REPO, person="Ann", reason="")
        assert not serial_gate.lift(tx, REPO, person="Ann", reason="")
    assert why_not(store, other) is Hold.SLOT
    with store.database.write() as tx:
        serial_gate.give_back(tx, fix, Actor.MONITOR)
    assert why_not(store, other) is None


def test_a_slot_that_is_kept_for_no_freeze_is_freed_by_lifting(store: Store) -> None:
    """Bad data: only a person's hand can have written it."""
    frozen_by(store)
    fix = store.new_task(stage=Stage.TESTING)
    with store.database.write() as tx:
        serial_gate.lend(tx, REPO, fix, person="Ann", reason="")
    store.raw("DELETE FROM repo_freeze")
    assert why_not(store, fix) is Hold.SLOT
    with store.database.write() as tx:
        assert not serial_gate.lift(tx, REPO, person="Ann", reason="")
    assert why_not(store, fix) is None


def config(staging: str | None, production: str | None) -> RepoConfig:
    def place(name: str | None) -> EnvironmentConfig | None:
        return EnvironmentConfig(name, ("deploy",), ProbeConfig(url="http://x")) if name is not None else None

    return RepoConfig("main", CiConfig(("check",)), staging=place(staging), production=place(production))


def test_production_is_a_shared_place_as_staging_is(store: Store) -> None:
    """Another repository may name the same one: neither may start there over the other's start."""
    task = store.new_task()
    names = [merge_slot(REPO), "environment:stage", "environment:prod"]
    assert slots_needed(task, config("stage", "prod")) == names
    assert slots_of_deploy(task, config("stage", "prod")) == [names[0], names[2]]
    assert slots_needed(task, config("one", "one")) == [names[0], "environment:one"]
    assert slots_of_deploy(task, config("one", "one")) == [names[0], "environment:one"]
    assert slots_needed(task, config(None, None)) == [names[0]]


def test_what_broke_gives_production_back_and_takes_it_again(store: Store) -> None:
    broken = frozen_by(store)
    names = slots_of_deploy(broken, config(None, "prod"))
    with store.database.write() as tx:
        slots.lend(tx, REPO, broken.id)
        serial_gate.take_again(tx, broken, names, Actor.OPERATOR)
        assert sorted(slots.held_by(tx, broken.id)) == sorted(names)
        serial_gate.keep_for_the_freeze(tx, broken, Actor.MONITOR)
        assert slots.held_by(tx, broken.id) == []
        assert [(slot.name, slot.frozen) for slot in slots.all_slots(tx)] == [(merge_slot(REPO), True)]


EFFECT = (
    "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, evidence, "
    "intent_at, settled_at) VALUES (:task, :name, 'k', 1, :state, 1, "
    "(SELECT coalesce(max(sequence), 0) + 1 FROM effects), 't', 'monitor', '{}', utc_now(), :settled)"
)


def merged(store: Store) -> Task:
    task = store.new_task()
    store.raw(EFFECT, {"task": task.id, "name": "merge_pr", "state": "applied", "settled": "2026"})
    return store.move(task.id, Stage.DEPLOY)


@pytest.mark.parametrize("how", ["undone", "being undone"])
def test_a_freeze_is_not_lifted_over_another_task_that_is_broken_too(store: Store, how: str) -> None:
    """One that broke while the repository was frozen has no freeze of its own."""
    first, second = merged(store), merged(store)
    with store.database.write() as tx:
        serial_gate.freeze(tx, first, Actor.MONITOR, "it is ill")
        serial_gate.freeze(tx, second, Actor.MONITOR, "it is ill, too")
        slots.keep_for_freeze(tx, REPO)
        if how == "undone":
            tasks.hold(tx, second.id, Hold.ESCALATED, "production was rolled back")
    if how != "undone":
        store.raw(EFFECT, {"task": second.id, "name": "deploy_undo", "state": "intended", "settled": None})
    with store.database.write() as tx:
        assert serial_gate.lift_own(tx, first, Actor.MONITOR) == []
    with store.database.read() as tx:
        frozen, slot = slots.frozen(tx, REPO), slots.get(tx, merge_slot(REPO))
    assert frozen is not None
    assert frozen.work_item == second.work_item
    assert slot is not None
    assert slot.frozen
    store.move(first.id, Stage.DONE)
    store.raw("UPDATE effects SET state = 'applied', settled_at = '2026' WHERE name = 'deploy_undo'")
    with store.database.write() as tx:
        serial_gate.lift_own(tx, second, Actor.MONITOR)
        assert slots.frozen(tx, REPO) is None
