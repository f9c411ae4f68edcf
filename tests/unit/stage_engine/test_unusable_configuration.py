"""A configuration that was good when it was taken, and that another version of the orchestrator refuses."""

import pytest

from orchestrator.db import mail, slots
from orchestrator.domain.effect import EffectName
from orchestrator.domain.ids import Sha
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Signal, Task
from orchestrator.rules.transitions import OPEN_PR
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_transition import BASE, Bench, Points

OLD = Sha("7" * 40)


def begun_on_an_old_commit(bench: Bench) -> Task:
    task = bench.before(Stage.DEVELOPMENT, OPEN_PR)
    bench.store.raw("UPDATE tasks SET base_sha = :old, config_sha = :old", {"old": OLD})
    bench.outside.unusable.add(OLD)
    return bench.store.task(task.id)


def say(bench: Bench, task: Task, kind: str) -> None:
    word = Signal(kind, task.stage, task.round, None, "Ann", "so")
    with bench.database.write() as tx:
        mail.receive(tx, task, word, source="operator", dedup_key=kind)


def look(bench: Bench, task: Task) -> tuple[Outcome, Task]:
    outcome = bench.process("one")[0].advance_stage(task.id, Actor.MONITOR)
    return outcome, bench.store.task(task.id)


def unanswered(bench: Bench) -> int:
    return len(bench.store.rows("SELECT 1 FROM inbox WHERE handled_at IS NULL"))


def test_a_person_is_called_once_and_told_why(bench: Bench) -> None:
    task = begun_on_an_old_commit(bench)
    for _ in range(2):
        outcome, found = look(bench, task)
        assert (outcome, found.stage, found.hold) == (Outcome.HELD, Stage.DEVELOPMENT, Hold.ESCALATED)
        assert "commmand" in str(found.hold_reason)
        assert len(bench.store.rows("SELECT 1 FROM outbox WHERE kind = 'alert'")) == 1


@pytest.mark.parametrize("before", [False, True], ids=["afterwards", "at once"])
def test_a_cancel_is_heard(bench: Bench, before: bool) -> None:
    task = begun_on_an_old_commit(bench)
    if not before:
        look(bench, task)
    say(bench, task, "cancel")
    outcome, found = look(bench, task)
    assert (outcome, found.stage, unanswered(bench)) == (Outcome.ENDED, Stage.CANCELLED, 0)


def test_a_retry_takes_the_present_configuration(bench: Bench) -> None:
    task = begun_on_an_old_commit(bench)
    look(bench, task)
    say(bench, task, "retry")
    outcome, found = look(bench, task)
    assert (found.hold, found.config_sha, unanswered(bench)) == (None, BASE, 0)
    assert outcome is Outcome.WORKING


def test_nobody_waits_for_it_with_the_slots_in_hand(bench: Bench) -> None:
    task = bench.before_the_merge()
    bench.outside.unusable.add(BASE)
    outcome, found = look(bench, task)
    assert (outcome, found.stage, found.hold) == (Outcome.HELD, Stage.TESTING, Hold.ESCALATED)
    with bench.database.read() as tx:
        assert slots.all_slots(tx) == []


def stop() -> None:
    raise RuntimeError("the process ends here")


def test_what_was_merged_is_settled_and_waits_with_the_merge_slot_alone(bench: Bench) -> None:
    task = bench.before_the_merge()
    points = Points()
    points.on("merge_pr.after_act", stop)
    with pytest.raises(RuntimeError):
        bench.process("one", points=points)[0].advance_stage(task.id, Actor.MONITOR)
    bench.outside.unusable.add(BASE)
    outcome, found = look(bench, task)
    assert (outcome, found.stage, found.hold) == (Outcome.HELD, Stage.DEPLOY, Hold.ESCALATED)
    assert bench.outside.calls[EffectName.MERGE_PR] == 1
    assert bench.outside.calls[EffectName.DEPLOY_INIT] == 0
    with bench.database.read() as tx:
        assert slots.held_by(tx, task.id) == [slots.merge_slot(task.repo)]
    say(bench, found, "retry")
    outcome, found = look(bench, found)
    assert (outcome, found.hold, unanswered(bench)) == (Outcome.HELD, Hold.ESCALATED, 0)


def test_what_was_given_up_is_settled_though_nobody_knows_the_bounds(bench: Bench) -> None:
    task = bench.before_the_merge()
    points = Points()
    points.on("merge_pr.intended", stop)
    with pytest.raises(RuntimeError):
        bench.process("one", points=points)[0].advance_stage(task.id, Actor.MONITOR)
    bench.store.raw("UPDATE effects SET state = 'revoking', cause = 'facts' WHERE state = 'intended'")
    bench.outside.unusable.add(BASE)
    outcome, found = look(bench, task)
    assert (outcome, found.stage, found.hold) == (Outcome.HELD, Stage.TESTING, Hold.ESCALATED)
    assert bench.store.rows("SELECT 1 FROM effects WHERE state = 'revoked'")
