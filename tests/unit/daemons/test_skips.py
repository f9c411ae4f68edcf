"""F-1: each reason for which the reconciler leaves a task alone, and what comes before what."""

from dataclasses import replace

import pytest

from orchestrator.daemons.skips import Around, Skip, why_skipped
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, HoldCause, Task
from orchestrator.runtime.process import Liveness
from tests.fixtures_db import Store

FREE = Around({})


@pytest.fixture
def task(store: Store) -> Task:
    return store.new_task(stage=Stage.ANALYSIS)


def test_a_task_that_nothing_holds_is_looked_at(task: Task) -> None:
    assert why_skipped(task, FREE) is None


@pytest.mark.parametrize(
    ("hold", "around", "why"),
    [
        (Hold.ESCALATED, FREE, Skip.ESCALATED),
        (Hold.BLOCKED, replace(FREE, mended=False), Skip.BLOCKED),
        (Hold.BLOCKED, replace(FREE, depends=True), Skip.DEPENDENCIES),
        (Hold.PERSON, FREE, Skip.PERSON),
        (None, replace(FREE, has_job=True), Skip.JOB),
        (None, Around(None), Skip.LEASE_UNKNOWN),
    ],
    ids=lambda given: str(given),
)
def test_each_guard(task: Task, hold: Hold | None, around: Around, why: Skip) -> None:
    assert why_skipped(replace(task, hold=hold), around) is why


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (Liveness.ALIVE, Skip.LEASED),
        (Liveness.UNKNOWN, Skip.LEASE_UNKNOWN),
        (Liveness.DEAD, None),
    ],
)
@pytest.mark.parametrize("urgent", [False, True])
def test_a_live_or_unknown_owner_comes_before_everything(
    task: Task, owner: Liveness, why: Skip | None, urgent: bool
) -> None:
    assert why_skipped(task, Around({task.id: owner}, urgent=urgent)) is why


@pytest.mark.parametrize("owners", [None, {}], ids=["leases not read", "free"])
def test_what_is_out_of_scope_is_left_alone_whatever_waits(
    task: Task, owners: dict[int, Liveness] | None
) -> None:
    assert why_skipped(task, Around(owners, covered=False, urgent=True)) is Skip.OUT_OF_SCOPE


@pytest.mark.parametrize("hold", list(Hold))
def test_a_persons_word_or_an_unsettled_effect_is_looked_at_whatever_holds(task: Task, hold: Hold) -> None:
    around = Around({}, has_job=True, depends=True, mended=False, urgent=True)
    assert why_skipped(replace(task, hold=hold), around) is None


@pytest.mark.parametrize("hold", [Hold.SLOT, Hold.FROZEN, Hold.BLOCKED])
def test_what_may_have_changed_is_looked_at(task: Task, hold: Hold) -> None:
    assert why_skipped(replace(task, hold=hold), FREE) is None


def test_what_the_forge_holds_is_looked_at_though_a_job_waits(task: Task) -> None:
    """The job does not begin before somebody has seen that the pull request is open again."""
    held = replace(task, hold=Hold.BLOCKED, hold_cause=HoldCause.PULL_REQUEST)
    assert why_skipped(held, replace(FREE, has_job=True)) is None


def test_what_is_broken_after_its_merge_may_be_closed_by_what_was_done_since(task: Task) -> None:
    assert why_skipped(replace(task, hold=Hold.ESCALATED, stage=Stage.DEPLOY), FREE) is None


def test_a_confirmation_that_is_waited_for_has_a_term(task: Task) -> None:
    assert why_skipped(replace(task, hold=Hold.PERSON, stage=Stage.DEPLOY_STAGING), FREE) is None
