from orchestrator.agents.agent import (
    Final,
    Limits,
    Retry,
    Spent,
    Stop,
    StopReason,
    Text,
    ToolEnd,
    ToolStart,
    Turn,
)
from orchestrator.agents.watch import LINGER_SECONDS, MAX_ANSWERS, MAX_NOTES, Counter, Watched, judge, minus
from orchestrator.domain.job import Usage

LIMITS = Limits(timeout_s=100, stall_s=10, tool_stall_s=30, orphan_ttl_s=20)


def verdict(
    counter: Counter,
    limits: Limits = LIMITS,
    running: float = 0,
    silent: float = 0,
    unadopted: float = 0,
    after: float = 0,
) -> StopReason | None:
    stop = judge(limits, counter.tally(), Watched(running, silent, unadopted, after))
    assert stop is None or (isinstance(stop, Stop) and stop.message)
    return stop.reason if stop else None


def test_nothing_wrong() -> None:
    assert verdict(Counter(), running=99, silent=9, unadopted=19) is None


def test_time_silence_and_adoption() -> None:
    assert verdict(Counter(), running=100) is StopReason.TIMEOUT
    assert verdict(Counter(), silent=10) is StopReason.STALLED
    assert verdict(Counter(), unadopted=20) is StopReason.ORPHANED


def test_running_tool_may_be_silent_for_longer() -> None:
    counter = Counter()
    counter.add(ToolStart("1", "Bash"))
    assert verdict(counter, silent=29) is None
    assert verdict(counter, silent=30) is StopReason.STALLED
    counter.add(ToolEnd("1", True))
    assert verdict(counter, silent=10) is StopReason.STALLED


def test_turns_tokens_and_money() -> None:
    counter = Counter()
    for turn in ("a", "a", "b"):
        counter.add(Turn(turn))
    counter.add(Spent("a", Usage(90, 10, cost_usd=1.0)))
    assert verdict(counter, Limits(max_turns=2)) is None
    assert verdict(counter, Limits(max_turns=1)) is StopReason.TURNS
    assert verdict(counter, Limits(max_tokens=101)) is None
    assert verdict(counter, Limits(max_tokens=100)) is StopReason.BUDGET
    assert verdict(counter, Limits(max_cost_usd=1.0)) is StopReason.BUDGET


def test_refused_credentials_end_it_at_once() -> None:
    counter = Counter()
    counter.add(Retry(429, "rate_limit"))
    assert verdict(counter) is None
    counter.add(Retry(401, "authentication_failed"))
    assert verdict(counter) is StopReason.AUTH


def test_closing_word_gives_it_time_to_go() -> None:
    counter = Counter()
    counter.add(Turn("a"))
    counter.add(Final(False, "done"))
    assert verdict(counter, Limits(max_turns=0), silent=10_000) is None
    assert verdict(counter, after=LINGER_SECONDS) is StopReason.LINGERING


def test_later_report_of_an_answer_replaces_the_earlier() -> None:
    counter = Counter()
    counter.add(Spent("a", Usage(100, 1)))
    counter.add(Spent("a", Usage(100, 80)))
    counter.add(Spent("b", Usage(5, 5)))
    assert counter.tally().usage == Usage(105, 85)


def test_everything_kept_is_bounded() -> None:
    counter = Counter()
    for number in range(MAX_ANSWERS * 4):
        counter.add(Spent(str(number), Usage(1, 1)))
        counter.add(ToolStart(str(number), "x"))
        counter.add(Text("x" * 10_000))
        counter.warn(f"warning {number}")
    tally = counter.tally()
    assert tally.usage == Usage(MAX_ANSWERS * 4, MAX_ANSWERS * 4)
    assert len(counter._answers) <= MAX_ANSWERS
    assert len(counter._tools) <= MAX_ANSWERS
    assert len(tally.warnings) == MAX_NOTES
    assert len(tally.text) <= 2000


def test_own_share_is_never_negative() -> None:
    assert minus(Usage(10, 10), Usage(4, 4)) == Usage(6, 6)
    assert minus(Usage(3, 3), Usage(4, 4)) == Usage(3, 3)
