"""Plane, Gitea and GitHub as senders: deliveries with their headers and signatures, over HTTP."""

import hmac
import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

OLD, SECRET = "an-old-secret-of-the-webhook", "the-secret-of-the-webhook"


def signature_of(secret: str, raw: bytes) -> str:
    return hmac.digest(secret.encode(), raw, "sha256").hex()


def headers_of(source: str, kind: str, number: str, signature: str) -> dict[str, str]:
    """As the source writes them; GitHub names neither itself in all of them nor the bare digits."""
    if source == "github":
        return {
            "content-type": "application/json",
            "x-github-event": kind,
            "x-github-delivery": number,
            "x-hub-signature-256": f"sha256={signature}",
        }
    told = {
        "content-type": "application/json",
        f"x-{source}-event": kind,
        f"x-{source}-delivery": number,
        f"x-{source}-signature": signature,
    }
    return told | ({"x-gitea-event-type": kind} if source == "gitea" else {})


@dataclass
class Sender:
    """One webhook of one source; ``secret`` is what it signs with. Each delivery has an id of its own."""

    client: httpx.Client
    url: str
    source: str
    secret: str = SECRET
    _numbers: Any = field(default_factory=count)

    @property
    def address(self) -> str:
        return f"{self.url}/webhooks/{self.source}"

    def signature(self, raw: bytes) -> str:
        return signature_of(self.secret, raw)

    def send(self, payload: Any, kind: str | None = None, **changed: str | None) -> httpx.Response:
        """Deliver; ``changed`` are headers that are another one, or left out. Bytes are sent as they are."""
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        if kind is None:
            kind = str(payload["event"]) if self.source == "plane" and isinstance(payload, dict) else "push"
        wanted: dict[str, str | None] = {
            **headers_of(self.source, kind, f"delivery-{next(self._numbers)}", self.signature(raw)),
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        given = [(name.encode(), value.encode()) for name, value in wanted.items() if value is not None]
        return self.client.post(self.address, content=raw, headers=given)
