"""Time as stored and as waited for."""

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from orchestrator.runtime.clock import SystemClock, parse_stamp, stamp, stamp_after


def test_stamps_have_one_width_and_sort_as_time() -> None:
    moments = [
        datetime(2026, 1, 5, 10, 0, 0, 0, UTC),
        datetime(2026, 1, 5, 10, 0, 0, 1, UTC),
        datetime(2026, 11, 5, 10, 0, 0, 999_999, UTC),
    ]
    stamps = [stamp(moment) for moment in moments]
    assert stamps == sorted(stamps)
    assert {len(text) for text in stamps} == {27}
    assert stamps[0] == "2026-01-05T10:00:00.000000Z"


def test_a_stamp_is_utc_whatever_zone_it_came_from() -> None:
    local = datetime(2026, 1, 5, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    assert stamp(local) == "2026-01-05T10:00:00.000000Z"
    assert parse_stamp(stamp(local)) == local


@pytest.mark.parametrize(
    "text", ["", "2026-01-05", "2026-01-05T10:00:00Z", "2026-01-05T10:00:00.000000+00:00"]
)
def test_what_is_no_stamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not match"):
        parse_stamp(text)


def test_now_is_aware_and_lies_ahead_by_what_is_asked() -> None:
    clock = SystemClock()
    before = clock.utc()
    later = parse_stamp(stamp_after(clock, 60))
    assert before.tzinfo is UTC
    assert timedelta(seconds=60) <= later - before < timedelta(seconds=70)


def test_boottime_does_not_go_back() -> None:
    clock = SystemClock()
    readings = [clock.boottime() for _ in range(100)]
    assert readings == sorted(readings)
    assert readings[0] > 0


def test_wait_says_whether_the_event_came() -> None:
    clock, event = SystemClock(), threading.Event()
    assert not clock.wait(event, 0.01)
    threading.Timer(0.01, event.set).start()
    assert clock.wait(event, 10)
