"""Which connection is given to whom."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg_pool import PoolClosed, PoolTimeout

from orchestrator.db.postgres_pool import Connections
from tests.waiting import PATIENCE_S


@pytest.fixture
def pool(postgres_url: str) -> Iterator[Callable[..., Connections]]:
    made: list[Connections] = []

    def make(*, most: int, wait_s: float = PATIENCE_S) -> Connections:
        made.append(
            Connections(postgres_url, name="test", most=most, wait_s=wait_s, configure=lambda _: None)
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_who_works_alone_always_gets_the_same(pool: Callable[..., Connections]) -> None:
    """Also after a busy moment that has left others."""
    connections = pool(most=3)
    busy = [connections.take() for _ in range(3)]
    for each in busy:
        connections.give_back(each)
    found = set()
    for _ in range(5):
        alone = connections.take()
        found.add(alone.info.backend_pid)
        connections.give_back(alone)
    assert found == {busy[0].info.backend_pid}


def test_nobody_waits_while_one_is_at_hand(pool: Callable[..., Connections]) -> None:
    connections = pool(most=2)
    one, two = connections.take(), connections.take()
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(connections.take) for _ in range(2)]
        connections.give_back(one)
        connections.give_back(two)
        assert {each.result(PATIENCE_S) for each in waiting} == {one, two}
    connections.give_back(one)
    connections.give_back(two)


def test_there_are_no_more_than_configured(pool: Callable[..., Connections]) -> None:
    connections = pool(most=1, wait_s=2.0)  # enough for the first one to be made
    only = connections.take()
    with pytest.raises(PoolTimeout):
        connections.take()
    connections.give_back(only)
    connections.give_back(connections.take())


def test_what_is_inside_a_transaction_is_not_kept_at_hand(pool: Callable[..., Connections]) -> None:
    connections = pool(most=1)
    left = connections.take()
    left.execute("BEGIN")
    connections.give_back(left)
    found = connections.take()
    assert found.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    connections.give_back(found)


def test_closing_closes_what_is_at_hand_and_later_what_is_in_use(pool: Callable[..., Connections]) -> None:
    connections = pool(most=2)
    used, at_hand = connections.take(), connections.take()
    connections.give_back(at_hand)
    connections.close()
    assert at_hand.closed
    connections.give_back(used)
    assert used.closed
    with pytest.raises(PoolClosed):
        connections.take()
