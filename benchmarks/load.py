"""Sends requests that are made already, over so many connections, one after the other on each."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Outcome:
    """How long it took, and each answer."""

    took: float = 0.0
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[bytes] = field(default_factory=Counter)

    def all_taken(self) -> None:
        """Every answer must be 2xx."""
        bad = {status: n for status, n in self.statuses.items() if not status.startswith(b"2")}
        if bad:
            raise SystemExit(f"Not every delivery was taken: {bad}")


def send_all(url: str, requests: list[bytes], connections: int) -> Outcome:
    """Send them all, and wait for every answer."""
    return asyncio.run(_send_all(url, requests, connections))


async def _send_all(url: str, requests: list[bytes], connections: int) -> Outcome:
    loop, parts = asyncio.get_running_loop(), urlsplit(url)
    outcome, waiting = Outcome(), list(requests)
    ends = []
    began = time.perf_counter()
    for _ in range(connections):
        end = loop.create_future()
        ends.append(end)
        await loop.create_connection(
            lambda end=end: _Connection(waiting, outcome, end), parts.hostname, parts.port
        )  # type: ignore[misc]
    await asyncio.gather(*ends)
    outcome.took = time.perf_counter() - began
    return outcome


class _Connection(asyncio.Protocol):
    def __init__(self, waiting: list[bytes], outcome: Outcome, end: "asyncio.Future[None]") -> None:
        self._waiting, self._outcome, self._end = waiting, outcome, end
        self._got = b""
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._outcome.seconds.append(time.perf_counter() - self._since)
        self._outcome.statuses[head[9:12]] += 1
        self._got = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._end.done():
            self._end.set_exception(ConnectionError("the server has closed the connection"))

    def _next(self) -> None:
        if not self._waiting:
            self._end.set_result(None)
            self._transport.close()
            return
        self._since = time.perf_counter()
        self._transport.write(self._waiting.pop())


def _length(head: bytes) -> int:
    lower = head.lower()
    at = lower.index(b"content-length:") + 15
    return int(lower[at:].split(b"\r\n", 1)[0])
