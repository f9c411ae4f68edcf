"""A task of which some work lies in another state folder: left alone, but for people's words, until that is lost."""

import pytest

from orchestrator.db import jobs, mail, tasks
from orchestrator.domain.effect import EffectName
from orchestrator.domain.ids import SHARED_HOME, Home, Sha
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Signal, Task
from orchestrator.rules.transitions import OPEN_PR, PUSH_BRANCH, STAGE_STEPS, Step
from orchestrator.stage_engine.situation import Outcome, Reach
from tests.fixtures_transition import HEAD, Bench, Points

WORKER, LOST = Home("worker"), Sha("9" * 40)
HARVEST, CHECK_CHANGE = STAGE_STEPS[Stage.DEVELOPMENT][1:3]


def away(bench: Bench, step: Step, stage: Stage = Stage.DEVELOPMENT) -> Task:
    """Before a step that rests on a head which the worker alone has; the forge has HEAD."""
    task = bench.before(stage, step)
    bench.outside.missing.add(LOST)
    with bench.database.write() as tx:
        tasks.set_head(tx, task.id, LOST)
        tasks.set_work_home(tx, task.id, WORKER)
    return bench.store.task(task.id)


def look(bench: Bench, task: Task, *, lost: bool = False, home: Home = SHARED_HOME) -> Outcome:
    engine, _ = bench.process("one", reach=Reach(home, lambda asked: lost))
    return engine.advance_stage(task.id, Actor.RECONCILER)


def test_nobody_else_touches_it_not_even_by_a_lease(bench: Bench) -> None:
    task = away(bench, CHECK_CHANGE)
    assert look(bench, task) is look(bench, task, home=Home("another")) is Outcome.ELSEWHERE
    assert bench.store.task(task.id) == task


def test_a_cancel_waits_for_no_worker(bench: Bench) -> None:
    task = away(bench, CHECK_CHANGE)
    word = Signal("cancel", task.stage, task.round, None, "Ann", "so")
    with bench.database.write() as tx:
        mail.receive(tx, task, word, source="operator", dedup_key="cancel")
    assert look(bench, task) is Outcome.ENDED
    found = bench.store.task(task.id)
    assert (found.stage, found.work_home) == (Stage.CANCELLED, None)


@pytest.mark.parametrize("step", [HARVEST, CHECK_CHANGE, PUSH_BRANCH], ids=lambda step: str(step.name))
def test_lost_it_is_done_anew_on_what_the_forge_has(bench: Bench, step: Step) -> None:
    task = away(bench, step)
    assert look(bench, task, lost=True) is Outcome.WORKING
    found = bench.store.task(task.id)
    assert (found.head_sha, found.work_home, found.round) == (HEAD, None, 1)
    assert bench.jobs() == [JobKind.DEVELOPER]
    passed = [row["step"] for row in bench.store.rows("SELECT step FROM steps")]
    assert passed == ["job:developer"]


def test_what_was_to_be_pushed_is_revoked_first(bench: Bench) -> None:
    task = away(bench, PUSH_BRANCH)
    points = Points()

    def dies() -> None:
        raise KeyboardInterrupt

    points.on("push.before_act", dies)
    engine, _ = bench.process("worker", points=points, reach=Reach(WORKER), start_ticks=1)
    with pytest.raises(KeyboardInterrupt):
        engine.advance_stage(task.id, Actor.MONITOR)
    bench.store.clock.advance(3600)
    assert look(bench, task) is Outcome.ELSEWHERE
    assert bench.outside.calls == {}
    assert look(bench, task, lost=True) is Outcome.WORKING
    assert bench.outside.calls[f"revoke {EffectName.PUSH}"] == 1
    assert bench.store.rows("SELECT state FROM effects")[0]["state"] == "revoked"
    assert (bench.jobs(), bench.store.task(task.id).head_sha) == ([JobKind.DEVELOPER], HEAD)


def test_a_job_that_waited_for_the_worker_alone_waits_for_anybody(bench: Bench) -> None:
    task = away(bench, STAGE_STEPS[Stage.DEVELOPMENT][0])
    with bench.database.write() as tx:
        jobs.enqueue(tx, task, jobs.NewJob(JobKind.DEVELOPER, brief="Name it."))
    assert look(bench, task) is Outcome.ELSEWHERE
    assert look(bench, task, lost=True) is Outcome.WORKING
    found = bench.store.task(task.id)
    assert (found.head_sha, found.work_home, bench.jobs()) == (HEAD, None, [JobKind.DEVELOPER])


def test_an_escalated_task_comes_back_and_still_waits_for_its_person(bench: Bench) -> None:
    task = away(bench, CHECK_CHANGE)
    with bench.database.write() as tx:
        tasks.hold(tx, task.id, Hold.ESCALATED, "because")
    assert look(bench, task, lost=True) is Outcome.HELD
    found = bench.store.task(task.id)
    assert (found.hold, found.work_home, bench.jobs()) == (Hold.ESCALATED, None, [])


def test_a_worker_pushes_and_hands_on_and_looks_at_nothing_else(bench: Bench) -> None:
    task = bench.before(Stage.DEVELOPMENT, PUSH_BRANCH)
    assert look(bench, task, home=WORKER) is Outcome.ELSEWHERE
    with bench.database.write() as tx:
        tasks.set_work_home(tx, task.id, WORKER)
    assert look(bench, task, home=WORKER) is Outcome.ELSEWHERE  # what comes next is everybody's
    assert bench.store.task(task.id).work_home is None
    assert bench.woken == [task.id]
    staged = bench.before_the_merge()
    engine, _ = bench.process("one", reach=Reach(WORKER))
    assert engine.advance_stage(staged.id, Actor.MONITOR) is Outcome.ELSEWHERE
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING  # of its own run it goes on
    assert OPEN_PR.name in [row["step"] for row in bench.store.rows("SELECT step FROM steps")]


@pytest.mark.parametrize("pushed", [True, False])
def test_where_no_agents_run_a_job_is_left_to_workers_once_the_forge_has_the_work(
    bench: Bench, pushed: bool
) -> None:
    task = bench.before(Stage.DEVELOPMENT, STAGE_STEPS[Stage.DEVELOPMENT][0])
    with bench.database.write() as tx:
        jobs.enqueue(tx, task, jobs.NewJob(JobKind.DEVELOPER))
        tasks.set_work_home(tx, task.id, SHARED_HOME)
        if not pushed:
            tasks.set_head(tx, task.id, LOST)
    for agents in (True, False):
        engine, _ = bench.process("one", reach=Reach(agents=agents))
        assert engine.advance_stage(task.id, Actor.RECOVERY) is Outcome.WORKING
        anybody = not agents and pushed
        assert bench.store.task(task.id).work_home == (None if anybody else SHARED_HOME)
