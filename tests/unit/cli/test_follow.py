"""What `orch watch` tells of a task, and when it stops to."""

import threading
from typing import cast

import pytest

from orchestrator.cli.desk import Desk
from orchestrator.cli.follow import FAILED, NEEDS_A_PERSON, follow
from orchestrator.runtime.clock import stamp
from tests.clock import START, FakeClock


class OneTask:
    """A desk that knows one task: filed when the clock began, escalated since."""

    def events(self, work_item: str, after: int) -> dict[str, object]:
        filed = {
            "id": 1,
            "type": "task.created",
            "actor": "operator",
            "stage": None,
            "to_stage": None,
            "round": None,
            "epoch": None,
            "data": {"title": "Add a line"},
            "at": stamp(START),
        }
        return {"events": [] if after else [filed], "next_after": 1}

    def story(self, work_item: str) -> dict[str, object]:
        return {"task": {"stage": "analysis", "hold": "escalated"}}


def told_after(seconds: float) -> list[str]:
    clock, told = FakeClock(), cast("list[str]", [])
    clock.advance(seconds)
    follow(cast(Desk, OneTask()), "SHOP-1", clock=clock, tell=told.append, stop=threading.Event())
    return told


def test_what_happened_long_before_is_told_with_its_age() -> None:
    [line] = told_after(180)
    assert line.startswith("[ 3 min ago] SHOP-1")


def test_what_was_filed_to_be_watched_is_told_as_the_beginning() -> None:
    [line] = told_after(0.5)
    assert line.startswith("[     0.0 s] SHOP-1")


@pytest.mark.parametrize(
    ("hold", "cause", "code"),
    [
        ("blocked", None, NEEDS_A_PERSON),
        ("blocked", "pull-request", NEEDS_A_PERSON),
        ("blocked", "reviews", NEEDS_A_PERSON),
        ("blocked", "checks", None),
        ("escalated", None, FAILED),
        ("slot", None, None),
        (None, None, None),
    ],
)
def test_where_a_task_rests_and_where_it_goes_on_by_itself(
    hold: str | None, cause: str | None, code: int | None
) -> None:
    class Held(OneTask):
        def story(self, work_item: str) -> dict[str, object]:
            return {"task": {"stage": "development", "hold": hold, "hold_cause": cause}}

    clock, stop = FakeClock(), threading.Event()
    if code is None:
        stop.set()  # or it would be watched for ever
    rest = follow(cast(Desk, Held()), "SHOP-1", clock=clock, tell=lambda line: None, stop=stop)
    assert rest.code == code
