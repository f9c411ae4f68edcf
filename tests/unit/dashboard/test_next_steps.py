"""What a person is told to do for a task that waits."""

import pytest

from orchestrator.dashboard.next_steps import needs_guide, next_steps
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold


def steps(stage: Stage, hold: Hold | None, *, frozen: bool = False, subject: str | None = None) -> str:
    return "\n".join(next_steps("SHOP-1", stage, hold, "shop", frozen=frozen, subject=subject))


@pytest.mark.parametrize("hold", [Hold.ESCALATED, Hold.BLOCKED])
def test_before_the_merge_it_is_retried_or_cancelled(hold: Hold) -> None:
    assert steps(Stage.REVIEW, hold, frozen=True) == "orch task retry SHOP-1\norch task cancel SHOP-1"
    assert not needs_guide(Stage.REVIEW, hold, frozen=True)


@pytest.mark.parametrize("hold", [Hold.ESCALATED, Hold.BLOCKED])
@pytest.mark.parametrize("frozen", [True, False])
def test_after_the_merge_nobody_is_told_to_cancel(hold: Hold, frozen: bool) -> None:
    told = steps(Stage.DEPLOY, hold, frozen=frozen)
    assert "cancel" not in told and "orch task retry SHOP-1" in told
    assert ("orch unfreeze shop" in told) is frozen
    assert needs_guide(Stage.DEPLOY, hold, frozen=frozen) is frozen


def test_an_approval_names_the_commit_on_show() -> None:
    assert "approve SHOP-1 --sha " + "a" * 12 + "\n" in steps(Stage.ANALYSIS, Hold.PERSON, subject="a" * 40)
    assert "--sha" not in steps(Stage.ANALYSIS, Hold.PERSON)


def test_a_task_behind_a_freeze_names_it() -> None:
    assert steps(Stage.TESTING, Hold.FROZEN) == "orch unfreeze shop --for SHOP-1\norch unfreeze shop"
    assert needs_guide(Stage.TESTING, Hold.FROZEN, frozen=False)


@pytest.mark.parametrize("hold", [None, Hold.SLOT])
def test_nobody_is_called_where_nobody_is_waited_for(hold: Hold | None) -> None:
    assert steps(Stage.DEPLOY, hold, frozen=True) == ""
