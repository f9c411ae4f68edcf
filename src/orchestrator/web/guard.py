"""Who may come in, and how much they may bring: stands before every route, the board's included.

What must hold: a request whose ``Host`` is not ours is refused (a web page that re-binds its name to 127.0.0.1); a
change asked for by another site's page is refused; a token is compared in constant time; a body is bounded
(:mod:`orchestrator.web.request_body`). Refused requests reach no route. What arrives at the paths of ``Door.signed`` is
handed on as it comes: whoever answers there knows the sender by a signature, and bounds what it reads.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.web.problems import problem
from orchestrator.web.request_body import BODY_LIMIT, BODY_TIMEOUT_S, read_body

SESSION_COOKIE = "orch_session"
LOGIN_PATH = "/login"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
COSTLY_PATHS = frozenset({"/restore"})  # reading that has forges asked: not for whoever comes by
_SESSION_PURPOSE = b"orchestrator board session, version 1"

_EVERY_ANSWER = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
}


@dataclass(frozen=True, slots=True)
class Door:
    """Who may come in.

    With a ``token`` everything but ``open_paths`` asks for it. Without one reading is open to whoever reaches the
    address (loopback), while every change asks for ``local_token`` if there is one, and so does reading that is costly;
    filing a ticket is a change, for its labels can lift a gate. ``local_token`` is always as good as ``token``. This
    keeps out other users of the machine, web pages and programs that stumble on the port. It does not keep out a
    program of the same user, an agent included: that one can read ``local_token`` in ``api.json``.
    """

    token: str | None = None
    local_token: str | None = None
    hosts: frozenset[str] | None = None  # names of this service, lower case, without port; None: any
    open_paths: frozenset[str] = OPEN_PATHS
    signed: Mapping[str, ASGIApp] = field(default_factory=dict)  # who answers where a signature is the key

    def wants_token(self, method: str, path: str) -> bool:
        """Whether a request has to prove who sends it."""
        if path in self.open_paths:
            return False
        if self.token is not None:
            return True
        return self.local_token is not None and (method not in SAFE_METHODS or path in COSTLY_PATHS)

    def knows(self, token: str) -> bool:
        """Whether this is a token of ours; takes as long for a wrong one as for a right one."""
        given = token.encode("utf-8", "replace")
        known = [one.encode() for one in (self.token, self.local_token) if one]
        return any([hmac.compare_digest(given, one) for one in known])  # noqa: C419 - no early end: constant time

    def session(self) -> str | None:
        """What the board's cookie holds: derived from the token, of no use for finding it."""
        if self.token is None:
            return None
        return hmac.new(self.token.encode(), _SESSION_PURPOSE, hashlib.sha256).hexdigest()


def own_hosts(host: str, base_url: str) -> frozenset[str]:
    """The names under which a service that listens on loopback is addressed."""
    named = urlsplit(base_url).hostname or ""
    return LOOPBACK_NAMES | {name.lower() for name in (host, named) if name}


class Guard:
    """The door as ASGI middleware."""

    def __init__(
        self, app: ASGIApp, door: Door, *, limit: int = BODY_LIMIT, timeout_s: float = BODY_TIMEOUT_S
    ) -> None:
        self._app = app
        self._door = door
        self._limit = limit
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or hand on with the whole body read."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        if (signed := self._door.signed.get(scope["path"])) is not None:
            await signed(scope, receive, send)
            return
        headers = Headers(scope=scope)
        dressed = _dressing(send)
        refusal = (
            self._wrong_host(headers)
            or self._foreign(scope["method"], headers)
            or self._stranger(scope["method"], scope["path"], headers)
        )
        if refusal is None:
            body = await read_body(headers, receive, limit=self._limit, timeout_s=self._timeout_s)
            if not isinstance(body, Response):
                await self._app(scope, _replay(body, receive), dressed)
                return
            refusal = body
        await refusal(scope, receive, dressed)

    def _wrong_host(self, headers: Headers) -> Response | None:
        if self._door.hosts is None:
            return None
        hosts = headers.getlist("host")
        if len(hosts) == 1 and _name(hosts[0]) in self._door.hosts:
            return None
        return problem(
            HTTPStatus.MISDIRECTED_REQUEST,
            "This service does not answer under that host name.",
            "Use the address it prints at start, or set ORCH_BASE_URL to the one that people use.",
        )

    def _foreign(self, method: str, headers: Headers) -> Response | None:
        """A change that another site's page asks for. Programs send neither header."""
        if method in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        same = origin is None or (
            urlsplit(origin).netloc.lower() == headers.get("host", "").lower() and origin.startswith("http")
        )
        if same and site in ("none", "same-origin"):
            return None
        return problem(HTTPStatus.FORBIDDEN, "A page of another site may not ask for changes here.")

    def _stranger(self, method: str, path: str, headers: Headers) -> Response | None:
        if not self._door.wants_token(method, path):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._door.knows(given.strip()):
            return None
        session = self._door.session()
        if session is not None and method in SAFE_METHODS:
            shown = _cookie(headers.get("cookie", ""))
            if hmac.compare_digest(shown.encode("utf-8", "replace"), session.encode()):
                return None
        if session is not None and method in SAFE_METHODS and "text/html" in headers.get("accept", ""):
            return RedirectResponse(LOGIN_PATH, HTTPStatus.SEE_OTHER)
        hint = "Send it as `Authorization: Bearer …`: ORCH_TOKEN of this service"
        hint += "." if self._door.token is not None else ", or `token` in api.json of its state folder."
        detail = "The token is wrong." if given else "A token is needed."
        return problem(HTTPStatus.UNAUTHORIZED, detail, hint, {"www-authenticate": "Bearer"})


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body once and then whatever the connection has to say."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _dressing(send: Send) -> Send:
    """A send that adds the headers that every answer bears, unless the route has said otherwise."""

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _EVERY_ANSWER.items():
                headers.setdefault(name, value)
        await send(message)

    return dressed


def _name(host: str) -> str:
    """The name in a ``Host`` header, lower case, without port and brackets; empty where it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(SESSION_COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""
