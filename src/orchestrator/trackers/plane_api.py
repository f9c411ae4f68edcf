"""The REST API of one Plane, as far as we use it.

Must hold: every request ends within its time and every answer within its size; the key goes to the configured server
alone, for redirects are not followed, and is in no error; what is answered is hostile data until it has been read field
by field. All calls with a key share one :class:`~orchestrator.trackers.pace.Pace`.

On failure: ``TrackerAway`` where the server as a whole takes nothing now; a refusal is an :class:`Answer`.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

import structlog

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import OutsideError
from orchestrator.rules.trailers import one_line, whole_number
from orchestrator.runtime import clock
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.http import AnswerTooLarge, Http, HttpAnswer, HttpFailed, clock_ahead_s
from orchestrator.trackers.pace import Pace
from orchestrator.trackers.tracker import TrackerAway

log = structlog.get_logger(__name__)

TIMEOUT_S = 10.0
ANSWER_LIMIT = 16 * 1024 * 1024  # bytes; a page of work items with long descriptions
PAGE = 100
PAGES = 50
MESSAGE_LIMIT = 300  # characters of a server's words that are repeated
REVOKED_S = 300.0  # how long a refused key is not tried again
_NO_ANSWER_OF_ITS_OWN = frozenset({502, 503, 504})  # of a proxy before it
_REFUSED = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said; ``body`` is None where it was no JSON."""

    status: int
    body: object
    message: str

    @property
    def ok(self) -> bool:
        """True for 2xx with a body that can be read, or without any."""
        return 200 <= self.status < 300


