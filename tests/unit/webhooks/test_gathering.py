"""Letters that arrive while others are being stored share the next commit."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from orchestrator.db.inbox import NewDelivery
from orchestrator.domain.errors import OrchestratorError
from orchestrator.webhooks.fields import MalformedDelivery
from orchestrator.webhooks.gathering import READ_AT_ONCE, TOGETHER, Gathering
from orchestrator.webhooks.gitea import GiteaHandler
from orchestrator.webhooks.receiving import Ended, Letter, Opened, Received


def letters(count: int, raw: bytes = b"{}") -> list[Letter]:
    return [Letter("gitea", "push", str(n), raw) for n in range(count)]


class Held:
    """A database that takes its time."""

    def __init__(self) -> None:
        self.batches: list[list[str | None]] = []
        self.readers: set[int] = set()
        self.began, self.go_on = threading.Event(), threading.Event()

    def open(self, letter: Letter) -> Opened | OrchestratorError:
        self.readers.add(threading.get_ident())
        if letter.raw == b"no":
            return MalformedDelivery("The delivery is no JSON.")
        new = NewDelivery(letter.source, letter.kind, "key", letter.delivery_id, "{}")
        return Opened(GiteaHandler(), new, {})

    def store(self, opened: Sequence[Opened]) -> Sequence[Ended]:
        self.batches.append([one.new.delivery_id for one in opened])
        self.began.set()
        assert self.go_on.wait(60)
        return [Received(int(one.new.delivery_id or 0)) for one in opened]


def test_whoever_comes_meanwhile_shares_the_next_commit_and_gets_his_own_answer() -> None:
    held = Held()
    gathering = Gathering(held)

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
    gathering = Gathering(held)

    async def scene() -> Ended:
        gone = asyncio.create_task(gathering.put(letters(1)[0]))
        await asyncio.to_thread(held.began.wait, 60)
        gone.cancel()
        after = asyncio.create_task(gathering.put(letters(2)[1]))
        held.go_on.set()
        return await after

    assert asyncio.run(scene()) == Received(1)
    assert held.batches == [["0"], ["1"]]


def test_what_cannot_be_read_waits_for_nobody() -> None:
    held = Held()
    gathering = Gathering(held)

    async def scene() -> Ended:
        stored = asyncio.create_task(gathering.put(letters(1)[0]))
        await asyncio.to_thread(held.began.wait, 60)
        refused = await gathering.put(letters(1, b"no")[0])
        held.go_on.set()
        await stored
        return refused

    assert isinstance(asyncio.run(scene()), MalformedDelivery)


@pytest.mark.parametrize(("size", "here"), [(READ_AT_ONCE, True), (READ_AT_ONCE + 1, False)])
def test_what_takes_long_to_read_is_read_beside_the_event_loop(size: int, here: bool) -> None:
    held = Held()
    held.go_on.set()
    asyncio.run(Gathering(held).put(letters(1, b"x" * size)[0]))
    assert (held.readers == {threading.get_ident()}) is here
