"""Many fetches of one clone at once: each sees what the forge had when it was asked for, none trips over another."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.domain.errors import GitError
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Completed, SystemProcesses
from orchestrator.workspace.clone import Clone
from tests.fixtures_git import House
from tests.waiting import PATIENCE_S

ASKERS = 6


class Fetches(SystemProcesses):
    """Runs git for real and counts the fetches; ``after`` is called when one has ended, with its number."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.after: Callable[[int], None] = lambda number: None
        self._lock = threading.Lock()

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        if "fetch" not in argv:
            return super().run(argv, **options)
        with self._lock:
            self.count += 1
            number = self.count
        done = self.fetch(argv, number, options)
        self.after(number)
        return done

    def fetch(self, argv: Sequence[str], number: int, options: dict[str, Any]) -> Completed:
        return super().run(argv, **options)


class Overtaken(Fetches):
    """The first fetches find that somebody has moved main meanwhile: their last step, run with an outdated value."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def fetch(self, argv: Sequence[str], number: int, options: dict[str, Any]) -> Completed:
        if number > self._times:
            return super().fetch(argv, number, options)
        settings = argv[: list(argv).index("fetch")]
        outdated = "1" * 40
        last_step = ["update-ref", "refs/forge/heads/main", "refs/forge/heads/main", outdated]
        done = SystemProcesses().run([*settings, *last_step], **options)
        assert b"but expected" in done.stderr
        return done


def clone_with(house: House, processes: SystemProcesses) -> Clone:
    return Clone(
        Git(processes),
        house.clone.path,
        house.forge.fetch_url(),
        "main",
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )


def test_those_who_ask_while_a_fetch_runs_share_the_next_one(house: House) -> None:
    fetches, first_has_looked, go_on = Fetches(), threading.Event(), threading.Event()
    clone = clone_with(house, fetches)

    def hold(number: int) -> None:
        if number == 1:
            first_has_looked.set()
            assert go_on.wait(PATIENCE_S)

    fetches.after = hold
    barrier = threading.Barrier(ASKERS + 1)

    def ask() -> str | None:
        barrier.wait(PATIENCE_S)
        clone.fetch()
        return clone.tip("main")

    with ThreadPoolExecutor(ASKERS + 1) as pool:
        first = pool.submit(clone.fetch)
        assert first_has_looked.wait(PATIENCE_S)
        moved = house.outsider_pushes({"new.txt": "new\n"})
        asked = [pool.submit(ask) for _ in range(ASKERS)]
        barrier.wait(PATIENCE_S)
        go_on.set()
        # What was seen before they asked would not do.
        assert [one.result(60) for one in asked] == [moved] * ASKERS
        first.result(60)
    assert 2 <= fetches.count <= 3  # a third only for those who came when the second had begun already


def test_no_fetch_trips_over_another(house: House) -> None:
    clone = clone_with(house, SystemProcesses())
    for number in range(3):
        for branch in ("one", "two", "three"):
            base = house.forge.tip(branch) or house.main
            house.push(branch, house.clone.commit_files(base, {"a": b"%d" % number}, "Go on\n"))
        barrier = threading.Barrier(ASKERS)

        def fetch(barrier: threading.Barrier = barrier) -> None:
            barrier.wait(PATIENCE_S)
            clone.fetch()

        with ThreadPoolExecutor(ASKERS) as pool:
            for one in [pool.submit(fetch) for _ in range(ASKERS)]:
                one.result(60)
        assert clone.tip("three") == house.forge.tip("three")


def test_a_fetch_that_was_overtaken_is_repeated(house: House) -> None:
    moved = house.outsider_pushes({"new.txt": "new\n"})
    overtaken = Overtaken(times=2)
    clone = clone_with(house, overtaken)
    clone.fetch()
    assert clone.tip("main") == moved
    assert overtaken.count == 3


def test_a_fetch_that_is_overtaken_again_and_again_ends(house: House) -> None:
    with pytest.raises(GitError, match="but expected"):
        clone_with(house, Overtaken(times=10**6)).fetch()


def test_a_failure_is_shared_too_and_the_next_one_who_asks_tries_again(house: House) -> None:
    clone, gone = clone_with(house, SystemProcesses()), house.root / "gone"
    path = house.forge.path
    path.rename(gone)
    with ThreadPoolExecutor(ASKERS) as pool:
        for one in [pool.submit(clone.fetch) for _ in range(ASKERS)]:
            with pytest.raises(GitError, match="git fetch failed"):
                one.result(60)
    gone.rename(path)
    clone.fetch()
    assert clone.tip("main") == house.main
