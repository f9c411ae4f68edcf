"""Nobody's word is dropped in silence: who still waits when a task ends is answered (law 7)."""

import json

from orchestrator.db import mail
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_transition import Bench


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
