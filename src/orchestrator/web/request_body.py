"""Reads a request's body: bounded in size and time, whatever the headers say.

What must hold: at most ``limit`` + 1 bytes are kept, for at most ``timeout_s`` seconds; a packed body is not unpacked.
"""

import asyncio
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive

from orchestrator.web.problems import problem

BODY_LIMIT = 1024 * 1024  # bytes; the largest ticket fits several times
BODY_TIMEOUT_S = 10.0  # for the whole body: a slow sender holds nothing for longer
CLOSING = {"connection": "close"}


async def read_body(
    headers: Headers, receive: Receive, *, limit: int = BODY_LIMIT, timeout_s: float = BODY_TIMEOUT_S
) -> bytes | Response:
    """The whole body, or why it is refused; the connection is closed with a refusal."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        return problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Packed bodies are not read.", headers=CLOSING)
    declared = headers.get("content-length", "0")
    if not declared.isdigit() or len(declared) > 15 or int(declared) > limit:
        return _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return problem(HTTPStatus.BAD_REQUEST, "The body broke off.", headers=CLOSING)
                body += message.get("body", b"")
                if len(body) > limit:
                    return _too_large(limit)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return problem(HTTPStatus.REQUEST_TIMEOUT, "The body did not come in time.", headers=CLOSING)
    except asyncio.CancelledError:  # the server is on its way out, and this request has done nothing yet
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "The service is stopping.", headers=CLOSING)


def _too_large(limit: int) -> Response:
    hint = "Nothing was changed; send less."
    return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {limit} bytes are read.", hint, CLOSING)
