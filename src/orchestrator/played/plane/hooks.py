"""The server's webhooks: signed, sent by a worker, tried again after transport errors alone, switched off in the end.

Any answer counts as delivered, a 500 as well. Each attempt bears an id of its own and the same bytes.
"""

import hmac
import json
import queue
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

from orchestrator.played.plane import bodies
from orchestrator.played.plane.world import Happened, World

RETRIES = 5
TIMEOUT_S = 30.0


@dataclass
class Hook:
    """One webhook of the workspace."""

    url: str
    secret: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    active: bool = True
    lost: bool = False  # nothing is sent, and nobody is told: the broker is down


@dataclass(frozen=True)
class Sent:
    """One attempt; `status` is 0 where no answer came."""

    event: str
    action: str
    raw: bytes
    headers: dict[str, str]
    status: int

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Worker:
    """Sends in the order in which things happened; what fails is tried again at once."""

    def __init__(self, world: World) -> None:
        self.hooks: list[Hook] = []
        self.sent: list[Sent] = []
        self._world = world
        self._queue: queue.Queue[tuple[Hook, Happened] | None] = queue.Queue()
        self._client = httpx.Client(trust_env=False, timeout=TIMEOUT_S, follow_redirects=True)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._client.close()

    def tell(self, happened: Happened) -> None:
        for hook in self.hooks:
            if hook.active and not hook.lost:
                self._queue.put((hook, happened))

    def all_sent(self) -> bool:
        """Whether nothing waits any more."""
        return self._queue.unfinished_tasks == 0

    def _run(self) -> None:
        while (found := self._queue.get()) is not None:
            self._send(*found)
            self._queue.task_done()
        self._queue.task_done()

    def _send(self, hook: Hook, happened: Happened) -> None:
        with self._world.lock:
            raw = json.dumps(bodies.delivery(self._world, happened, hook.id)).encode()
        for _ in range(1 + RETRIES):
            if self._attempt(hook, happened, raw):
                return
        hook.active = False

    def _attempt(self, hook: Hook, happened: Happened, raw: bytes) -> bool:
        headers = {
            "User-Agent": "Autopilot",
            "Content-Type": "application/json",
            "X-Plane-Delivery": str(uuid.uuid4()),
            "X-Plane-Event": happened.event,
            "X-Plane-Signature": hmac.digest(hook.secret.encode(), raw, "sha256").hex(),
        }
        try:
            status = self._client.post(hook.url, content=raw, headers=headers).status_code
        except httpx.HTTPError:
            status = 0
        self.sent.append(Sent(happened.event, happened.action, raw, headers, status))
        return status != 0
