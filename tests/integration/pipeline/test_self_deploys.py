"""A deploy of ourselves in the pipeline: its undo is drawn with it, and called off before the task is done (S-15).

Here nothing is restarted: the environment is a file, and the service in this process stands for the new version.
"""

from contextlib import suppress
from dataclasses import replace

import pytest

from orchestrator.db import effects, slots, tasks
from orchestrator.deploy.records import Claimant, DeployStart, reported, start_folder
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import ConstraintRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.effects.deploy import start_of
from orchestrator.runtime.process import Liveness
from tests.fixtures_pipeline import Build, Pipeline
from tests.waiting import wait_until

OURS = {"ORCH_SELF_REPO": "sample", "ORCH_SELF_DEPLOY_TIMEOUT_S": "60"}


@pytest.fixture
def ours(pipeline: Build) -> Pipeline:
    return pipeline(production=True, settings=dict(OURS))


def of(line: Pipeline, item: str, name: EffectName) -> list[Intent]:
    return [effect for effect in line.story(item).effects if effect.name is name]


def started(line: Pipeline, item: str) -> tuple[DeployStart, DeployStart]:
    """The newest start and its prepared undo."""
    start = start_of(of(line, item, EffectName.DEPLOY_INIT)[-1])
    assert start.undo is not None
    return start, start.undo.start


def guard_has_ended(line: Pipeline, start: DeployStart) -> None:
    claim = line.app.deployer.started(start)
    assert claim is not None
    assert claim.runner is not None
    runner = claim.runner
    wait_until(lambda: line.app.processes.liveness(runner) is Liveness.DEAD)


def test_the_undo_is_drawn_with_the_start_and_called_off_before_done(ours: Pipeline) -> None:
    line = ours.start()
    item = line.add()
    line.done(item)
    start, undo = started(line, item)
    assert undo.generation == start.generation + 1
    assert int(undo.token) > int(start.token)
    assert undo.sequence > start.sequence
    [row] = of(line, item, EffectName.DEPLOY_UNDO)
    assert (row.state, row.sequence, row.token) == (EffectState.REVOKED, undo.sequence, undo.token)
    claim = line.app.deployer.started(undo)
    assert claim is not None
    assert claim.by is Claimant.REVOKER
    guard_has_ended(line, start)
    assert [deploy["undo"] for deploy in line.deployed("production")] == [False]


def test_another_repository_is_deployed_without_a_guard(pipeline: Build) -> None:
    line = pipeline(production=True, settings={**OURS, "ORCH_SELF_REPO": "another"}).start()
    item = line.add()
    line.done(item)
    assert of(line, item, EffectName.DEPLOY_UNDO) == []
    assert start_of(of(line, item, EffectName.DEPLOY_INIT)[-1]).undo is None


@pytest.mark.long
def test_why_shows_the_name_that_people_know(ours: Pipeline) -> None:
    said = []
    ours.points.on("deploy_init.before_act", lambda: said.append(ours.why(item)))
    item = ours.start().add()
    ours.done(item)
    assert "drives deploy_init (INITIATED, intended)" in said[0]


@pytest.mark.long
def test_an_undo_that_came_first_is_not_done_but_broken(ours: Pipeline) -> None:
    """Healthy was judged, then the runner was faster than the calling-off: never done and undone."""
    line = ours
    line.points.on("deploy_undo.called_off", lambda: line.app.deployer.start(started(line, item)[1]))
    item = line.start().add()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEPLOY
    assert "rolled back" in str(task.hold_reason)
    assert line.frozen()
    assert line.slots() == ["merge:sample"]
    [row] = of(line, item, EffectName.DEPLOY_UNDO)
    assert row.state is EffectState.APPLIED
    wait_until(lambda: len(line.deployed("production")) == 2)
    assert [deploy["undo"] for deploy in line.deployed("production")] == [False, True]
    assert any(item in alert for alert in line.alerts())

    line.retry(item)  # a new start, with generations above all that were ever drawn
    line.done(item)
    first, second = of(line, item, EffectName.DEPLOY_INIT)
    assert start_of(second).generation == start_of(first).generation + 2
    assert [deploy["undo"] for deploy in line.deployed("production")] == [False, True, False]


