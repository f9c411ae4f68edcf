"""Adding up what a run says, and deciding when it has to end. Pure: the supervisor brings the clock and the
lines.
"""

from dataclasses import dataclass, replace

from orchestrator.agents.agent import (
    Denied,
    Event,
    Final,
    Limits,
    Retry,
    Spent,
    Started,
    Stop,
    StopReason,
    Tally,
    Text,
    ToolEnd,
    ToolStart,
    Turn,
    Warned,
)
from orchestrator.domain.job import Usage

LINGER_SECONDS = 30.0  # how long a program may stay after its closing word
MAX_ANSWERS = 256  # answers whose usage may still be corrected; older ones are folded into the sum
MAX_OPEN_TOOLS = 256
MAX_NOTES = 20
MAX_TEXT = 2000


class Counter:
    """Folds events into a :class:`Tally`. Everything it keeps is bounded, whatever a program prints."""

    def __init__(self, warnings: tuple[str, ...] = ()) -> None:
        self._tally = Tally(warnings=warnings)
        self._settled = Usage()
        self._answers: dict[str, Usage] = {}
        self._tools: dict[str, str] = {}
        self._last_turn = ""

    def add(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case Started(session_id, model):
                self._tally = replace(
                    self._tally,
                    session_id=session_id or self._tally.session_id,
                    model=model or self._tally.model,
                )
            case Turn(turn):
                if turn != self._last_turn:
                    self._last_turn = turn
                    self._tally = replace(self._tally, turns=self._tally.turns + 1)
            case Text(text):
                self._tally = replace(self._tally, text=text[:MAX_TEXT])
            case Spent(answer, usage):
                self._spend(answer, usage)
            case ToolStart(tool, name):
                if len(self._tools) < MAX_OPEN_TOOLS:
                    self._tools[tool] = name
            case ToolEnd(tool):
                self._tools.pop(tool, None)
            case Retry():
                auth = self._tally.auth_failed or event.status in (401, 403)
                self._tally = replace(self._tally, retry=event, auth_failed=auth)
            case Denied(tool):
                self._tally = replace(self._tally, denied=_bounded(self._tally.denied, tool))
            case Warned(text):
                self.warn(text)
            case Final():
                self._tally = replace(self._tally, final=event)
            case _:
                pass

    def warn(self, text: str) -> None:
        """Note something to show to a person."""
        if text not in self._tally.warnings:
            self._tally = replace(self._tally, warnings=_bounded(self._tally.warnings, text))

    def tally(self) -> Tally:
        """The sum so far."""
        usage = self._settled
        for answer in self._answers.values():
            usage = plus(usage, answer)
        return replace(self._tally, usage=usage, tool=next(reversed(self._tools.values()), None))

    def _spend(self, answer: str, usage: Usage) -> None:
        self._answers[answer] = highest(self._answers.pop(answer, Usage()), usage)
        if len(self._answers) > MAX_ANSWERS:
            oldest = next(iter(self._answers))
            self._settled = plus(self._settled, self._answers.pop(oldest))


@dataclass(frozen=True, slots=True)
class Watched:
    """How long things have lasted, in seconds during which the supervisor itself ran."""

    running: float
    silent: float
    unadopted: float
    after_final: float


def judge(limits: Limits, tally: Tally, watched: Watched) -> Stop | None:
    """The reason to end the run now, if there is one; the first that applies."""
    if tally.auth_failed and tally.final is None:
        return Stop(
            StopReason.AUTH,
            "The model service refused the credentials. Check the agent's API key, then retry the task.",
        )
    if watched.running >= limits.timeout_s:
        return Stop(
            StopReason.TIMEOUT, f"The run reached its time limit of {limits.timeout_s:g} s (timeout_s)."
        )
    if watched.unadopted >= limits.orphan_ttl_s:
        return Stop(
            StopReason.ORPHANED,
            f"No orchestrator had looked after this run for {limits.orphan_ttl_s:g} s (run_orphan_ttl).",
        )
    if tally.final is not None:
        if watched.after_final < LINGER_SECONDS:
            return None
        return Stop(StopReason.LINGERING, "The program had said its closing word and did not go.")
    return _spent(limits, tally) or _silence(limits, tally, watched)


def _spent(limits: Limits, tally: Tally) -> Stop | None:
    if limits.max_turns is not None and tally.turns > limits.max_turns:
        return Stop(StopReason.TURNS, f"The run used all of its {limits.max_turns} turns (max_turns).")
    tokens, cost = tally.usage.total_tokens, tally.usage.cost_usd
    if limits.max_tokens is not None and tokens >= limits.max_tokens:
        return Stop(
            StopReason.BUDGET, f"The run used {tokens} tokens; its limit is {limits.max_tokens} (max_tokens)."
        )
    if limits.max_cost_usd is not None and cost is not None and cost >= limits.max_cost_usd:
        return Stop(
            StopReason.BUDGET,
            f"The run cost ${cost:.2f}; its limit is ${limits.max_cost_usd:.2f} (max_cost_usd).",
        )
    return None


def _silence(limits: Limits, tally: Tally, watched: Watched) -> Stop | None:
    allowed = limits.tool_stall_s if tally.tool else limits.stall_s
    if watched.silent < allowed:
        return None
    doing = f" while {tally.tool} was running" if tally.tool else ""
    return Stop(StopReason.STALLED, f"The agent said nothing for {allowed:g} s{doing} (stall_s).")


def plus(left: Usage, right: Usage) -> Usage:
    """Both together."""
    costs = [usage.cost_usd for usage in (left, right) if usage.cost_usd is not None]
    return Usage(
        left.input_tokens + right.input_tokens,
        left.output_tokens + right.output_tokens,
        left.cache_read_tokens + right.cache_read_tokens,
        left.cache_write_tokens + right.cache_write_tokens,
        sum(costs) if costs else None,
    )


def minus(total: Usage, before: Usage) -> Usage:
    """One run's own share of a conversation; never negative, should a program have counted anew."""
    if total.total_tokens < before.total_tokens:
        return total
    return Usage(
        max(0, total.input_tokens - before.input_tokens),
        max(0, total.output_tokens - before.output_tokens),
        max(0, total.cache_read_tokens - before.cache_read_tokens),
        max(0, total.cache_write_tokens - before.cache_write_tokens),
        total.cost_usd,
    )


def highest(left: Usage, right: Usage) -> Usage:
    """The later word on one answer: counts only grow."""
    return Usage(
        max(left.input_tokens, right.input_tokens),
        max(left.output_tokens, right.output_tokens),
        max(left.cache_read_tokens, right.cache_read_tokens),
        max(left.cache_write_tokens, right.cache_write_tokens),
        right.cost_usd if right.cost_usd is not None else left.cost_usd,
    )


def _bounded(notes: tuple[str, ...], note: str) -> tuple[str, ...]:
    return (*notes, note[:MAX_TEXT]) if len(notes) < MAX_NOTES else notes
