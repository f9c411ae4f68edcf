"""What all adapters share when they judge an end: the outcome of a stop, of a refused call, of a mere exit code."""

import math
import re
import signal
from collections.abc import Mapping

from orchestrator.agents.agent import Retry, RunEnd, StopReason
from orchestrator.domain.job import RunOutcome

STOPPED: Mapping[StopReason, RunOutcome] = {
    StopReason.TIMEOUT: RunOutcome.LIMIT_TIME,
    StopReason.STALLED: RunOutcome.STALLED,
    StopReason.TURNS: RunOutcome.LIMIT_TURNS,
    StopReason.BUDGET: RunOutcome.LIMIT_BUDGET,
    StopReason.AUTH: RunOutcome.AUTH,
    StopReason.KILLED: RunOutcome.KILLED,
    StopReason.ORPHANED: RunOutcome.KILLED,
}
REFUSED: Mapping[int, RunOutcome] = {
    401: RunOutcome.AUTH,
    403: RunOutcome.AUTH,
    429: RunOutcome.RATE_LIMITED,
    503: RunOutcome.OVERLOADED,
    529: RunOutcome.OVERLOADED,
}
USAGE_LIMIT = re.compile(
    r"(usage|session|weekly|rate|\d+-hour) limit|hit your limit|too many requests", re.IGNORECASE
)
EPOCH_STATED = re.compile(r"\|\s*(\d{10})\b")  # "… limit reached|1767225600"
DELAY_STATED = re.compile(
    r"try again in (?:(\d+) days?,?\s*)?(?:(\d+) hours?,?\s*)?(?:(\d+) min\w*,?\s*)?(?:([\d.]+) ?s\w*)?", re.I
)
MAX_RETRY_AFTER = 8 * 24 * 3600.0


def refused(status: int | None) -> RunOutcome | None:
    """The outcome when a model service answered with this HTTP status at last."""
    if status is None:
        return None
    return REFUSED.get(status, RunOutcome.API_ERROR)


def retry_after(text: str, retry: Retry | None, now: float) -> float | None:
    """Seconds until a stated reset, rounded up; None where none was stated."""
    epoch = EPOCH_STATED.search(text)
    if epoch:
        return _bounded(int(epoch.group(1)) - now)
    if retry is not None and retry.resets_at is not None:
        return _bounded(retry.resets_at - now)
    delay = DELAY_STATED.search(text)
    if delay and any(delay.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in delay.groups())
        return _bounded(days * 86400 + hours * 3600 + minutes * 60 + seconds)
    if retry is not None and retry.delay_s is not None:
        return _bounded(retry.delay_s)
    return None


def exit_words(end: RunEnd) -> str:
    """How a program ended, for people: its exit code or signal, and its last words."""
    if end.exit_code is not None and end.exit_code < 0:
        how = f"{end.program} was ended by {_signal_name(-end.exit_code)}."
    else:
        how = f"{end.program} ended with exit code {end.exit_code}."
    last = end.stderr.strip() or end.tally.text.strip()
    return f"{how} It said: {last[-1000:]}" if last else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _bounded(seconds: float) -> float:
    return float(min(max(math.ceil(seconds), 1), MAX_RETRY_AFTER))
