"""Errors as problem documents (RFC 9457): what happened in ``detail``, what to do in ``hint``, the right status.

What must hold: no answer carries a traceback or the text of an error that is not ours.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from orchestrator.domain.errors import (
    InvariantError,
    LostRace,
    NotFound,
    OperatorError,
    OrchestratorError,
    OutsideError,
    RequestRefused,
    StateInUse,
)

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
_SHOWN = 200  # characters of a wrong value's place and complaint

# The first kind that fits decides.
_STATUS: tuple[tuple[type[OrchestratorError], HTTPStatus], ...] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (RequestRefused, HTTPStatus.CONFLICT),
    (StateInUse, HTTPStatus.CONFLICT),
    (LostRace, HTTPStatus.CONFLICT),
    (OperatorError, HTTPStatus.BAD_REQUEST),
    (OutsideError, HTTPStatus.SERVICE_UNAVAILABLE),
    (InvariantError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


class BadInput(OperatorError):
    """What was sent cannot be read as what the operation takes."""


def problem(status: int, detail: str, hint: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """A problem document."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
        "hint": hint,
    }
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def status_of(error: OrchestratorError) -> HTTPStatus:
    """The status that tells whose turn it is."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def answer_errors(api: FastAPI) -> None:
    """Let every error of the API leave it as a problem document."""

    @api.exception_handler(OrchestratorError)
    def ours(request: Request, error: OrchestratorError) -> Response:
        return problem(status_of(error), error.message, error.hint)

    @api.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        hint = "GET /openapi.json lists what there is." if error.status_code in (404, 405) else ""
        return problem(error.status_code, str(error.detail), hint, error.headers)

    @api.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        return problem(HTTPStatus.BAD_REQUEST, complaint(error.errors()), "Nothing was changed.")

    @api.exception_handler(OSError)
    def outside(request: Request, error: OSError) -> Response:
        # The answer names no place; without this line nobody could find out which file it was.
        log.error("request failed outside", path=request.url.path, reason=str(error), exc_info=error)
        why = error.strerror or "The system refused"
        return problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{why}.",
            "Mend that and ask again; the service's log says where.",
        )

    @api.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> Response:
        return problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "The service failed at this request; what it had not committed did not happen.",
            "Its log says more.",
        )


def complaint(errors: object) -> str:
    """Pydantic's findings in one sentence, without the values that were wrong."""
    found = errors if isinstance(errors, list | tuple) else []
    parts = [
        f"{'.'.join(str(step) for step in e.get('loc', ())) or 'the body'}: {e.get('msg', 'is wrong')}"[
            :_SHOWN
        ]
        for e in found[:10]
        if isinstance(e, Mapping)
    ]
    return "The request cannot be used: " + "; ".join(parts) + "."
