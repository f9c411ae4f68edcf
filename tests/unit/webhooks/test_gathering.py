"""Letters that arrive while others are being stored share the next commit."""

import asyncio
import threading
from collections.abc import Sequence

from orchestrator.webhooks.gathering import TOGETHER, Gathering
from orchestrator.webhooks.receiving import Ended, Letter, Received


def letters(count: int) -> list[Letter]:
    return [Letter("gitea", "push", str(n), b"{}") for n in range(count)]


class Held:
    """A database that takes its time."""

    def __init__(self) -> None:
        self.batches: list[list[str | None]] = []
        self.began, self.go_on = threading.Event(), threading.Event()

    def receive_all(self, batch: Sequence[Letter]) -> Sequence[Ended]:
        self.batches.append([letter.delivery_id for letter in batch])
        self.began.set()
        assert self.go_on.wait(60)
        return [Received(int(letter.delivery_id or 0)) for letter in batch]


def test_whoever_comes_meanwhile_shares_the_next_commit_and_gets_his_own_answer() -> None:
    held = Held()
    gathering = Gathering(held.receive_all)

    async def scene() -> list[Ended]:
        puts = [asyncio.create_task(gathering.put(letter)) for letter in letters(1)]
        await asyncio.to_thread(held.began.wait, 60)
        puts += [asyncio.create_task(gathering.put(letter)) for letter in letters(TOGETHER + 3)]
        while len(gathering._waiting) < TOGETHER + 3:
            await asyncio.wait(puts, timeout=0.01)
        held.go_on.set()
        return list(await asyncio.gather(*puts))

    ends = asyncio.run(scene())
    assert [len(batch) for batch in held.batches] == [1, TOGETHER, 3]
    assert ends == [Received(0), *(Received(n) for n in range(TOGETHER + 3))]


def test_one_that_waits_no_more_holds_nobody() -> None:
    held = Held()
    gathering = Gathering(held.receive_all)

    async def scene() -> Ended:
        gone = asyncio.create_task(gathering.put(letters(1)[0]))
        await asyncio.to_thread(held.began.wait, 60)
        gone.cancel()
        after = asyncio.create_task(gathering.put(letters(2)[1]))
        held.go_on.set()
        return await after

    assert asyncio.run(scene()) == Received(1)
    assert held.batches == [["0"], ["1"]]