def test_an_undo_that_came_second_is_not_performed(ours: Pipeline) -> None:
    line = ours
    line.points.on("deploy_undo.after_revoke", lambda: line.app.deployer.start(started(line, item)[1]))
    item = line.start().add()
    line.done(item)
    assert [deploy["undo"] for deploy in line.deployed("production")] == [False]


@pytest.mark.long
def test_broken_production_is_undone_with_what_was_prepared(pipeline: Build) -> None:
    line = pipeline(production=True, settings=dict(OURS), patience="4s").start()
    line.done(line.add("Good"))
    good = line.main
    line.deploys(production={"runs": "2" * 40})
    item = line.add("Bad")
    line.held(item, Hold.ESCALATED)
    start, undo = started(line, item)
    [row] = of(line, item, EffectName.DEPLOY_UNDO)
    assert (row.state, row.sequence, row.token) == (EffectState.APPLIED, undo.sequence, undo.token)
    wait_until(lambda: line.running("production") == good)
    guard_has_ended(line, start)
    assert [(d["sha"], d["undo"]) for d in line.deployed("production")[1:]] == [
        (start.sha, False),
        (good, True),
    ]
    assert line.frozen()

    line.deploys()
    assert line.app.operations.unfreeze("sample", person="Ann")
    line.done(line.add("Better"))
    # Production runs a descendant: closed by it, and its undo is nothing to call off any more.
    line.stage(item, Stage.DONE)
    assert sum(deploy["undo"] for deploy in line.deployed("production")) == 1


def test_a_command_that_fails_is_undone_once_whoever_is_first(ours: Pipeline) -> None:
    line = ours.start()
    line.deploys(production={"exit": 3})
    item = line.add()
    line.held(item, Hold.ESCALATED)
    guard_has_ended(line, started(line, item)[0])
    assert wait_until(lambda: len(line.deployed("production")) == 2)
    assert [deploy["undo"] for deploy in line.deployed("production")] == [False, True]
    [row] = of(line, item, EffectName.DEPLOY_UNDO)
    assert row.state is EffectState.APPLIED


@pytest.mark.long
@pytest.mark.parametrize(
    "point", ["deploy_undo.called_off", "deploy_undo.before_revoke", "deploy_undo.after_revoke"]
)
def test_killed_while_calling_off_it_is_called_off_all_the_same(ours: Pipeline, point: str) -> None:
    """No crash leaves an undo that somebody would drive forward."""
    line = ours
    line.register()
    item = line.add()
    line.stop()
    assert line.child(point).wait(60) == -9
    line.start()
    line.done(item)
    [row] = of(line, item, EffectName.DEPLOY_UNDO)
    assert row.state is EffectState.REVOKED
    assert [deploy["undo"] for deploy in line.deployed("production")] == [False]


def test_the_database_refuses_done_while_the_undo_may_still_come(ours: Pipeline) -> None:
    line, refused = ours, list[str]()

    def write_done() -> None:
        with suppress(ConstraintRefused), line.app.database.write() as tx:  # nothing of it is stored
            task = tasks.by_work_item(tx, item)
            slots.free_all(tx, task.repo, task.id)  # which another guard asks for
            try:
                tx.execute(
                    "tasks.update_stage_cas",
                    task_id=task.id,
                    expected_stage=task.stage,
                    new_stage=Stage.DONE,
                    epoch=task.epoch,
                )
            except ConstraintRefused as refusal:
                refused.append(str(refusal))
                raise

    line.points.on("check_production.judged", write_done)
    item = line.start().add()
    line.done(item)
    assert "may still be undone" in refused[0]


def test_nothing_is_started_where_a_runner_may_still_undo(ours: Pipeline) -> None:
    line, drawn = ours, []

    def draw() -> None:
        with line.app.database.write() as tx:
            drawn.append(effects.draw_generation(tx, "production", "e" * 40))

    line.points.on("check_production.judged", draw)
    line.points.on("transition.after_commit", draw, target=Stage.DONE)
    item = line.start().add()
    line.done(item)
    wait_until(lambda: len(drawn) == 2)
    assert drawn[0] is None
    assert drawn[1] is not None


