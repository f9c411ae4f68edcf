"""Which broken tasks are due to be looked at again: once for each fix that is done, and never before (N8)."""

import json

from orchestrator.db import effects, evidence, jobs, tasks
from orchestrator.domain.ids import BootId
from orchestrator.domain.job import JobStatus
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.stage_engine.closing import LOOKED_AT, due_to_be_closed
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_db import Store
from tests.fixtures_transition import Bench

MERGED = (
    "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, evidence, "
    "intent_at, settled_at) "
    "VALUES (:task, 'merge_pr', 'm', 1, 'applied', 1, :sequence, 't', 'monitor', :evidence, utc_now(), utc_now())"
)


def merged(store: Store, candidate: int, stage: Stage = Stage.DEPLOY, *, known: int | None = None) -> Task:
    """A task that was merged with a candidate of that number; ``known``: the ledger's number of the merge itself."""
    task = store.new_task()
    evidence = json.dumps({"repo": task.repo, "candidate": {"sequence": candidate}})
    store.raw(MERGED, {"task": task.id, "sequence": known or 100 + candidate, "evidence": evidence})
    store.move(task.id, Stage.DEPLOY)
    return store.task(task.id) if stage is Stage.DEPLOY else store.move(task.id, stage)


def broken(store: Store, candidate: int) -> Task:
    task = merged(store, candidate)
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


def test_merges_follow_one_another_as_their_candidates_do(store: Store) -> None:
    """A restore finds them on main one task after the other, in any order."""
    later = merged(store, 2, known=101)
    first = merged(store, 1, known=102)
    with store.database.read() as tx:
        assert effects.merged_since(tx, first.id) == later.work_item
        assert effects.merged_since(tx, later.id) is None
        assert effects.done_since(tx, first.id) is None
    store.move(later.id, Stage.DONE)
    store.move(first.id, Stage.DONE)
    with store.database.read() as tx:
        assert effects.done_since(tx, first.id) == later.work_item
        assert effects.done_since(tx, later.id) is None


def test_a_look_that_fails_closes_nothing_by_an_older_one(bench: Bench) -> None:
    """Production was healthy before the runner of a deploy of ourselves undid it; the look for the fix cannot ask."""
    task = bench.before_the_merge()
    engine, _ = bench.process("one")
    engine.advance_stage(task.id, Actor.MONITOR)
    bench.unhealthy(engine, "one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    bench.store.raw("UPDATE checks SET verdict = 'pass' WHERE kind = 'production-health'")
    merged(bench.store, 901, Stage.DONE)
    assert engine.advance_stage(task.id, Actor.RECONCILER) is Outcome.WORKING
    with bench.database.write() as tx:
        job = jobs.claim_next_job(tx, BootId("one"), agents=False, checks=True)
    assert job is not None
    assert engine.finish_job(job, JobStatus.FAILED, error="the forge is away")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.HELD
    found = bench.store.task(task.id)
    assert (found.stage, found.hold) == (Stage.DEPLOY, Hold.ESCALATED)
    assert "the forge is away" in str(found.hold_reason)
