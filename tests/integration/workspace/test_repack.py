"""Repacking a repository in use: fewer places to look into, no object less, no writer in the way."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import WorkItem
from orchestrator.runtime import git_repack
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.folder_lock import locked
from orchestrator.runtime.git import Git
from orchestrator.runtime.git_refs import LOCK_FILE, LOCK_WAIT_S
from orchestrator.runtime.git_repack import clutter, repack
from tests.fixtures_git import Hand, House

ITEM = WorkItem("ORCH-1")
BRANCH = "orch/ORCH-1-change-it"


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_repack, "PACK_LIMIT", 3)
    monkeypatch.setattr(git_repack, "LOOSE_LIMIT", 20)
    monkeypatch.setattr(git_repack, "BUSY_WAIT_S", 0.2)


def objects(git: Git, git_dir: Path) -> set[str]:
    listed = git.text(["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], git_dir=git_dir)
    return set(listed.split())


def deliver(house: House, count: int) -> None:
    for number in range(count):
        house.push(f"b{number}", house.clone.commit_files(house.main, {"a": b"%d" % number}, "Deliver\n"))
        house.clone.fetch()


def test_many_packs_and_loose_objects_become_few_and_no_object_is_lost(house: House, git: Git) -> None:
    deliver(house, 8)
    for git_dir in (house.clone.path, house.forge.path):
        # What nothing names, loose and packed.
        loose = git.run(["hash-object", "-w", "--stdin"], git_dir=git_dir, input=b"nobody's").stdout
        packed = git.run(["hash-object", "-w", "--stdin"], git_dir=git_dir, input=b"packed").stdout
        git.run(["pack-objects", "-q", "objects/pack/pack"], git_dir=git_dir, input=packed)
        git.run(["prune-packed", "-q"], git_dir=git_dir)
        before = objects(git, git_dir)
        assert {loose.decode().strip(), packed.decode().strip()} <= before
        assert repack(git, git_dir, SystemClock())
        assert objects(git, git_dir) == before
        left = clutter(git_dir)
        assert left.loose == 0
        assert left.packs <= 2
        git.run(["fsck", "--full", "--strict"], git_dir=git_dir)
        assert not repack(git, git_dir, SystemClock())


def test_a_workspace_keeps_the_objects_that_it_borrows(house: House, git: Git) -> None:
    """Its branch stands on commits that no reference of the clone names any more."""
    deliver(house, 6)
    start = house.clone.commit_files(house.main, {"only": b"here\n"}, "Named by nobody\n")
    folder = house.workspaces.prepare(ITEM, "Change it", BRANCH, start)
    hand = Hand(folder)
    # In a pack, where a repack that asks what is reachable would drop it at once.
    named = git.text(["for-each-ref", "--format=^%(objectname)"], git_dir=house.clone.path)
    revisions = f"{start}\n{named}\n".encode()
    git.run(["pack-objects", "-q", "--revs", "objects/pack/pack"], git_dir=house.clone.path, input=revisions)
    git.run(["prune-packed", "-q"], git_dir=house.clone.path)
    hand.git("config", "user.name", "Agent")
    hand.git("config", "user.email", "agent@example.org")
    assert repack(git, house.clone.path, SystemClock())
    hand.git("fsck", "--full", "--connectivity-only")
    assert hand.git("show", "HEAD:only") == "here"
    head = hand.commit("Go on", {"src/app.py": "two\n"})
    assert house.workspaces.harvest(ITEM, start, start).head == head


def test_a_repository_with_little_in_it_is_left_alone(house: House, git: Git) -> None:
    before = sorted((house.clone.path / "objects").rglob("*"))
    assert not repack(git, house.clone.path, SystemClock())
    assert sorted((house.clone.path / "objects").rglob("*")) == before


def test_a_writer_is_never_met(house: House, git: Git) -> None:
    deliver(house, 6)
    before = clutter(house.clone.path)
    with locked(house.clone.path / LOCK_FILE, SystemClock(), shared=True, wait_s=5) as handle:
        assert handle is not None
        assert not repack(git, house.clone.path, SystemClock())
    assert clutter(house.clone.path) == before


def test_work_goes_on_beside_it(house: House, git: Git) -> None:
    ended = threading.Event()

    def keep_repacking() -> int:
        done = 0
        while not ended.is_set():
            for git_dir in (house.clone.path, house.forge.path):
                done += repack(git, git_dir, SystemClock())
        return done

    def work(name: str) -> None:
        for number in range(8):
            base = house.forge.tip(name) or house.main
            head = house.clone.commit_files(base, {"a": f"{name} {number}".encode()}, "Go on\n")
            house.push(name, head)
            house.clone.fetch()

    with ThreadPoolExecutor(3) as pool:
        keeper = pool.submit(keep_repacking)
        workers = [pool.submit(work, name) for name in ("one", "two")]
        try:
            for worker in workers:
                worker.result(120)
        finally:
            ended.set()
        assert keeper.result(60) > 0
    for git_dir in (house.clone.path, house.forge.path):
        git.run(["fsck", "--full", "--strict"], git_dir=git_dir)


def test_it_ends_in_time_and_loses_nothing(house: House, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(house, 6)
    before = objects(git, house.clone.path)
    monkeypatch.setattr(git_repack, "REPACK_S", 0.0)  # over before it has begun: however fast git is
    monkeypatch.setattr(
        git_repack, "BUSY_WAIT_S", LOCK_WAIT_S
    )  # a program of the last fetch may still have the lock
    with pytest.raises(GitError, match="was ended after"):
        repack(git, house.clone.path, SystemClock())
    assert objects(git, house.clone.path) == before
    # The lock is free again: a reference can be written at once.
    house.clone.rescue(ITEM, house.main)


def test_the_bound_is_below_what_writers_wait() -> None:
    assert git_repack.REPACK_S < LOCK_WAIT_S
