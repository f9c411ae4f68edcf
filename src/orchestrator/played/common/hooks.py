"""Webhooks of a server: signed, sent once and by itself, each attempt kept. Servers differ in their headers."""

import json
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen


@dataclass
class Hook:
    """Where to, and with which secret."""

    url: str
    secret: str
    events: tuple[str, ...]
    number: int = 1
    active: bool = True


@dataclass
class Delivery:
    """One delivery and what was answered last; 0 where nobody answered."""

    hook: Hook
    event: str
    guid: str
    body: bytes
    statuses: list[int] = field(default_factory=list)


class Hooks:
    """Sends in the order in which things happened; the real ones promise no order."""

    def __init__(self, headers: Callable[[Delivery], dict[str, str]]) -> None:
        self.known: list[Hook] = []  # those of the whole server
        self.deliveries: list[Delivery] = []
        self._headers = headers
        self._pool = ThreadPoolExecutor(1)

    def tell(
        self, event: str, payload: dict[str, Any], more: Iterable[Hook] = (), *, asked_as: str = ""
    ) -> None:
        """``more``: those of the repository; ``asked_as`` is what a hook asks for, where that has another name."""
        body = json.dumps(payload).encode()
        for hook in [*self.known, *more]:
            if hook.active and (asked_as or event) in hook.events:
                one = Delivery(hook, event, str(uuid.uuid4()), body)
                self.deliveries.append(one)
                self._pool.submit(self._send, one)

    def again(self, one: Delivery) -> None:
        """A person asks for it to be sent once more: it keeps its number."""
        self._pool.submit(self._send, one)

    def end(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _send(self, one: Delivery) -> None:
        request = Request(one.hook.url, one.body, self._headers(one), method="POST")
        try:
            with urlopen(request, timeout=10) as answer:
                one.statuses.append(answer.status)
        except OSError as error:  # also an answer that is a refusal
            one.statuses.append(getattr(error, "code", 0))


def shown(hook: Hook, of: str) -> dict[str, Any]:
    """A hook as its server shows it: never its secret."""
    return {
        "id": hook.number,
        "type": of,
        "active": hook.active,
        "events": list(hook.events),
        "config": {"url": hook.url, "content_type": "json"},
    }


def settle(hooks: list[Hook], asked: dict[str, Any], number: int | None = None) -> Hook | None:
    """Make one, or change the one of this number; None where there is none."""
    config = asked.get("config", {})
    if number is None:
        found = Hook(config["url"], config.get("secret", ""), (), len(hooks) + 1, active=False)
        hooks.append(found)
    else:
        known = next((hook for hook in hooks if hook.number == number), None)
        if known is None:
            return None
        found = known
        found.url, found.secret = config.get("url", found.url), config.get("secret", found.secret)
    found.events = tuple(asked.get("events", found.events))
    found.active = asked.get("active", found.active)
    return found
