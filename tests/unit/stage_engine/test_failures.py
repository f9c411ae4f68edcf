"""What keeps failing outside is kept for people: counted, bounded, redacted, and gone once the task has gone on."""

from orchestrator.db import effects, failures
from orchestrator.db.failures import OutsideFailure
from orchestrator.domain.effect import EffectName
from orchestrator.domain.ids import BootId, EffectId, TaskId
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.stage_engine.failures import REASON_LIMIT, Failures
from tests.fixtures_db import Store

SECRET = "a-secret-of-the-forge"


def kept(store: Store, task_id: TaskId) -> OutsideFailure | None:
    with store.database.read() as tx:
        return failures.of_task(tx, task_id)


def intended(store: Store, task: Task, key: str) -> EffectId:
    lease = Lease(task.id, Actor.MONITOR, BootId("me"), task.epoch, task.stage)
    with store.database.write() as tx:
        return effects.intend(tx, lease, EffectName.PUSH, key, 1, token="t", judged={}).effect_id


def settled(store: Store, effect_id: EffectId) -> None:
    store.raw(
        "UPDATE effects SET state = 'applied', settled_at = utc_now() WHERE id = :effect",
        {"effect": effect_id},
    )


def test_attempts_are_counted_for_one_effect_and_begin_anew_for_another(store: Store) -> None:
    """Whatever fails while an effect is not settled is that effect's, also where the look got nowhere near it."""
    task, noted = store.new_task(stage=Stage.DEVELOPMENT), Failures(store.database, ())

    def fails(effect_id: EffectId | None, attempts: int) -> None:
        store.clock.advance(10)
        noted.note(task.id, f"try {attempts}")
        found = kept(store, task.id)
        assert found is not None
        assert (found.effect_id, found.attempts, found.reason) == (effect_id, attempts, f"try {attempts}")
        assert (found.since == found.last_at) is (attempts == 1)

    fails(None, 1)
    fails(None, 2)
    one = intended(store, task, "one")
    fails(one, 1)
    fails(one, 2)
    two = intended(store, task, "two")
    fails(one, 3)
    settled(store, one)
    fails(two, 1)
    settled(store, two)
    fails(None, 1)
    noted.forget(task.id)
    assert kept(store, task.id) is None


def test_the_reason_is_one_bounded_line_without_a_secret(store: Store) -> None:
    task = store.new_task()
    Failures(store.database, (SECRET,)).note(
        task.id, "x" * (REASON_LIMIT - 12) + f"\nat {SECRET}\n" + "y" * 9000
    )
    found = kept(store, task.id)
    assert found is not None
    assert len(found.reason) == REASON_LIMIT
    assert "\n" not in found.reason
    assert SECRET[:6] not in found.reason


def test_a_failure_that_cannot_be_kept_fails_nothing(store: Store) -> None:
    noted = Failures(store.database, ())
    noted.note(TaskId(404), "of a task that is not there")
    noted.forget(TaskId(404))
    assert store.rows("SELECT * FROM outside_failures") == []
