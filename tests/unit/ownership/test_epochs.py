"""An epoch from the future: a warning that names the task, an alert, and no owner of before is believed again."""

import pytest

from orchestrator.daemons.epoch_audit import EpochAudit
from orchestrator.db import effects, leases, mail
from orchestrator.domain.effect import EffectName
from orchestrator.domain.errors import LostRace
from orchestrator.domain.lease import BELIEVABLE, Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from tests.fixtures_db import Store
from tests.fixtures_ownership import Logged, ownership


@pytest.fixture
def task(store: Store) -> Task:
    return store.new_task(stage=Stage.DEPLOY_STAGING)


def alerts(store: Store) -> list[str]:
    with store.database.read() as tx:
        return [str(message.payload["text"]) for message in mail.due(tx) if message.kind == "alert"]


def push_under(store: Store, lease: Lease) -> None:
    with store.database.write() as tx:
        effects.intend(tx, lease, EffectName.PUSH, "branch", 1, token="t", judged={})


def set_back(store: Store, task: Task, epoch: int) -> None:
    store.drop_guard("transition_epoch_never_falls", "transition_epoch")
    store.raw("UPDATE transition_epoch SET epoch = :epoch WHERE task_id = :t", {"epoch": epoch, "t": task.id})
    store.raw("DELETE FROM transition_lease")


def test_an_owner_of_before_is_not_believed_again(store: Store, task: Task, logged: Logged) -> None:
    """Its epoch would come by again: one acquisition later two would own the task."""
    other, stale, mine = store.new_task(), ownership(store), ownership(store)
    with stale.transition(task.id, Actor.MONITOR) as frozen:
        assert frozen is not None
        push_under(store, frozen)
        set_back(store, task, frozen.epoch - 1)
        assert EpochAudit(store.database).run_once() == 1
        with mine.transition(task.id, Actor.RECONCILER) as lease:
            assert lease is not None
            assert lease.epoch > frozen.epoch
            with store.database.write() as tx, pytest.raises(LostRace):
                leases.check(tx, frozen)
    assert [entry["task"] for entry in logged if entry["event"] == "an epoch from the future"] == [
        task.work_item
    ]
    [alert] = alerts(store)
    assert task.work_item in alert
    assert EpochAudit(store.database).run_once() == 0
    assert len(alerts(store)) == 1
    assert store.epoch(other.id) == other.epoch


def test_a_story_that_is_ahead_of_its_task_is_enough(store: Store, task: Task) -> None:
    insert = "INSERT INTO events (task_id, type, actor, epoch, at) VALUES (:t, 'note', 'somebody', 1000, '')"
    store.raw(insert, {"t": task.id})
    assert EpochAudit(store.database).run_once() == 1
    assert store.epoch(task.id) == 1001


def test_a_number_that_no_counting_leads_to_is_told_and_not_gone_on_from(store: Store, task: Task) -> None:
    insert = "INSERT INTO events (task_id, type, actor, epoch, at) VALUES (:t, 'note', 'somebody', :e, '')"
    store.raw(insert, {"t": task.id, "e": BELIEVABLE})
    assert EpochAudit(store.database).run_once() == 1
    assert EpochAudit(store.database).run_once() == 0
    assert store.epoch(task.id) == task.epoch
    assert len(alerts(store)) == 1


@pytest.mark.parametrize("epoch", [BELIEVABLE, 2**63 - 1])
def test_a_task_that_is_at_such_a_number_itself_is_told_once(
    store: Store, task: Task, epoch: int, logged: Logged
) -> None:
    beside = store.new_task()
    store.raw("UPDATE transition_epoch SET epoch = :e WHERE task_id = :t", {"e": epoch, "t": task.id})
    assert [EpochAudit(store.database).run_once() for _ in range(2)] == [1, 0]
    [alert] = alerts(store)
    assert task.work_item in alert
    assert str(epoch) in alert
    assert [entry["task"] for entry in logged] == [task.work_item]
    assert (store.epoch(task.id), store.epoch(beside.id)) == (epoch, beside.epoch)
    [(noted,)] = store.rows("SELECT epoch FROM events WHERE type = 'note'")
    assert noted < BELIEVABLE, "once it is set right, its story must not be ahead of it"


def test_what_was_done_at_the_last_number_that_is_believed_leads_to_none_that_is_not(
    store: Store, task: Task
) -> None:
    insert = "INSERT INTO events (task_id, type, actor, epoch, at) VALUES (:t, 'note', 'somebody', :e, '')"
    store.raw(insert, {"t": task.id, "e": BELIEVABLE - 1})
    assert EpochAudit(store.database).run_once() == 1
    assert store.epoch(task.id) == task.epoch


def test_what_is_in_order_is_left_alone(store: Store, task: Task) -> None:
    with ownership(store).transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        push_under(store, lease)
    assert EpochAudit(store.database).run_once() == 0
