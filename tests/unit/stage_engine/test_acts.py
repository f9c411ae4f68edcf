"""Effect steps: what is intended when, and what is never intended again."""

import pytest

from orchestrator.db import effects, mail, slots
from orchestrator.domain.effect import Cause, EffectName, EffectState
from orchestrator.domain.errors import LostRace
from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Signal, Task
from orchestrator.rules.transitions import OPEN_PR
from orchestrator.stage_engine import serial_gate
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_db import REPO
from tests.fixtures_transition import Bench, M, Points


def stop_here() -> None:
    raise LostRace("the test ends here")


@pytest.mark.parametrize("cause", list(Cause))
def test_what_was_given_up_in_this_round_is_done_again_under_a_key_of_its_own(
    bench: Bench, cause: Cause
) -> None:
    """At the bound of rejections the round stays the same; a person's "go on" must not end in a fault of ours."""
    task = bench.before(Stage.DEVELOPMENT, OPEN_PR)
    bench.given_up(task, EffectName.OPEN_PR, "orch/smp-1", cause)
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    with bench.database.read() as tx:
        known = [(e.key, e.state) for e in effects.of_task(tx, task.id)]
    assert known == [("orch/smp-1", EffectState.REVOKED), ("orch/smp-1#2", EffectState.APPLIED)]


def test_a_revoked_m_never_comes_back(bench: Bench) -> None:
    task = bench.before_the_merge()
    bench.given_up(task, EffectName.MERGE_PR, M, Cause.GIVEN_UP, candidate={"base_sha": "b" * 40})
    points = Points()
    points.on("transition.after_commit", stop_here)
    engine, _ = bench.process("one", points=points)
    engine.advance_stage(task.id, Actor.MONITOR)
    found = bench.store.task(task.id)
    assert (found.stage, found.round) == (Stage.DEPLOY_STAGING, task.round + 1)
    assert bench.outside.calls[EffectName.MERGE_PR] == 0


def started_elsewhere(bench: Bench) -> TaskId:
    """Another task's start in production that is not settled; it came there under an earlier version."""
    bench.store.drop_guard("start_has_its_place", "effects")
    other = bench.store.new_task(stage=Stage.DEPLOY_STAGING)
    _, ownership = bench.process("builder")
    carried = {"environment": "production", "sha": "f" * 40, "generation": 1}
    with ownership.transition(other.id, Actor.MONITOR) as lease:
        assert lease is not None
        with bench.database.write() as tx:
            effects.intend(tx, lease, EffectName.DEPLOY_INIT, "other", 1, token="t", judged=carried)
    return other.id


def frozen(bench: Bench) -> bool:
    with bench.database.read() as tx:
        return slots.frozen(tx, REPO) is not None


def alerts(bench: Bench) -> list[str]:
    return [row["payload"] for row in bench.store.rows("SELECT payload FROM outbox WHERE kind = 'alert'")]


def effects_of(bench: Bench, task_id: TaskId, name: EffectName) -> list[tuple[str, EffectState]]:
    with bench.database.read() as tx:
        return [(e.key.rsplit(":", 1)[1], e.state) for e in effects.of_task(tx, task_id) if e.name is name]


def ill_in_production(bench: Bench) -> tuple[StageEngine, Task]:
    """A task whose production was looked at and is ill; nobody has acted on that yet."""
    task = bench.before_the_merge()
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    bench.unhealthy(engine, "one")
    return engine, bench.store.task(task.id)


def from_an_earlier_version(bench: Bench) -> Task:
    """A task that was given its places before production was one of them."""
    task = bench.before_the_merge()
    bench.store.raw("DELETE FROM slots WHERE name = 'environment:production'")
    return task


def places_of(bench: Bench, task: Task) -> list[str]:
    with bench.database.read() as tx:
        return slots.held_by(tx, task.id)


def test_a_task_of_an_earlier_version_takes_production_before_it_starts_there(bench: Bench) -> None:
    task = from_an_earlier_version(bench)
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    assert bench.outside.calls[EffectName.DEPLOY_INIT] == 1
    assert places_of(bench, task) == ["environment:production", slots.merge_slot(REPO)]


def test_it_waits_while_another_repository_has_production(bench: Bench) -> None:
    task, other = from_an_earlier_version(bench), bench.waiter_elsewhere()
    with bench.database.write() as tx:
        assert slots.take_all(tx, other.repo, other.id, [slots.environment_slot("production")]) is None
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.RETRY
    assert bench.outside.calls[EffectName.DEPLOY_INIT] == 0
    assert places_of(bench, task) == [slots.merge_slot(REPO)]
    with bench.database.write() as tx:
        slots.free_all(tx, other.repo, other.id)
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    assert bench.outside.calls[EffectName.DEPLOY_INIT] == 1


def test_a_task_at_an_epoch_that_is_not_believed_is_not_tried_again_and_again(bench: Bench) -> None:
    task = bench.before_the_merge()
    bench.store.raw(f"UPDATE transition_epoch SET epoch = {2**63 - 1} WHERE task_id = {task.id}")
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    assert bench.outside.calls == {}
    assert bench.store.task(task.id).stage is task.stage


