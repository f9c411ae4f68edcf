"""Adopted runs, however many: one thread looks at them all, and few are seen to their end at a time."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.daemons.run_watch import AT_ONCE, RunWatch, Watched
from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.clock import SystemClock
from tests.waiting import PATIENCE_S, wait_until


@dataclass
class Hands:
    """The launcher and the worker: what they are asked for."""

    broken: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    unwanted: set[int] = field(default_factory=set)
    adopted: list[int] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    seen_to: list[Watched] = field(default_factory=list)
    dropped: list[Watched] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    taken: bool = False  # the jobs were taken from us

    def adopt(self, job: Any, run: Any) -> Any:
        if job.id in self.broken:
            raise OutsideError("The run folder cannot be used.")
        self.adopted.append(job.id)
        return SimpleNamespace(id=job.id)

    def has_ended(self, flight: Any) -> bool:
        if flight.id in self.broken:
            raise OutsideError("The run folder cannot be used.")
        return flight.id in self.ended

    def keep(self, flight: Any, kept_at: float | None) -> float:
        self.kept.add(flight.id)
        return 0.0

    def hand_on(self, watched: Watched, flight: Any) -> threading.Thread | None:
        self.seen_to.append(watched)
        if self.taken:
            return None
        thread = threading.Thread(target=self.go_on.wait, args=(PATIENCE_S,))
        thread.start()
        return thread


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def watch(hands: Hands) -> Iterator[RunWatch]:
    stopping = threading.Event()
    made = RunWatch(
        cast(Any, hands),
        clock=SystemClock(),
        stopping=stopping,
        wanted=lambda job: job.id not in hands.unwanted,
        hand_on=hands.hand_on,
        drop=hands.dropped.append,
    )
    yield made
    stopping.set()
    made.wake()
    hands.go_on.set()
    for thread in made.threads():
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def left(number: int, **more: Any) -> Watched:
    return Watched(cast(Any, SimpleNamespace(id=number)), cast(Any, "its run"), **more)


def test_very_many_are_all_adopted_and_kept_by_one_thread(watch: RunWatch, hands: Hands) -> None:
    before = threading.active_count()
    for number in range(3000):
        watch.add(left(number))
    wait_until(lambda: len(hands.kept) == 3000)
    assert hands.adopted == list(range(3000))
    assert threading.active_count() == before + 1


def test_so_many_at_a_time_are_seen_to_their_end(watch: RunWatch, hands: Hands) -> None:
    hands.ended = set(range(AT_ONCE + 3))
    for number in range(AT_ONCE + 4):
        watch.add(left(number))
    wait_until(lambda: AT_ONCE + 3 in hands.kept)
    assert [each.job.id for each in hands.seen_to] == list(range(AT_ONCE))
    hands.go_on.set()
    wait_until(lambda: len(hands.seen_to) == AT_ONCE + 3)


@pytest.mark.parametrize("opened", [True, False], ids=["later", "at_once"])
def test_one_whose_folder_cannot_be_used_is_dropped_and_holds_up_no_other(
    watch: RunWatch, hands: Hands, opened: bool
) -> None:
    hands.broken = {1}
    bad = left(1, flight=cast(Any, SimpleNamespace(id=1)) if opened else None)
    for each in (bad, left(2)):
        watch.add(each)
    wait_until(lambda: hands.kept == {2})
    assert hands.dropped == [bad]


@pytest.mark.parametrize("given", [True, False], ids=["opened", "not_opened"])
def test_one_that_nobody_wants_any_more_is_ended(watch: RunWatch, hands: Hands, given: bool) -> None:
    hands.unwanted = {7}
    unwanted = left(7, flight=cast(Any, SimpleNamespace(id=7)) if given else None)
    watch.add(unwanted)
    wait_until(lambda: hands.seen_to == [unwanted])
    assert unwanted.stop.is_set()


def test_what_was_taken_from_us_meanwhile_is_watched_no_more(watch: RunWatch, hands: Hands) -> None:
    hands.taken, hands.ended = True, {1}
    watch.add(left(1))
    watch.add(left(2))
    wait_until(lambda: 2 in hands.kept)
    hands.kept.clear()
    watch.wake()
    wait_until(lambda: 2 in hands.kept)
    assert len(hands.seen_to) == 1


def test_a_fault_of_ours_holds_up_no_other(watch: RunWatch, hands: Hands) -> None:
    hands.adopt = lambda job, run: 1 / 0 if job.id == 1 else SimpleNamespace(id=job.id)  # type: ignore[method-assign]
    bad = left(1)
    for each in (bad, left(2)):
        watch.add(each)
    wait_until(lambda: hands.kept == {2})
    assert hands.dropped == [bad]
