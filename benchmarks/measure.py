"""Rounds that alternate what is compared, so that whatever the machine does meanwhile hits both sides alike."""

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from benchmarks.database import MOVERS
from orchestrator.domain.ids import TaskId

Figure = tuple[int, float]  # operations, seconds
TURNS = 2  # slices of a round: long enough that sixteen actors are at work together for most of one
REFERENCE = "reference "  # the smallest file, measured beside a larger one in the same rounds


@dataclass
class Samples:
    """Operations per second of every kind, one figure a round."""

    rates: dict[str, list[float]] = field(default_factory=dict)

    def add(self, kind: str, rate: float) -> None:
        self.rates.setdefault(kind, []).append(rate)

    def median(self, kind: str) -> float:
        return statistics.median(self.rates[kind])

    def ratio(self, kind: str, yardstick: str) -> float:
        """Median over the rounds of the ratio within a round: both sides met the same disk then."""
        pairs = zip(self.rates[kind], self.rates[yardstick], strict=True)
        return statistics.median(one / other for one, other in pairs)


def alternate(
    kinds: Mapping[str, Callable[[], Figure]], rounds: int, turns: int, probe: Callable[[], Figure]
) -> Samples:
    """Measure each kind in every round, turn by turn in small slices; ``probe``: what the disk allows, once a round."""
    samples = Samples()
    for number in range(rounds + 1):
        totals = dict.fromkeys(kinds, (0, 0.0))
        for turn in range(turns):
            for kind in kinds if turn % 2 else reversed(kinds):
                done, spent = kinds[kind]()
                totals[kind] = (totals[kind][0] + done, totals[kind][1] + spent)
        for kind, (done, spent) in totals.items():
            if number:  # the first round warms the caches
                samples.add(kind, done / spent)
        done, spent = probe()
        samples.add("fsync", done / spent)
    return samples


def alone(transition: Callable[[TaskId], None], tasks: list[TaskId], seconds: float) -> Figure:
    """Transitions of one actor that goes from task to task, and the seconds they took."""
    done, turn, start = 0, cycle(tasks), time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        transition(next(turn))
        done += 1
    return done, spent


def together(transition: Callable[[TaskId], None], tasks: list[TaskId], seconds: float) -> Figure:
    """Transitions of sixteen actors at once, each with a task of its own, and the seconds they took."""
    counts = [0] * MOVERS
    start = time.perf_counter()

    def drive(number: int) -> None:
        while time.perf_counter() - start < seconds:
            transition(tasks[number])
            counts[number] += 1

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(MOVERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), time.perf_counter() - start


def drain(claim_and_finish: Callable[[], bool], seconds: float) -> Figure:
    """Jobs claimed and finished by one worker; shorter than ``seconds`` where the queue runs dry."""
    done, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        if not claim_and_finish():
            break
        done += 1
    return done, spent


def fsyncs(folder: Path, seconds: float) -> Figure:
    """Durable appends of 4 KiB: what the disk allows."""
    place = folder / "fsync-probe"
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    done, start = 0, time.perf_counter()
    try:
        while (spent := time.perf_counter() - start) < seconds:
            os.write(handle, b"x" * 4096)
            os.fsync(handle)
            done += 1
    finally:
        os.close(handle)
        place.unlink()
    return done, spent