def test_the_finalizer_starts_nothing_new(ours: Pipeline) -> None:
    line, outcomes = ours, []
    line.points.on(
        "transition.after_commit",
        lambda: outcomes.append(line.app.engine.run_deploy_finalizer(line.task(item).id)),
        target=Stage.DEPLOY,
    )
    item = line.start().add()
    line.done(item)
    assert outcomes
    begun = [e for e in line.events(item) if e.type is EventType.EFFECT_INTENDED and e.stage is Stage.DEPLOY]
    assert "finalizer" not in {e.actor for e in begun if e.data["effect"] == EffectName.DEPLOY_INIT}
    assert [deploy["undo"] for deploy in line.deployed("production")] == [False]


def test_switched_off_meanwhile_what_was_prepared_is_called_off(ours: Pipeline) -> None:
    """The ledger decides whether there is something to call off, not what is configured now."""
    line = ours
    line.register()
    item = line.add()
    line.stop()
    assert line.child("check_production.judged").wait(60) == -9
    line.settings["ORCH_SELF_REPO"] = ""
    line.start()
    line.done(item)
    [row] = of(line, item, EffectName.DEPLOY_UNDO)
    assert row.state is EffectState.REVOKED


def test_recovery_leaves_the_runner_alone(ours: Pipeline) -> None:
    """NFR-5: it ends what checks and builds have left behind, never the detached deploy."""
    line, lives = ours, []

    def look() -> None:
        claim = line.app.deployer.started(started(line, item)[0])
        assert claim is not None
        assert claim.runner is not None
        lives.append(line.app.processes.liveness(claim.runner))

    line.register()
    item = line.add()
    line.stop()
    assert line.child("check_production.judged").wait(60) == -9
    line.points.on("deploy_undo.called_off", look)
    line.start()
    line.done(item)
    assert lives == [Liveness.ALIVE]
    guard_has_ended(line, started(line, item)[0])


@pytest.mark.long
@pytest.mark.parametrize("build", ["own", "another", "unknown"])
def test_only_the_version_that_was_brought_reports(ours: Pipeline, build: str) -> None:
    line = ours
    line.register()
    item = line.add()
    line.stop()
    assert line.child("check_production.judged").wait(60) == -9
    line.open()
    start, undo = started(line, item)
    line.stop()
    line.settings["ORCH_BUILD_SHA"] = {"own": line.main, "another": "d" * 40, "unknown": ""}[build]
    place = start_folder(line.home / "deploys", start.environment, start.sha, start.generation)
    app = line.open()
    app.self_deploys.begin()
    wait_until(lambda: app.self_deploys.run_once()["to_report"] == 0)
    said = reported(place)
    assert (said is not None and said.answers(start)) is (build == "own")
    assert app.deployer.started(undo) is None
    line.start()
    line.done(item)


@pytest.mark.long
def test_undone_while_a_person_was_called_is_settled_at_the_next_start(ours: Pipeline) -> None:
    """A version that crashes again and again costs its health job all attempts; then the runner undoes it."""
    line = ours
    line.register()
    item = line.add()
    line.stop()
    assert line.child("check_production.judged").wait(60) == -9
    app = line.open()
    with app.database.write() as tx:
        assert tasks.hold(tx, line.task(item).id, Hold.ESCALATED, "production-health failed 3 times")
    app.deployer.start(started(line, item)[1])
    line.start()
    line.wait_for(item, lambda task: "rolled back" in str(task.hold_reason))
    assert line.frozen()
    [row] = of(line, item, EffectName.DEPLOY_UNDO)
    assert row.state is EffectState.APPLIED
    wait_until(lambda: [deploy["undo"] for deploy in line.deployed("production")] == [False, True])


def test_an_identity_is_three_things() -> None:
    start = DeployStart("p", "a" * 40, 1, None, None, "t", ("a",), 1.0, "W", 1, "i")  # type: ignore[arg-type]
    assert start.identity == replace(start, generation=5).identity == ("i", 1, "t")
