"""Pushes as Gitea tells of them, signed and ready to be sent: 2 KB each, no two alike."""

import hmac
import json
from itertools import count
from urllib.parse import urlsplit

SECRET = "the-secret-of-the-benchmark"
SIZE = 2048  # bytes of a body


class Pushes:
    """Makes requests, and remembers what it made."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self._numbers = count(1)

    def take(self, url: str, number: int) -> list[bytes]:
        """So many whole requests."""
        return [self._request(urlsplit(url).netloc) for _ in range(number)]

    def _request(self, host: str) -> bytes:
        after = f"{next(self._numbers):040x}"
        self.sent.add(after)
        account = {
            "id": 4,
            "login": "dana",
            "email": "dana@example.org",
            "avatar_url": "https://git.example.org/4",
        }
        payload: dict[str, object] = {
            "ref": "refs/heads/orch/shop-7-add-totals",
            "before": "0" * 40,
            "after": after,
            "commits": [{"id": after, "message": "Add totals", "author": account, "added": ["a.py"], "removed": []}],
            "repository": {"id": 7, "owner": account, "full_name": "acme/shop", "default_branch": "main",
                           "clone_url": "https://git.example.org/acme/shop.git", "private": True},
            "pusher": account,
            "sender": account,
        }  # fmt: skip
        payload["pad"] = "x" * (SIZE - len(json.dumps(payload)) - 11)
        body = json.dumps(payload).encode()
        signature = hmac.digest(SECRET.encode(), body, "sha256").hex()
        return (
            f"POST /webhooks/gitea HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nX-Gitea-Event: push\r\n"
            f"X-Gitea-Event-Type: push\r\nX-Gitea-Delivery: delivery-{after}\r\n"
            f"X-Gitea-Signature: {signature}\r\n\r\n"
        ).encode() + body
