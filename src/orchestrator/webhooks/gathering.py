"""Gathers letters that arrive while others are being stored, so that they share a commit (law 7).

What must hold: whoever has put a letter goes on only once its commit has taken place, or failed. One storing runs at a
time, in a thread; the event loop goes on reading meanwhile. All of this belongs to one event loop.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from orchestrator.domain.errors import OrchestratorError
from orchestrator.webhooks.receiving import Ended, Letter, Opened

TOGETHER = 50  # letters in one commit: bounds how long the engine's own commits wait for it
READ_AT_ONCE = 32 * 1024  # bytes; reading more takes longer than the event loop may stand still


class Storing(Protocol):
    """What is needed of the receiver; raises nothing."""

    def open(self, letter: Letter) -> Opened | OrchestratorError:
        """Read what has arrived."""
        ...

    def store(self, opened: Sequence[Opened]) -> Sequence[Ended]:
        """Store them together."""
        ...


class Gathering:
    """Who has a letter stored, and waits."""

    def __init__(self, receiver: Storing) -> None:
        self._receiver = receiver
        self._waiting: list[tuple[Opened, asyncio.Future[Ended]]] = []
        self._storing: asyncio.Task[None] | None = None

    async def put(self, letter: Letter) -> Ended:
        """Store a letter; what became of it."""
        if len(letter.raw) <= READ_AT_ONCE:
            opened = self._receiver.open(letter)
        else:
            opened = await asyncio.to_thread(self._receiver.open, letter)
        if isinstance(opened, OrchestratorError):
            return opened
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()
        self._waiting.append((opened, ended))
        if self._storing is None or self._storing.done():
            self._storing = loop.create_task(self._store())
        return await ended

    async def _store(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            ends = await asyncio.to_thread(self._receiver.store, [opened for opened, _ in batch])
            for (_, future), ended in zip(batch, ends, strict=True):
                if not future.done():  # whoever waited may have been cancelled: stored it is all the same
                    future.set_result(ended)