class PlaneServer:
    """One server and one key. Safe for many threads."""

    def __init__(self, http: Http, url: str, key: Secret, pace: Pace, clock: Clock) -> None:
        self.url = url
        self.ahead_s = 0.0  # how far the server's clock is ahead of ours, as its last answer says
        self._http = http
        self._key = key
        self._pace = pace
        self._clock = clock
        self._lock = threading.Lock()
        self._me = ""
        self._items = ""

    def me(self) -> str:
        """The id of our own user there; asked once.

        :raises TrackerAway: it cannot be asked, or does not know the key.
        """
        with self._lock:
            if not self._me:
                self._me = text(mapping(self._call("GET", "/users/me/").body), "id")
            return self._me

    def items(self, project: str) -> str:
        """What work items are called in paths: versions before 1.1 know the old name alone. Asked once.

        :raises TrackerAway: it cannot be asked.
        """
        with self._lock:
            if not self._items:
                told = self._call("GET", f"{project}/work-items/", query={"per_page": 1, "fields": "id"})
                if told.status == 404 and told.body is None:  # no such page, which is not "no such project"
                    self._items = "issues"
                elif told.ok:
                    self._items = "work-items"
                else:
                    return "work-items"
            return self._items

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        background: bool = False,
    ) -> Answer:
        """One request below ``/api/v1``; ``path`` ends with a slash, without which a body would be lost.

        :raises TrackerAway: it is too early, no answer came, or the key is not known any more.
        :raises AnswerTooLarge: the answer is too large.
        """
        told = self._call(method, path, body, query=query, background=background)
        if told.status in _REFUSED and self._call("GET", "/users/me/").status in _REFUSED:
            # The same status is given where the key is good and this place is not ours to see.
            self._pace.later(REVOKED_S)
            raise TrackerAway(
                f"{self.url} does not know our key any more.",
                after_s=REVOKED_S,
                hint="Was it revoked? Set ORCH_PLANE_TOKEN anew.",
            )
        return told

    def pages(
        self, path: str, query: Mapping[str, object], *, background: bool = False
    ) -> Iterator[list[Mapping[str, object]]]:
        """A list, page by page. Where a page is too large, so much has been written in it, less is asked for at once;
        what is too large by itself is passed over.

        :raises TrackerAway: it cannot be asked.
        :raises OutsideError: it refuses, or answered no list.
        """
        size, seen, left, cursor = PAGE, 0, PAGE * PAGES, ""
        while left > 0:
            left -= size
            asked = {"per_page": size, **query, **({"cursor": cursor} if cursor else {})}
            try:
                told = mapping(good(self.call("GET", path, query=asked, background=background), path).body)
            except AnswerTooLarge as error:
                log.warning("a page is too large to be read", path=path, size=size, reason=error.message)
                seen, size = (seen, size // 10) if size > 1 else (seen + 1, 1)
                cursor = f"{size}:{seen // size}:0"  # its size, and the number of pages before it
                continue
            rows = told.get("results")
            if not isinstance(rows, list):
                raise OutsideError(f"Plane answered no list for {path}.")
            yield [mapping(row) for row in rows]
            seen += len(rows)
            if told.get("next_page_results") is not True:  # there always is a next cursor
                return
            cursor = text(told, "next_cursor")
        raise OutsideError(f"Plane has more for {path} than is read.")

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        background: bool = False,
    ) -> Answer:
        wait_s = self._pace.wait_s(background=background)
        if wait_s > 0:
            raise TrackerAway(f"{self.url} has been asked as often as it may be.", after_s=wait_s)
        headers = {"x-api-key": self._key.reveal(), "accept": "application/json"}
        sent = None
        if body is not None:
            headers["content-type"] = "application/json"
            sent = json.dumps(body).encode("ascii")
        url = f"{self.url}/api/v1{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            told = self._http.request(
                method, url, headers=headers, body=sent, timeout_s=TIMEOUT_S, limit=ANSWER_LIMIT
            )
        except AnswerTooLarge:  # which says nothing about the server
            raise
        except HttpFailed as error:
            raise TrackerAway(error.message, after_s=self._pace.failed(), hint=error.hint) from error
        return self._read(told)

    def _read(self, told: HttpAnswer) -> Answer:
        if told.status == 429:
            after_s = self._pace.later(_seconds(told.headers.get("retry-after", "")))
            raise TrackerAway(f"{self.url} asks for patience.", after_s=after_s)
        if told.status in _NO_ANSWER_OF_ITS_OWN or 300 <= told.status < 400:
            hint = "Is ORCH_PLANE_URL its address?" if told.status < 400 else ""
            raise TrackerAway(
                f"{self.url} answered with {told.status}.", after_s=self._pace.failed(), hint=hint
            )
        self._pace.answered(whole_number(told.headers.get("x-ratelimit-remaining", "")))
        if (ahead := clock_ahead_s(told, self._clock.utc())) is not None:
            self.ahead_s = ahead
        try:
            body = json.loads(told.body) if told.body else None
        except (ValueError, RecursionError):  # an error of a proxy, or a body made to hurt
            return Answer(told.status, None, one_line(told.body[:MESSAGE_LIMIT].decode("utf-8", "replace")))
        return Answer(told.status, body, _said(body))


def good(answer: Answer, what: str) -> Answer:
    """The answer, where it is what was asked for.

    :raises OutsideError: it is not.
    """
    if answer.ok and answer.body is not None:
        return answer
    said = f": {answer.message}" if answer.message else ""
    raise OutsideError(f"Plane did not give {what} ({answer.status}){said}.")


def mapping(value: object) -> Mapping[str, object]:
    """An object of an answer.

    :raises OutsideError: it is none.
    """
    if not isinstance(value, dict):
        raise OutsideError("Plane answered what its description does not say.")
    return value


def text(of: Mapping[str, object], name: str) -> str:
    """A text of an answer.

    :raises OutsideError: it is missing.
    """
    value = of.get(name)
    if not isinstance(value, str):
        raise OutsideError(f"Plane answered without {name}.")
    return value


def _said(body: object) -> str:
    """An error's words; it has three shapes."""
    if not isinstance(body, dict):
        return ""
    for name in ("error", "detail", "error_message"):
        if isinstance(body.get(name), str):
            return one_line(body[name][:MESSAGE_LIMIT])
    return ""


def _seconds(said: str) -> float | None:
    number = whole_number(said)
    return float(number) if number is not None else None


def moment(said: str) -> datetime:
    """A time as the server writes it.

    :raises OutsideError: it is none.
    """
    try:
        return clock.moment(said)
    except ValueError as error:
        raise OutsideError("Plane answered a time that is none.") from error
