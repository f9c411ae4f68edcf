"""Events as lines."""

import pytest

from orchestrator.demo.progress import TEXT_MAX, line_of
from orchestrator.domain.event import Event, EventType
from orchestrator.domain.ids import EventId, TaskId
from orchestrator.domain.stage import Stage


def event(type: EventType, to: Stage | None = None, **data: object) -> Event:
    return Event(EventId(1), TaskId(1), type, "monitor", Stage.REVIEW, to, 1, 1, data, "2026-01-01")


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (event(EventType.TASK_CREATED, title="Greet\x1b[31m by\nname"), "filed: Greet[31m by name"),
        (
            event(EventType.STAGE_CHANGED, Stage.TESTING, kind="advance", reason="review passed", round=1),
            "==> testing: review passed",
        ),
        (
            event(EventType.STAGE_CHANGED, Stage.DEVELOPMENT, kind="reject", reason="no test", round=2),
            "<== development (round 2): no test",
        ),
        (
            event(EventType.STAGE_CHANGED, Stage.DONE, kind="advance", reason="deploy passed", round=1),
            "==> done",
        ),
        (event(EventType.JOB_REQUEUED, error="restarted"), "  review: not done: restarted"),
        (
            event(EventType.GATE_JUDGED, step="gate:check_ci", reason="green"),
            "  check_ci passed: green",
        ),
        (
            event(EventType.GATE_JUDGED, gate="check_review", verdict="fail", reason="rejected"),
            "  check_review failed: rejected",
        ),
        (
            event(EventType.EFFECT_SETTLED, effect="merge_pr", state="applied", key="abc"),
            "  merge_pr: applied (abc)",
        ),
        (
            event(EventType.EFFECT_SETTLED, effect="push", state="applied", key=f"b:{'a' * 40}..{'b' * 40}"),
            "  push: applied (b:aaaaaaaaaaaa..bbbbbbbbbbbb)",
        ),
        (
            event(EventType.EFFECT_SETTLED, effect="image", state="applied", key=f"sha256:{'c' * 64}"),
            "  image: applied (sha256:cccccccccccc)",
        ),
        (event(EventType.HELD, hold="escalated", reason="three times"), "  waits (escalated): three times"),
        (event(EventType.JOB_FINISHED, job="ci", status="failed", error="boom"), "  ci: not done: boom"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.type.value,
)
def test_what_a_person_sees(happened: Event, expected: str) -> None:
    assert line_of("GREET-1", happened) == f"GREET-1   {expected}"


def test_what_says_nothing_new_is_silent() -> None:
    assert line_of("GREET-1", event(EventType.SLOT_TAKEN, slot="merge:greeter")) is None


def test_a_long_text_is_cut() -> None:
    line = line_of("GREET-1", event(EventType.HELD, hold="blocked", reason="x" * 5000))
    assert line is not None
    assert len(line) < TEXT_MAX + 50
