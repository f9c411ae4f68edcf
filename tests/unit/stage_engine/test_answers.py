"""Nobody's word is dropped in silence: who still waits when a task ends is answered (law 7)."""

import json

from orchestrator.db import effects, mail
from orchestrator.domain.effect import EffectName
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal, Task
from orchestrator.rules.transitions import IMAGE, OPEN_PR
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_transition import Bench, M


def test_who_still_waits_when_the_task_ends_is_answered(bench: Bench) -> None:
    task = bench.store.new_task(stage=Stage.DEVELOPMENT)
    with bench.database.write() as tx:
        first, second, third = (
            mail.receive(
                tx, task, Signal(kind, task.stage, 1, None, person, "r"), source="operator", dedup_key=kind
            )
            for kind, person in (("cancel", "Ann"), ("retry", "Bob"), ("reject", "Eve"))
        )
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.ENDED
    assert bench.store.task(task.id).stage is Stage.CANCELLED
    why = "the task went to cancelled: cancelled by Ann: r"
    with bench.database.read() as tx:
        outcomes = [mail.outcome_of(tx, one or 0) for one in (first, second, third)]
    assert outcomes == ["applied", f"refused: {why}", f"refused: {why}"]
    told = [json.loads(row["data"]) for row in bench.store.rows(REFUSED)]
    assert [(one["signal"], one["person"]) for one in told] == [("retry", "Bob"), ("reject", "Eve")]
    said = {row["stable_id"]: json.loads(row["payload"])["text"] for row in bench.store.rows(ANSWERS)}
    assert said == {
        f"answer:{second}": f"retry by Bob was not applied: {why}.",
        f"answer:{third}": f"reject by Eve was not applied: {why}.",
    }


REFUSED = "SELECT data FROM events WHERE type = 'signal.refused' ORDER BY id"
ANSWERS = "SELECT stable_id, payload FROM outbox WHERE kind = 'tracker.comment' ORDER BY id"


def cancelled_during(bench: Bench, task: Task, name: EffectName, key: str, **judged: object) -> str | None:
    """A person cancels while an effect of the task is on its way; what came of the word once the task rests."""
    _, ownership = bench.process("builder")
    with ownership.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        with bench.database.write() as tx:
            effects.intend(tx, lease, name, key, task.round, token="t", judged=judged)
            word = Signal("cancel", task.stage, task.round, None, "Ann", "not wanted")
            received = mail.receive(tx, task, word, source="operator", dedup_key="cancel")
    engine, _ = bench.process("one")
    engine.advance_stage(task.id, Actor.MONITOR)
    with bench.database.read() as tx:
        return mail.outcome_of(tx, received or 0)


def test_a_cancel_that_turns_an_effect_is_not_answered_as_refused(bench: Bench) -> None:
    task = bench.before(Stage.DEVELOPMENT, OPEN_PR)
    assert cancelled_during(bench, task, EffectName.OPEN_PR, "orch/smp-1") == "applied"
    assert bench.store.task(task.id).stage is Stage.CANCELLED
    assert bench.outside.calls[f"revoke {EffectName.OPEN_PR}"] == 1
    assert bench.store.rows(REFUSED) == []
    assert bench.store.rows(ANSWERS) == []


def test_a_cancel_that_turns_an_effect_is_refused_where_main_has_the_change(bench: Bench) -> None:
    """An earlier candidate may have been merged by hand: that is asked whatever was on its way (law 4)."""
    task = bench.before_the_merge()
    bench.outside.main = M
    outcome = cancelled_during(bench, task, EffectName.IMAGE, "another", sha=M, step=IMAGE.name)
    assert "on main already" in str(outcome)
    assert bench.store.task(task.id).stage is not Stage.CANCELLED
