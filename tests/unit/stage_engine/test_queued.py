"""A job is offered as soon as its commit is durable, not when its task has come to rest."""

from orchestrator.db import evidence
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.rules.transitions import STAGE_STEPS
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_transition import Bench


def test_an_edge_offers_the_first_job_of_its_stage_at_once(bench: Bench) -> None:
    task = bench.before(Stage.DEVELOPMENT, last := STAGE_STEPS[Stage.DEVELOPMENT][-1])
    with bench.database.write() as tx:
        evidence.mark_step(tx, task, last.name)
    engine, _ = bench.process("one")
    assert engine.look(task.id, Actor.MONITOR) is Outcome.MOVED
    assert bench.store.task(task.id).stage is Stage.REVIEW
    assert bench.queued == [["reviewer"]]


def test_a_step_offers_its_job_at_once(bench: Bench) -> None:
    first, *_ = STAGE_STEPS[Stage.TESTING]
    task = bench.before(Stage.TESTING, first)
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    assert bench.queued == [bench.jobs()] != [[]]
