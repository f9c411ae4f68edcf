"""GitHub's REST API as all who ask it do: one token, its limits, and answers that are asked for again by their tag.

Must hold: all that have one token share its :class:`~orchestrator.rest.github_limits.Limits`, for they are the
user's. On failure: see :mod:`~orchestrator.rest.api`.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.rest.api import Answer, RestApi, mapping
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.http import Http, HttpAnswer

VERSION = "2022-11-28"  # of the API; the oldest that is kept
PAGE = 100  # the most that the server gives at once
PAGES = 500
LARGE_PAGE = 20  # of what has a body: so many of 65,536 characters, the most there are, still fit an answer
KEPT = 64  # answers that are asked for again by their tag: one that has not changed counts towards no limit
KEPT_SIZE = 256 * 1024  # bytes of one


class GitHubRest(RestApi):
    """One repository's API. Safe for many threads."""

    token_setting = "ORCH_GITHUB_TOKEN"

    def __init__(self, http: Http, server: str, full_name: str, token: Secret, limits: Limits) -> None:
        """``server`` is where people find it, such as ``https://github.com``; ``full_name`` is ``owner/name``."""
        super().__init__(http, server, api_root(server), full_name, token)
        self._limits = limits
        self._kept: OrderedDict[str, HttpAnswer] = OrderedDict()
        self._lock = threading.Lock()
        self.token_ends: datetime | None = None  # as the last answer has said
        self.ahead_s = 0.0  # how far the server's clock is ahead of ours, by the last answer

    def headers(self) -> dict[str, str]:
        """What every request says."""
        return {
            "authorization": f"Bearer {self._token.reveal()}",
            "accept": "application/vnd.github+json",
            "x-github-api-version": VERSION,
        }

    def said(self, body: Mapping[str, object]) -> str:
        """An error's own words, and those of its parts: "Validation Failed" alone says nothing."""
        parts = body.get("errors")
        told = (
            [one.get("message") for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
        )
        return ": ".join(one for one in (super().said(body), *told[:3]) if isinstance(one, str))

    def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> HttpAnswer:
        """Send it, unless we are to be silent; what has not changed since it was last asked for is not sent again."""
        kept = self._known(url) if method == "GET" else None
        if kept is not None:
            headers = {**headers, "if-none-match": kept.headers["etag"]}

        def send() -> HttpAnswer:
            return super(GitHubRest, self).request(method, url, headers, body, timeout_s)

        told = self._limits.ask(send)
        if (ahead := self._limits.ahead_s(told)) is not None:
            self.ahead_s = ahead
        self.token_ends = _moment(told.headers.get("github-authentication-token-expiration", ""))
        if kept is not None and told.status == HTTPStatus.NOT_MODIFIED:
            return kept
        if method == "GET":
            self._keep(url, told)
        return told

    def rows(
        self,
        path: str,
        query: Mapping[str, object],
        *,
        within: str = "",
        size: int = PAGE,
        ask: Callable[[str, Mapping[str, object]], Answer] | None = None,
    ) -> Iterator[Mapping[str, object]]:
        """A list, over all its pages of a ``size``; ``within`` names where in an answer it is, ``ask`` is who gets a
        good one, if not :meth:`asked`. The pages are counted by us: the addresses that the server gives may be some
        that only it can reach.

        :raises AuthorityUnreachable: it cannot be asked for, or has no end.
        """
        for page in range(1, PAGES + 1):
            answer = (ask or self.asked)(path, {**query, "per_page": size, "page": page})
            found = mapping(answer.body).get(within) if within else answer.body
            if not isinstance(found, list):
                raise AuthorityUnreachable(f"{self.server} answered no list for {path}.")
            yield from map(mapping, found)
            if not answer.more:
                return
        raise AuthorityUnreachable(f"{self.full_name} has more for {path} than is read.")

    def _known(self, url: str) -> HttpAnswer | None:
        with self._lock:
            return self._kept.get(url)

    def _keep(self, url: str, told: HttpAnswer) -> None:
        with self._lock:
            self._kept.pop(url, None)
            if told.status == HTTPStatus.OK and "etag" in told.headers and len(told.body) <= KEPT_SIZE:
                self._kept[url] = told
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def api_root(server: str) -> str:
    """Where the API of a server begins: github.com and its kin have a host for it, an Enterprise Server a path."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    if host == "github.com" or host.endswith(".ghe.com"):
        return f"{parts.scheme}://api.{parts.netloc}"
    return f"{server}/api/v3"


def _moment(text: str) -> datetime | None:
    """Such as ``2026-12-31 23:59:59 UTC``; to the day is enough."""
    try:
        return datetime.strptime(text[:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
