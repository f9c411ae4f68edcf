"""Gathers letters that arrive while others are being stored, so that they share a commit (law 7).

What must hold: whoever has put a letter goes on only once its commit has taken place, or failed. One storing runs at a
time, in a thread; the event loop goes on reading meanwhile. All of this belongs to one event loop.
"""

import asyncio
from collections.abc import Callable, Sequence

from orchestrator.webhooks.receiving import Ended, Letter

TOGETHER = 50  # letters in one commit: bounds how long the engine's own commits wait for it


class Gathering:
    """Who has a letter stored, and waits."""

    def __init__(self, receive_all: Callable[[Sequence[Letter]], Sequence[Ended]]) -> None:
        """``receive_all`` raises nothing."""
        self._receive_all = receive_all
        self._waiting: list[tuple[Letter, asyncio.Future[Ended]]] = []
        self._storing: asyncio.Task[None] | None = None

    async def put(self, letter: Letter) -> Ended:
        """Store a letter; what became of it."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()
        self._waiting.append((letter, ended))
        if self._storing is None or self._storing.done():
            self._storing = loop.create_task(self._store())
        return await ended

    async def _store(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            ends = await asyncio.to_thread(self._receive_all, [letter for letter, _ in batch])
            for (_, future), ended in zip(batch, ends, strict=True):
                if not future.done():  # whoever waited may have been cancelled: stored it is all the same
                    future.set_result(ended)
