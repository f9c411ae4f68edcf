"""One limit for all that is done with a key: kept, shared, and told to whoever comes too early."""

from orchestrator.trackers.pace import FIRST_PAUSE_S, MAX_PAUSE_S, RESERVE, Pace
from tests.clock import FakeClock


def test_no_minute_sees_more_than_is_allowed() -> None:
    clock = FakeClock()
    pace = Pace(clock, 5)
    begun: list[float] = []
    for _ in range(400):
        if pace.wait_s() == 0:
            begun.append(clock.boottime())
        clock.advance(1.0)
    assert len(begun) > 20
    assert all(len([at for at in begun if start <= at < start + 60]) <= 5 for start in begun)


def test_who_comes_too_early_is_told_for_how_long() -> None:
    clock = FakeClock()
    pace = Pace(clock, 1)
    assert pace.wait_s() == 0
    clock.advance(20)
    assert pace.wait_s() == 40
    clock.advance(40)
    assert pace.wait_s() == 0


def test_looking_around_leaves_a_reserve_to_messages() -> None:
    pace = Pace(FakeClock(), 30)
    looked = sum(pace.wait_s(background=True) == 0 for _ in range(40))
    assert looked == 30 - RESERVE
    assert sum(pace.wait_s() == 0 for _ in range(40)) == RESERVE


def test_what_others_have_used_up_slows_looking_around() -> None:
    clock = FakeClock()
    pace = Pace(clock, 30)
    assert pace.wait_s() == 0
    pace.answered(RESERVE - 1)
    assert pace.wait_s(background=True) == 60
    assert pace.wait_s() == 0
    pace.answered(RESERVE)
    assert pace.wait_s(background=True) == 0


def test_later_is_kept_whoever_asks() -> None:
    clock = FakeClock()
    pace = Pace(clock, 30)
    assert pace.later(11.0) == 11
    assert pace.wait_s() == 11
    clock.advance(11)
    assert pace.wait_s() == 0
    assert pace.later(1e9) == MAX_PAUSE_S


def test_a_server_that_does_not_answer_is_left_alone_for_ever_longer() -> None:
    clock = FakeClock()
    pace = Pace(clock, 1000)
    pauses = [pace.failed() for _ in range(12)]
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == MAX_PAUSE_S
    pace.answered(None)
    assert pace.failed() == FIRST_PAUSE_S
