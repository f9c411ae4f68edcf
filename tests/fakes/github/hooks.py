"""Webhooks of the server: signed, sent once and by itself, each attempt kept."""

import hashlib
import hmac
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen


@dataclass(frozen=True)
class Hook:
    """Where to, and with which secret."""

    url: str
    secret: str
    events: tuple[str, ...] = ("push", "pull_request", "status", "ping")


@dataclass
class Delivery:
    """One delivery and what was answered last; 0 where nobody answered."""

    hook: Hook
    event: str
    guid: str
    body: bytes
    statuses: list[int] = field(default_factory=list)

    def headers(self) -> dict[str, str]:
        key = self.hook.secret.encode()
        return {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/f4k3d00",
            "X-GitHub-Event": self.event,
            "X-GitHub-Delivery": self.guid,
            "X-GitHub-Hook-ID": "1",
            "X-GitHub-Hook-Installation-Target-Type": "repository",
            "X-Hub-Signature": "sha1=" + hmac.digest(key, self.body, hashlib.sha1).hex(),
            "X-Hub-Signature-256": "sha256=" + hmac.digest(key, self.body, hashlib.sha256).hex(),
        }


class Hooks:
    """Sends in the order in which things happened; the real one promises no order."""

    def __init__(self) -> None:
        self.known: list[Hook] = []
        self.deliveries: list[Delivery] = []
        self._pool = ThreadPoolExecutor(1)

    def tell(self, event: str, payload: dict[str, Any]) -> None:
        body = json.dumps(payload).encode()
        for hook in self.known:
            if event in hook.events:
                one = Delivery(hook, event, str(uuid.uuid4()), body)
                self.deliveries.append(one)
                self._pool.submit(_send, one)

    def again(self, one: Delivery) -> None:
        """A person asks for it to be sent once more: it keeps its number."""
        self._pool.submit(_send, one)

    def end(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _send(one: Delivery) -> None:
    request = Request(one.hook.url, one.body, one.headers(), method="POST")
    try:
        with urlopen(request, timeout=10) as answer:
            one.statuses.append(answer.status)
    except OSError as error:  # also an answer that is a refusal
        one.statuses.append(getattr(error, "code", 0))
