"""What fails outside is shown to people with its reason, and goes on by itself once the authority is back (law 4)."""

from orchestrator.db import failures
from orchestrator.domain.effect import EffectState
from tests.fixtures_pipeline import Build, Pipeline
from tests.waiting import wait_until


def _failing(line: Pipeline, item: str) -> failures.OutsideFailure | None:
    with line.app.database.read() as tx:
        return failures.of_task(tx, line.task(item).id)


def test_an_effect_in_doubt_is_shown_with_its_reason_until_it_is_settled(pipeline: Build) -> None:
    line = pipeline().start()
    forge, away = line.forge.folder, line.root / "away"
    line.points.on("merge_pr.intended", lambda: forge.rename(away))
    item = line.add()
    wait_until(lambda: any(e.state is EffectState.IN_DOUBT for e in line.app.operations.effects()), 40)
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


def test_a_step_that_fails_outside_is_shown_until_it_is_behind_the_task(pipeline: Build) -> None:
    line = pipeline().start()
    forge, away = line.forge.folder, line.root / "away"
    line.points.on("check_review.judged", lambda: forge.rename(away))
    item = line.add()
    wait_until(lambda: (found := _failing(line, item)) and found.attempts > 1, 40)
    assert line.app.operations.effects() == []
    assert "failed outside" in line.why(item)
    away.rename(forge)
    line.done(item)
    assert _failing(line, item) is None
    assert "failed outside" not in line.why(item)
