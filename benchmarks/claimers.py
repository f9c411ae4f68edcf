"""Several processes that claim and finish jobs of one database at once: workers of the product, or bare connections."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Protocol

from benchmarks.database import Store
from benchmarks.measure import Figure, drain
from benchmarks.product import Product

PROCESSES = 4
CLOSE_S = 10.0


class Team:
    """Processes that wait for the word; each has its connection open already."""

    def __init__(self, store: Store, *, bare: bool) -> None:
        self._store = store
        context = multiprocessing.get_context("spawn")  # the parent has threads and connections
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(PROCESSES):
            here, there = context.Pipe()
            process = context.Process(target=_claim, args=(store, bare, there), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def claim(self, seconds: float) -> Figure:
        """Jobs that all of them together have claimed and finished, and the seconds of whoever took longest."""
        self._store.refill()
        for pipe in self._pipes:
            pipe.send(seconds)
        figures = [pipe.recv() for pipe in self._pipes]
        return sum(done for done, _ in figures), max(spent for _, spent in figures)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(CLOSE_S)


@contextmanager
def team(store: Store, *, bare: bool) -> Iterator[Team]:
    """A team for the length of the block."""
    made = Team(store, bare=bare)
    try:
        yield made
    finally:
        made.close()


class _Worker(Protocol):
    def claim_and_finish(self) -> bool: ...

    def close(self) -> None: ...


def _claim(store: Store, bare: bool, pipe: Connection) -> None:
    worker: _Worker = store.bare() if bare else Product(store.open())
    pipe.send(None)
    while (seconds := pipe.recv()) is not None:
        pipe.send(drain(worker.claim_and_finish, seconds))
    worker.close()
