"""What main shows of a merge is measured by what was judged: anything else is settled as it is, and stops there."""

from dataclasses import replace

import pytest

from orchestrator.db import effects, evidence, slots
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.ids import Sha, TaskId
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold, Task
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_db import REPO
from tests.fixtures_transition import BASE, HEAD, TREE, Bench, M

OLDER, OLDER_TREE = Sha("9" * 40), Sha("8" * 40)


def with_an_earlier_candidate(bench: Bench, percent: float | None = None) -> Task:
    """A task before the merge of its second candidate; the first one was checked, or was not."""
    task = bench.before_the_merge()
    bench.store.raw("UPDATE candidates SET round = 2")
    bench.store.raw("UPDATE checks SET round = 2")
    bench.store.raw("UPDATE steps SET round = 2 WHERE stage = 'deploy-staging'")
    bench.store.raw("UPDATE tasks SET round = 2")
    older = Candidate(task.id, 1, OLDER, OLDER_TREE, BASE, HEAD, "older", 800, "f0")
    with bench.database.write() as tx:
        evidence.add_candidate(tx, older)
        if percent is not None:
            found = evidence.CheckResult(JobKind.CANDIDATE_CI, OLDER, True, {"percent": percent})
            evidence.record_check(tx, replace(task, round=1), found)
    return bench.store.task(task.id)


def drive(bench: Bench, task: Task) -> tuple[Outcome, Task]:
    engine, _ = bench.process("one")
    return engine.advance_stage(task.id, Actor.MONITOR), bench.store.task(task.id)


def ratchets(bench: Bench) -> list[tuple[str, float]]:
    rows = bench.store.rows("SELECT merged_sha, percent FROM coverage_baseline")
    return [(row["merged_sha"], row["percent"]) for row in rows]


def nothing_started(bench: Bench, task: Task, outcome: Outcome) -> None:
    """Settled, frozen, a person called; the merge slot is the freeze's."""
    assert (task.stage, task.hold, outcome) == (Stage.DEPLOY, Hold.ESCALATED, Outcome.HELD)
    assert dict(bench.outside.calls) == {EffectName.MERGE_PR: 1}
    with bench.database.read() as tx:
        merge = effects.applied(tx, task.id, EffectName.MERGE_PR)
        slot = slots.get(tx, slots.merge_slot(REPO))
        assert slots.frozen(tx, REPO) is not None
    assert merge is not None
    assert merge.state is EffectState.APPLIED
    assert slot is not None
    assert slot.frozen
    assert bench.jobs() == []
    assert bench.store.rows("SELECT 1 FROM outbox WHERE kind = 'alert'")


@pytest.mark.parametrize("percent", [70.0, None])
def test_an_earlier_candidate_on_main_stops_the_task_and_lends_no_number_of_another(
    bench: Bench, percent: float | None
) -> None:
    task = with_an_earlier_candidate(bench, percent)
    bench.outside.shown = {"merged": OLDER, "tree": OLDER_TREE, "round": 1}
    outcome, task = drive(bench, task)
    nothing_started(bench, task, outcome)
    assert "an earlier candidate" in str(task.hold_reason)
    assert ratchets(bench) == ([(OLDER, percent)] if percent is not None else [])


def test_another_tree_than_the_tested_one_stops_the_task(bench: Bench) -> None:
    task = bench.before_the_merge()
    bench.outside.shown = {"tree": OLDER_TREE, "commit": OLDER}
    outcome, task = drive(bench, task)
    nothing_started(bench, task, outcome)
    assert "is not that of" in str(task.hold_reason)
    assert ratchets(bench) == []


def test_production_that_is_not_used_is_somebody_elses_at_once(bench: Bench) -> None:
    """Another repository waits for the same place: nobody else would tell it that it is free."""
    task = bench.before_the_merge()
    waiter = bench.waiter_elsewhere()
    bench.outside.shown = {"tree": OLDER_TREE, "commit": OLDER}
    outcome, task = drive(bench, task)
    nothing_started(bench, task, outcome)
    assert waiter.id in bench.woken


def test_a_merge_commit_of_the_forges_own_with_the_tested_tree_is_as_good_as_m(bench: Bench) -> None:
    task = bench.before_the_merge()
    bench.outside.shown = {"commit": OLDER, "tree": TREE}
    outcome, task = drive(bench, task)
    assert (task.stage, task.hold, outcome) == (Stage.DEPLOY, None, Outcome.WORKING)
    assert ratchets(bench) == [(M, 80.0)]


def test_the_tasks_m_is_the_merged_one_and_before_that_the_newest(bench: Bench) -> None:
    def known(task_id: TaskId) -> str:
        with bench.database.read() as tx:
            found = evidence.candidate_of(tx, task_id)
        return found.sha if found is not None else "none"

    assert known(bench.store.new_task().id) == "none"
    task = with_an_earlier_candidate(bench)
    assert known(task.id) == M
    bench.outside.shown = {"merged": OLDER, "tree": OLDER_TREE, "round": 1}
    drive(bench, task)
    assert known(task.id) == OLDER
