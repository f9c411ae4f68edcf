"""What fails outside is shown to people with its reason, and goes on by itself once the authority is back (law 4)."""

from datetime import timedelta

import pytest

from orchestrator.db import failures
from orchestrator.domain.effect import EffectState
from orchestrator.domain.task import Hold
from orchestrator.operations.reading import BLOCKS
from tests.fixtures_pipeline import Build, Pipeline, block
from tests.waiting import PATIENCE_S, wait_until


def _failing(line: Pipeline, item: str) -> failures.OutsideFailure | None:
    with line.app.database.read() as tx:
        return failures.of_task(tx, line.task(item).id)


@pytest.mark.long
def test_an_effect_in_doubt_is_shown_with_its_reason_until_it_is_settled(pipeline: Build) -> None:
    line = pipeline().start()
    forge, away = line.forge.folder, line.root / "away"
    line.points.on("merge_pr.intended", lambda: forge.rename(away))
    item = line.add()
    wait_until(lambda: any(e.state is EffectState.IN_DOUBT for e in line.app.operations.effects()))
    shown = wait_until(
        lambda: next((e for e in line.app.operations.effects() if (e.attempts or 0) > 1), None)
    )
    assert (shown.task, shown.name) == (item, "merge_pr")
    assert "sample" in shown.reason
    assert shown.age_s >= 0
    assert f"failed outside {shown.attempts} times since {shown.failing_since}" in line.why(item)
    assert shown.reason in line.why(item)
    away.rename(forge)
    line.done(item)
    assert line.app.operations.effects() == []
    assert {e.state for e in line.app.operations.effects(everything=True)} == {EffectState.APPLIED}
    assert len(line.app.operations.effects(work_item=item, everything=True, limit=2)) == 2
    assert _failing(line, item) is None


@pytest.mark.long
def test_a_step_that_fails_outside_is_shown_until_it_is_behind_the_task(pipeline: Build) -> None:
    line = pipeline().start()
    forge, away = line.forge.folder, line.root / "away"
    line.points.on("check_review.judged", lambda: forge.rename(away))
    item = line.add()
    wait_until(lambda: (found := _failing(line, item)) and found.attempts > 1)
    assert line.app.operations.effects() == []
    assert "failed outside" in line.why(item)
    away.rename(forge)
    line.done(item)
    assert _failing(line, item) is None
    assert "failed outside" not in line.why(item)


def test_h20_an_outage_calls_once_and_ends_by_itself(pipeline: Build) -> None:
    """Two tasks in doubt at one forge: one call, one word that it is over, and both are delivered."""
    line = pipeline(settings={"ORCH_IN_DOUBT_ALERT_S": "5m", "ORCH_MAX_AGENTS": "2"}).start()
    forge, away = line.forge.folder, line.root / "away"
    line.agent({"role": "developer", "until": str(line.root / "go")})
    items = [line.add("One"), line.add("Two")]
    for item in items:
        line.started(item, "developer")
    there, leave, hook = block()
    line.points.on("open_pr.intended", lambda: (hook(), forge.rename(away)))
    (line.root / "go").touch()
    assert there.wait(PATIENCE_S)
    # The other one is past its push: git makes folders anew where a forge goes away under its hands.
    wait_until(lambda: line.pulls() or [e.name for e in line.app.operations.effects()] == ["open_pr"] * 2)
    leave.set()
    wait_until(lambda: any(e.state is EffectState.IN_DOUBT for e in line.app.operations.effects()))
    wait_until(lambda: all(_failing(line, item) for item in items))
    line.clock.ahead = timedelta(minutes=6)
    assert line.app.reconciler.run_once()["alerts"] == 1
    assert line.app.reconciler.run_once()["alerts"] == 0
    [alert] = line.alerts()
    assert "the forge of sample" in alert
    away.rename(forge)
    for item in items:
        line.done(item)
    assert line.app.reconciler.run_once()["alerts"] == 1
    assert "Nothing is in doubt any more at the forge of sample" in line.alerts()[-1]
    assert len(line.merges()) == 2


def test_the_queue_says_why_tasks_are_left_alone(pipeline: Build) -> None:
    line = pipeline("[approvals]\nanalysis = true\n").start()
    item = line.add()
    line.held(item, Hold.PERSON)
    line.app.reaper.run_once()

    def passed_over() -> int:
        line.app.reconciler.run_once()  # the first may still find the lease of whoever wrote the hold
        counted = dict(line.app.operations.queue()["reconciler"])  # type: ignore[call-overload]
        return int(counted["skipped"]["waits_for_person"])

    assert wait_until(passed_over)
    queue = line.app.operations.queue()
    assert set(queue) == set(BLOCKS)
    assert set(queue["reaper"]) == {"enabled", "scope", "ended", "skipped"}  # type: ignore[call-overload]
