"""HTTP, handed in: one request, one bounded answer, one deadline.

Every request opens a connection of its own: an answer over a kept one may come from an instance that is on its way out.
Redirects are not followed and proxies are not taken from the environment: the answer comes from the address that was
configured, or not at all. Any status is an answer; only the lack of one raises.
"""

import functools
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Protocol

from orchestrator.domain.errors import OutsideError

if TYPE_CHECKING:
    import httpx

BODY_LIMIT = 1024 * 1024  # bytes; more than any answer we read
_SAME_CLOCK_S = 2.0  # a header tells whole seconds, and is read a moment later


class HttpFailed(OutsideError):
    """No usable answer came: refused, cut off, too slow or too large."""


class AnswerTooLarge(HttpFailed):
    """More bytes came than may be read."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, headers by lower-case name, and the body as it came (never unpacked)."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300


def clock_ahead_s(answer: HttpAnswer, now: datetime) -> float | None:
    """How far the sender's clock is ahead of ours, in seconds; None where it does not say."""
    try:
        ahead = (parsedate_to_datetime(answer.headers.get("date", "")) - now).total_seconds()
    except (TypeError, ValueError):  # no date, or one without a zone
        return None
    return ahead if abs(ahead) > _SAME_CLOCK_S else 0.0


class Http(Protocol):
    """What the product may do with the network over HTTP."""

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 10.0,
        limit: int = BODY_LIMIT,
    ) -> HttpAnswer:
        """Send one request and read the whole answer within ``timeout_s`` seconds and ``limit`` bytes.

        :raises HttpFailed: no usable answer came.
        """
        ...


class SystemHttp:
    """The real network."""

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 10.0,
        limit: int = BODY_LIMIT,
    ) -> HttpAnswer:
        """Send one request; see :class:`Http`."""
        import httpx  # takes long to load, and most commands ask nobody

        sent = {"accept-encoding": "identity", "connection": "close", **(headers or {})}
        with _Deadline(timeout_s) as deadline:
            try:
                with (
                    httpx.Client(verify=_tls(), trust_env=False, timeout=timeout_s) as client,
                    client.stream(
                        method, url, headers=sent, content=body, extensions={"trace": deadline.trace}
                    ) as answer,
                ):
                    content = _read(answer, limit, url)
                    return HttpAnswer(answer.status_code, dict(answer.headers.items()), content)
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
                if deadline.passed or isinstance(error, httpx.TimeoutException):
                    raise HttpFailed(f"{_shown(url)} did not answer within {timeout_s:g} s.") from error
                raise HttpFailed(f"{_shown(url)} gave no answer: {_reason(error)}.") from error


class _Deadline:
    """Shuts the connection when the time is over: the client's own time-outs begin anew with every byte received."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> "_Deadline":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._socket = None

    def trace(self, event: str, info: Mapping[str, object]) -> None:
        """Learn of the connection as soon as there is one."""
        if event not in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            return
        stream = info.get("return_value")
        found = stream.get_extra_info("socket") if hasattr(stream, "get_extra_info") else None
        if isinstance(found, socket.socket):
            with self._lock:
                self._socket = found
                if self.passed:
                    _shut(found)

    def _end(self) -> None:
        with self._lock:
            self.passed = True
            if self._socket is not None:
                _shut(self._socket)


@functools.cache
def _tls() -> ssl.SSLContext:
    """The machine's own trusted roots; read once, at first use."""
    return ssl.create_default_context()


def _read(answer: "httpx.Response", limit: int, url: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    for part in answer.iter_raw():
        size += len(part)
        if size > limit:
            raise AnswerTooLarge(f"{_shown(url)} answered with more than {limit} bytes.")
        parts.append(part)
    return b"".join(parts)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended by itself


def _shown(url: str) -> str:
    """The address without what may be secret in it: no user, no query."""
    import httpx

    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return "The configured address"
    return str(parts.copy_with(username=None, password=None, query=None, fragment=None))


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).rstrip(".")