def test_whoever_frees_production_wakes_a_task_that_waits_at_its_start(bench: Bench) -> None:
    """In that commit, as it is with the merge slot: it used to be tried again up to a minute later."""
    task, other = from_an_earlier_version(bench), bench.waiter_elsewhere()
    cancel = Signal("cancel", other.stage, other.round, None, "Ann", "not wanted")
    with bench.database.write() as tx:
        assert slots.take_all(tx, other.repo, other.id, [slots.environment_slot("production")]) is None
        mail.receive(tx, other, cancel, source="operator", dedup_key="cancel")
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.RETRY
    assert task.id not in bench.woken
    assert engine.advance_stage(other.id, Actor.OPERATOR) is Outcome.ENDED
    assert task.id in bench.woken


def test_what_is_broken_is_frozen_at_once_though_its_undo_has_to_wait(bench: Bench) -> None:
    engine, task = ill_in_production(bench)
    other = started_elsewhere(bench)
    for _ in range(2):
        assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.RETRY
        assert frozen(bench)
        assert len(alerts(bench)) == 1
    assert "not settled" in alerts(bench)[0]
    assert len(bench.store.rows("SELECT 1 FROM events WHERE type = 'gate.judged'")) == 1
    assert bench.outside.calls[EffectName.DEPLOY_UNDO] == 0
    bench.store.raw("UPDATE effects SET state = 'revoking' WHERE task_id = :id", {"id": other})
    bench.store.raw(
        "UPDATE effects SET state = 'revoked', settled_at = utc_now() WHERE task_id = :id", {"id": other}
    )
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    assert effects_of(bench, task.id, EffectName.DEPLOY_UNDO) == [("2", EffectState.APPLIED)]
    assert bench.store.task(task.id).hold is Hold.ESCALATED


def test_an_undo_to_be_done_again_waits_for_another_start_and_is_not_forgotten(bench: Bench) -> None:
    engine, task = ill_in_production(bench)
    bench.outside.readable = False
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.RETRY
    bench.store.raw("UPDATE effects SET state = 'revoking', cause = 'again' WHERE name = 'deploy_undo'")
    other = started_elsewhere(bench)
    bench.outside.readable = True
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.RETRY
    assert effects_of(bench, task.id, EffectName.DEPLOY_UNDO) == [("2", EffectState.REVOKED)]
    bench.store.raw("UPDATE effects SET state = 'revoking' WHERE task_id = :id", {"id": other})
    bench.store.raw(
        "UPDATE effects SET state = 'revoked', settled_at = utc_now() WHERE task_id = :id", {"id": other}
    )
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    assert effects_of(bench, task.id, EffectName.DEPLOY_UNDO) == [
        ("2", EffectState.REVOKED),
        ("3", EffectState.APPLIED),
    ]


def retried(bench: Bench, task: Task) -> None:
    retry = Signal("retry", task.stage, task.round, None, "Ann", "again")
    with bench.database.write() as tx:
        mail.receive(tx, task, retry, source="operator", dedup_key="retry")


@pytest.mark.parametrize("status", ["failed", "queued"])
def test_what_was_undone_is_started_again_though_its_look_had_not_ended(bench: Bench, status: str) -> None:
    """The runner of a deploy of ourselves undid it while nobody could ask production."""
    engine, task = ill_in_production(bench)
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    bench.store.raw("DELETE FROM steps WHERE step = 'job:production-health'")
    bench.store.raw("UPDATE jobs SET status = :status", {"status": status})
    retried(bench, bench.store.task(task.id))
    engine.advance_stage(task.id, Actor.MONITOR)
    assert bench.store.task(task.id).round == task.round + 1


def test_what_was_started_since_its_undo_is_looked_at(bench: Bench) -> None:
    """As after a restore, which counts what it finds to one round."""
    engine, task = ill_in_production(bench)
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    bench.store.raw("DELETE FROM steps WHERE step = 'job:production-health'")
    bench.store.raw(
        "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, evidence, intent_at, "
        "settled_at) VALUES (:id, 'deploy_init', 'k', 1, 'applied', 1, 2000, 't', 'restored', "
        """'{"environment": "production"}', utc_now(), utc_now())""",
        {"id": task.id},
    )
    retried(bench, bench.store.task(task.id))
    engine.advance_stage(task.id, Actor.MONITOR)
    assert bench.store.task(task.id).round == task.round


def test_what_cannot_be_started_again_leaves_the_slot_to_the_freeze_for_the_fix(bench: Bench) -> None:
    """H16: production was undone, a person had it started again, and its build fails for good."""
    engine, task = ill_in_production(bench)
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    retried(bench, bench.store.task(task.id))
    points = Points()
    points.on("image.intended", stop_here)
    bench.process("two", points=points)[0].advance_stage(task.id, Actor.MONITOR)
    bench.outside.calls[EffectName.IMAGE] = 0
    bench.store.raw("UPDATE effects SET state = 'revoking', cause = 'facts' WHERE state = 'intended'")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    assert (bench.store.task(task.id).round, bench.store.task(task.id).hold) == (2, Hold.ESCALATED)
    fix = bench.store.new_task(stage=Stage.TESTING)
    with bench.database.write() as tx:
        assert slots.held_by(tx, task.id) == []
        assert serial_gate.lend(tx, REPO, fix, person="Ann", reason="the fix")
    assert bench.outside.calls[EffectName.DEPLOY_UNDO] == 1
