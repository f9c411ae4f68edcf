"""Rows that contradict the tasks: told once, set right where that is safe, and nothing stops for them (law 9)."""

import json

import pytest

from orchestrator.daemons.slot_audit import SlotAudit
from orchestrator.db import slots, tasks
from orchestrator.db.slots import environment_slot, merge_slot
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from tests.fixtures_db import REPO, Store

SLOT = "INSERT INTO slots VALUES (:name, 'sample', :holder, :task, utc_now())"
FREEZE = "INSERT INTO repo_freeze VALUES ('sample', 'production is ill', :task, :lent, utc_now())"


@pytest.fixture
def audit(store: Store) -> SlotAudit:
    return SlotAudit(store.database)


def alerts(store: Store) -> list[str]:
    rows = store.rows("SELECT payload FROM outbox WHERE kind = 'alert' ORDER BY id")
    return [json.loads(row["payload"])["text"] for row in rows]


def held(store: Store) -> dict[str, int | str]:
    with store.database.read() as tx:
        return {slot.name: slot.task_id or "freeze" for slot in slots.all_slots(tx)}


def taken(store: Store, task: Task, name: str = merge_slot(REPO)) -> None:
    store.raw(SLOT, {"name": name, "holder": "task", "task": task.id})


def cancelled(store: Store) -> Task:
    return store.move(store.new_task().id, Stage.CANCELLED)


def test_what_is_in_order_is_left_alone(store: Store, audit: SlotAudit) -> None:
    broken, fix = store.new_task(stage=Stage.DEPLOY_STAGING), store.new_task()
    taken(store, broken)
    taken(store, broken, environment_slot("staging"))
    store.raw(FREEZE, {"task": broken.id, "lent": fix.id})
    assert audit.run_once() == (0, [])
    assert alerts(store) == []


def test_the_slot_of_a_task_that_has_ended_is_freed_and_its_turn_given_on(
    store: Store, audit: SlotAudit
) -> None:
    ended, waiter = cancelled(store), store.new_task(stage=Stage.TESTING)
    taken(store, ended)
    with store.database.write() as tx:
        tasks.hold(tx, waiter.id, Hold.SLOT, "waits")
    assert audit.run_once() == (1, [waiter.id])
    assert held(store) == {}
    assert ended.work_item in alerts(store)[0]
    assert audit.run_once() == (0, [])
    assert len(store.rows("SELECT 1 FROM lessons")) == 1
    assert [row["type"] for row in store.rows("SELECT type FROM events")] == ["slot.freed"]


def test_under_a_freeze_it_goes_to_the_freeze(store: Store, audit: SlotAudit) -> None:
    ended, broken = cancelled(store), store.new_task()
    taken(store, ended)
    store.raw(FREEZE, {"task": broken.id, "lent": None})
    assert audit.run_once() == (1, [])
    assert held(store) == {merge_slot(REPO): "freeze"}


def test_a_slot_with_an_unsettled_effect_behind_it_is_told_and_kept(store: Store, audit: SlotAudit) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    taken(store, task)
    store.raw(
        "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, intent_at) "
        "VALUES (:task, 'push', 'k', 1, 'intended', 1, 1, 't', 'monitor', utc_now())",
        {"task": task.id},
    )
    assert audit.run_once()[0] == 1
    assert held(store) == {merge_slot(REPO): task.id}


@pytest.mark.parametrize("cause", ["none", "ended"])
def test_a_freeze_that_nothing_will_lift_stays_and_is_told_once(
    store: Store, audit: SlotAudit, cause: str
) -> None:
    task = cancelled(store) if cause == "ended" else None
    store.raw(FREEZE, {"task": task.id if task else None, "lent": None})
    store.raw(SLOT, {"name": merge_slot(REPO), "holder": "freeze", "task": None})
    assert audit.run_once() == (1, [])
    assert audit.run_once() == (0, [])
    (said,) = alerts(store)
    assert f"orch unfreeze {REPO}" in said
    assert (task is None) or (task.work_item in said)
    with store.database.read() as tx:
        assert slots.frozen(tx, REPO) is not None


def test_a_freeze_without_the_slot_takes_it_and_one_that_is_gone_gives_it_back(
    store: Store, audit: SlotAudit
) -> None:
    store.raw(FREEZE, {"task": store.new_task().id, "lent": None})
    assert audit.run_once() == (1, [])
    assert held(store) == {merge_slot(REPO): "freeze"}
    store.raw("DELETE FROM repo_freeze")
    waiter = store.new_task(stage=Stage.TESTING)
    with store.database.write() as tx:
        tasks.hold(tx, waiter.id, Hold.SLOT, "waits")
    assert audit.run_once() == (1, [waiter.id])
    assert held(store) == {}
    assert len(alerts(store)) == 2


def test_a_loan_to_a_task_that_has_ended_is_over(store: Store, audit: SlotAudit) -> None:
    store.raw(FREEZE, {"task": store.new_task().id, "lent": cancelled(store).id})
    store.raw(SLOT, {"name": merge_slot(REPO), "holder": "freeze", "task": None})
    assert audit.run_once() == (1, [])
    with store.database.read() as tx:
        frozen = slots.frozen(tx, REPO)
    assert frozen is not None
    assert frozen.lent_to is None
