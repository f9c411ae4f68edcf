"""Which broken tasks are due to be looked at again: once for each fix that is done, and never before (N8)."""

from orchestrator.db import evidence, tasks
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.stage_engine.closing import LOOKED_AT, due_to_be_closed
from tests.fixtures_db import Store

MERGED = (
    "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, intent_at, settled_at) "
    "VALUES (:task, 'merge_pr', 'm', 1, 'applied', 1, :sequence, 't', 'monitor', utc_now(), utc_now())"
)


def merged(store: Store, sequence: int, stage: Stage = Stage.DEPLOY) -> Task:
    task = store.new_task()
    store.raw(MERGED, {"task": task.id, "sequence": sequence})
    store.move(task.id, Stage.DEPLOY)
    return store.task(task.id) if stage is Stage.DEPLOY else store.move(task.id, stage)


def broken(store: Store, sequence: int) -> Task:
    task = merged(store, sequence)
    with store.database.write() as tx:
        tasks.hold(tx, task.id, Hold.ESCALATED, "production is ill")
    return store.task(task.id)


def due(store: Store, task: Task) -> str | None:
    with store.database.read() as tx:
        return due_to_be_closed(tx, store.task(task.id))


def test_a_fix_closes_when_it_is_done_and_not_before(store: Store) -> None:
    merged(store, 1, Stage.DONE)
    one = broken(store, 2)
    assert due(store, one) is None  # what is done came before it
    fix = merged(store, 3)
    assert due(store, one) is None
    store.move(fix.id, Stage.DONE)
    assert due(store, one) == fix.work_item
    assert due(store, fix) is None


def test_each_fix_is_looked_at_once(store: Store) -> None:
    one, two = broken(store, 1), broken(store, 2)
    fix = merged(store, 3, Stage.DONE)
    assert [due(store, task) for task in (one, two)] == [fix.work_item] * 2
    with store.database.write() as tx:
        evidence.mark_step(tx, one, f"{LOOKED_AT}:{fix.work_item}")
    assert [due(store, task) for task in (one, two)] == [None, fix.work_item]
    later = merged(store, 4, Stage.DONE)
    assert due(store, one) == later.work_item


def test_only_what_is_broken_is_due(store: Store) -> None:
    on_trial = merged(store, 1)
    merged(store, 2, Stage.DONE)
    assert due(store, on_trial) is None
    elsewhere = store.new_task(stage=Stage.REVIEW)
    with store.database.write() as tx:
        tasks.hold(tx, elsewhere.id, Hold.ESCALATED, "it was rejected too often")
    assert due(store, elsewhere) is None
