"""For how long GitHub has asked us to be silent: its limits are per user, so that one pause holds for every repository.

Whoever goes on asking is shut out for longer, so that nothing is sent before the pause is over: questions are unknown
until then, and acts are tried again later.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.rules.trailers import whole_number
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.http import HttpAnswer, clock_ahead_s

LEAST_S, MOST_S = 60.0, 3600.0  # where it asks for silence and does not say for how long: doubled each time
_WORDS = (b"rate limit", b"abuse detection")


class Silenced(AuthorityUnreachable):
    """GitHub limits us: nothing is sent for so many seconds."""

    def __init__(self, after_s: float) -> None:
        super().__init__(
            f"GitHub limits our requests; it is asked again in {after_s:.0f} s.",
            hint="Nothing has to be done. Does something else use the token, too?",
        )
        self.after_s = after_s


class Limits:
    """One user's at one server. Safe for many threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until = 0.0  # by the time since boot
        self._unsaid = 0  # refusals in a row that did not say how long

    def ask(self, send: Callable[[], HttpAnswer]) -> HttpAnswer:
        """Send a request, unless there is to be silence.

        :raises Silenced: there is, or the answer asks for it.
        """
        with self._lock:
            left = self._until - self._clock.boottime()
        if left > 0:
            raise Silenced(left)
        told = send()
        wait = self._heard(told)
        if _refused(told):
            raise Silenced(wait)
        return told

    def ahead_s(self, told: HttpAnswer) -> float | None:
        """How far the server's clock is ahead of ours, in seconds; None where it does not say."""
        return clock_ahead_s(told, self._clock.utc())

    def _heard(self, told: HttpAnswer) -> float:
        """Note what the server asks for; seconds, 0 for none."""
        said = _said(told.headers, self._clock)
        with self._lock:
            if not _refused(told):
                self._unsaid = 0
                wait = said if told.headers.get("x-ratelimit-remaining") == "0" else 0.0
            else:
                self._unsaid = 0 if said else self._unsaid + 1
                wait = said or min(LEAST_S * 2 ** (self._unsaid - 1), MOST_S)
            self._until = max(self._until, self._clock.boottime() + min(wait, MOST_S))
        return wait


def _refused(told: HttpAnswer) -> bool:
    if told.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    if told.status != HTTPStatus.FORBIDDEN:
        return False  # 403 is a lack of rights as well
    spent = told.headers.get("x-ratelimit-remaining") == "0"
    return spent or "retry-after" in told.headers or any(word in told.body.lower() for word in _WORDS)


def _said(headers: Mapping[str, str], clock: Clock) -> float:
    """For how long, in seconds, by the server's own clock where it tells the time; 0 where nothing is said."""
    after = whole_number(headers.get("retry-after", ""))
    if after is not None:
        return float(min(after, MOST_S))
    reset = whole_number(headers.get("x-ratelimit-reset", ""))
    if reset is None or headers.get("x-ratelimit-remaining") != "0":
        return 0.0
    return min(max(1.0, reset - _time(headers, clock)), MOST_S)


def _time(headers: Mapping[str, str], clock: Clock) -> float:
    try:
        told = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return clock.utc().timestamp()
    return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
