"""A server that answers everything in one way, or in the order that it is given."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.runtime.http import BODY_LIMIT, HttpAnswer


class Answering:
    """The last answer is given for ever."""

    def __init__(self, *answers: HttpAnswer) -> None:
        self.answers: Sequence[HttpAnswer] = answers
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []

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
        self.asked.append(url)
        self.headers.append(headers or {})
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


def answered(status: int, body: Any = None, **headers: str) -> HttpAnswer:
    """`retry_after="5"` is the header `retry-after`."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, sent)
