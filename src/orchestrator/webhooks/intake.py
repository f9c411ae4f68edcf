"""The addresses at which trackers and forges deliver: ``POST /webhooks/<source>``.

What must hold: nobody needs our token here, for the signature is the key; without a secret, or with a signature that
is missing, doubled or wrong, nothing is stored. Whatever can be refused unread is; at most ``BODY_LIMIT`` bytes of the
rest are kept. The answer comes after the COMMIT, or says that there was none.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from http import HTTPStatus

import structlog
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.config import Secret
from orchestrator.domain.errors import DatabaseError, OrchestratorError
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.runtime.waypoints import NoWaypoints, Waypoints
from orchestrator.web.problems import problem
from orchestrator.web.request_body import BODY_LIMIT, BODY_TIMEOUT_S, CLOSING, read_body
from orchestrator.webhooks.envelope import path_of, signed_by_one
from orchestrator.webhooks.fields import MalformedDelivery
from orchestrator.webhooks.gathering import Gathering
from orchestrator.webhooks.handler import WebhookHandler
from orchestrator.webhooks.receiving import Letter, Receiver

log = structlog.get_logger(__name__)

JSON_TYPE = "application/json"
REPEAT_AFTER_S = 30
LINGER_BYTES = 32 * BODY_LIMIT
LINGER_S = 5.0


class Refused(StrEnum):
    """Why a delivery was not taken: the label of the counter, so that a name is never changed."""

    NO_SECRET = "no-secret"
    CONTENT_TYPE = "content-type"
    TOO_LARGE = "too-large"
    TOO_SLOW = "too-slow"
    BROKEN_OFF = "broken-off"
    SIGNATURE = "signature"
    MALFORMED = "malformed"
    UNAVAILABLE = "unavailable"
    FAULT = "fault"


_OF_BODIES = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Refused.TOO_LARGE,
    HTTPStatus.REQUEST_TIMEOUT: Refused.TOO_SLOW,
    HTTPStatus.BAD_REQUEST: Refused.BROKEN_OFF,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: Refused.CONTENT_TYPE,
    HTTPStatus.SERVICE_UNAVAILABLE: Refused.UNAVAILABLE,
}


def intakes(
    receiver: Receiver,
    handlers: Iterable[WebhookHandler],
    *,
    secrets: Mapping[str, Iterable[Secret]],
    telemetry: Telemetry,
    waypoints: Waypoints | None = None,
    timeout_s: float = BODY_TIMEOUT_S,
) -> dict[str, ASGIApp]:
    """Who answers at which path: what ``create_api`` takes as ``signed``.

    ``secrets`` are those of each source, of which any will do; ``timeout_s`` is for a whole body, in seconds.
    """
    gathering = Gathering(receiver)
    refusals = _Refusals(telemetry)
    return {
        path_of(handler.source): Intake(
            handler,
            tuple(secrets.get(handler.source, ())),
            gathering,
            refusals,
            waypoints=waypoints or NoWaypoints(),
            timeout_s=timeout_s,
        )
        for handler in handlers
    }


class Intake:
    """One sender's address, as an ASGI application."""

    def __init__(
        self,
        handler: WebhookHandler,
        secrets: tuple[Secret, ...],
        gathering: Gathering,
        refusals: "_Refusals",
        *,
        waypoints: Waypoints,
        timeout_s: float,
    ) -> None:
        self._source = handler.source
        self._envelope = handler.envelope
        self._secrets = secrets
        self._gathering = gathering
        self._refusals = refusals
        self._waypoints = waypoints
        self._timeout_s = timeout_s
        self._setting = f"ORCH_{handler.source.upper()}_WEBHOOK_SECRET"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one delivery in, or say why not."""
        headers = Headers(scope=scope)
        refusal = self._unread(scope["method"], headers)
        if refusal is None:
            raw = await read_body(headers, receive, timeout_s=self._timeout_s)
            if isinstance(raw, Response):
                refusal = self._refusals.said(self._source, _OF_BODIES[HTTPStatus(raw.status_code)], raw)
            else:
                answer = self._unsigned(headers, raw) or await self._stored(headers, raw)
                await answer(scope, receive, send)
                return
        await _answer_unread(refusal, receive, send)

    def _unread(self, method: str, headers: Headers) -> Response | None:
        """What is wrong with it whatever its body says."""
        if method != "POST":
            allowed = {**CLOSING, "allow": "POST"}
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "Deliveries are posted here.", headers=allowed)
        if not self._secrets:
            return self._refuse(
                Refused.NO_SECRET,
                HTTPStatus.FORBIDDEN,
                f"Nothing is taken from {self._source} here: no secret is set.",
                f"Set {self._setting} or {self._setting}_FILE to the webhook's secret, and start the service again.",
                CLOSING,
            )
        if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON_TYPE:
            return self._refuse(
                Refused.CONTENT_TYPE,
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"The delivery is not declared as {JSON_TYPE}.",
                "Set the webhook's content type to that.",
                CLOSING,
            )
        return None

    def _unsigned(self, headers: Headers, raw: bytes) -> Response | None:
        prefix = self._envelope.signature_prefix
        said = _one_of(headers, self._envelope.signature)
        if said.startswith(prefix) and signed_by_one(said.removeprefix(prefix), raw, self._secrets):
            return None
        return self._refuse(
            Refused.SIGNATURE,
            HTTPStatus.FORBIDDEN,
            "The signature fits no secret that is set here." if said else "The delivery is not signed.",
            f"The webhook's secret has to be among those of {self._setting}.",
        )

    async def _stored(self, headers: Headers, raw: bytes) -> Response:
        kind, number = _one_of(headers, self._envelope.kind), _one_of(headers, self._envelope.delivery)
        ended = await self._gathering.put(Letter(self._source, kind, number or None, raw))
        if not isinstance(ended, OrchestratorError):
            self._waypoints.reach("webhooks.before_answer", inbox=ended.inbox_id)
            return KNOWN if ended.repeated else STORED
        if isinstance(ended, MalformedDelivery):
            return self._refuse(Refused.MALFORMED, HTTPStatus.BAD_REQUEST, ended.message, ended.hint)
        away = isinstance(ended, DatabaseError)
        log.error("delivery not stored", source=self._source, kind=kind, reason=str(ended))
        return self._refuse(
            Refused.UNAVAILABLE if away else Refused.FAULT,
            HTTPStatus.SERVICE_UNAVAILABLE if away else HTTPStatus.INTERNAL_SERVER_ERROR,
            "The delivery could not be stored.",
            "Send it again later; the service's log says more.",
            {"retry-after": str(REPEAT_AFTER_S)} if away else {},
        )

    def _refuse(
        self,
        why: Refused,
        status: HTTPStatus,
        detail: str,
        hint: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return self._refusals.said(self._source, why, problem(status, detail, hint, headers))


class _Refusals:
    """Counts what is refused, and tells of it ever more seldom: strangers may send as much as they like."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._counts: Counter[tuple[str, Refused]] = Counter()

    def said(self, source: str, why: Refused, answer: Response) -> Response:
        self._telemetry.count(Metric.WEBHOOKS_REFUSED, why)
        self._counts[source, why] += 1
        count = self._counts[source, why]
        if count & (count - 1) == 0:  # 1, 2, 4, 8, …
            log.warning(
                "delivery refused",
                source=source,
                reason=why.value,
                status=int(answer.status_code),
                count=count,
            )
        return answer


# Without a word: a body would be sent in a second packet.
STORED = Response(status_code=HTTPStatus.ACCEPTED)
KNOWN = Response(status_code=HTTPStatus.OK)


async def _answer_unread(answer: Response, receive: Receive, send: Send) -> None:
    """Refuse a request whose body is not read, and let its sender finish, within bounds, before the connection ends.

    Closing it in the middle would reach the sender as a broken connection and not as the answer: Plane tries those
    again, and switches the webhook off in the end.
    """
    await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    left = LINGER_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):  # all of it, or the sender has gone
                    break
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _one_of(headers: Headers, names: Iterable[str]) -> str:
    """The first of the headers that is there; empty where none is, or where it is there twice."""
    for name in names:
        found = headers.getlist(name)
        if found:
            return found[0] if len(found) == 1 else ""
    return ""
