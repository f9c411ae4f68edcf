"""Repositories, here at local forges: one that is slow to open, or cannot be, is nothing to the others."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import AuthorityUnreachable, ConfigError, NotFound, RequestRefused
from orchestrator.domain.ids import RepoName
from orchestrator.forges.local_create import create_local_forge
from orchestrator.places import Folders
from orchestrator.repositories import Repositories
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Completed, SystemProcesses
from tests.fixtures_db import Store
from tests.fixtures_git import person_at
from tests.waiting import wait_until


class Slow(SystemProcesses):
    """Commands about one repository wait until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.about: str | None = None
        self.reached, self.go_on = threading.Event(), threading.Event()

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        if self.about is not None and f"/{self.about}" in f"{argv} {more.get('cwd')}":
            self.reached.set()
            assert self.go_on.wait(60)
        return super().run(argv, **more)


@dataclass
class All:
    repositories: Repositories
    processes: Slow
    home: Path

    @contextmanager
    def slow(self, name: str) -> Iterator[list[object]]:
        """Somebody opens a repository, which takes as long as the block; gives what it has got."""
        got: list[object] = []
        self.processes.about = name
        opening = threading.Thread(target=lambda: got.append(self.repositories.of(name)))
        opening.start()
        try:
            wait_until(self.processes.reached.is_set, 60)
            yield got
        finally:
            self.processes.go_on.set()
            opening.join(60)
            assert not opening.is_alive()


@pytest.fixture
def everything(store: Store, tmp_path: Path) -> All:
    processes, home = Slow(), tmp_path / "home"
    home.mkdir()
    known = Repositories(
        store.database,
        Folders(home),
        Git(processes),
        servers=(),
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )
    for name, prefix in (("one", "O"), ("two", "T")):
        person = person_at(tmp_path / name, {"a": name})
        known.register(person.folder, name=name, prefix=prefix)
    return All(known, processes, home)


def test_one_that_is_slow_to_open_holds_up_no_other(everything: All) -> None:
    with everything.slow("one") as got:
        others: list[object] = []
        asking = threading.Thread(target=lambda: others.append(everything.repositories.of("two").repo))
        asking.start()
        asking.join(30)
        assert others == ["two"]
        assert got == []
    assert got == [everything.repositories.of("one")]


def test_what_cannot_be_opened_is_said_and_opened_when_it_can_be(everything: All) -> None:
    forge = everything.home / "forges" / "one.git"
    forge.rename(forge.with_suffix(".away"))
    with pytest.raises(AuthorityUnreachable, match="one cannot be opened"):
        everything.repositories.of("one")
    forge.with_suffix(".away").rename(forge)
    assert everything.repositories.of("one").repo == "one"


def test_names_and_prefixes_are_taken_once(everything: All, tmp_path: Path) -> None:
    known = everything.repositories
    assert known.register(tmp_path / "two", name="one", prefix="X").prefix == "O"
    with pytest.raises(RequestRefused, match="numbers another"):
        known.register(tmp_path / "two", name="three", prefix="T")
    with pytest.raises(NotFound):
        known.of("three")


HOSTILE = ["", ".", "..", "../../out", "/tmp/out", "a/b", "a\0b", "a b", "-a", "\u202ea", "\udcff", "x" * 62]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        *((name, "X") for name in [*HOSTILE, "One"]),
        *(("three", prefix) for prefix in [*HOSTILE, "x", "X-1", "X" * 17]),
    ],
)
def test_no_name_leads_out_of_the_state_folder_whoever_gives_it(
    everything: All, tmp_path: Path, name: str, prefix: str
) -> None:
    before = sorted(tmp_path.rglob("*.git"))
    with pytest.raises(ConfigError, match="nothing was registered"):
        everything.repositories.register(tmp_path / "two", name=name, prefix=prefix)
    assert sorted(tmp_path.rglob("*.git")) == before


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b", "nowhere"], ids=range(3))
def test_what_is_no_folder_is_refused(everything: All, path: str) -> None:
    with pytest.raises(ConfigError):
        everything.repositories.register(Path(path), name="three", prefix="X")


def test_a_forge_that_was_left_behind_is_taken_for_its_own_repository_alone(
    everything: All, store: Store, tmp_path: Path
) -> None:
    """Somebody was interrupted, or the disk was full, between the forge and its registration."""
    left = everything.home / "forges" / "three.git"
    person = person_at(tmp_path / "three", {"a": "three"})
    create_local_forge(
        Git(SystemProcesses()),
        left,
        RepoName("three"),
        source=person.folder,
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )
    with pytest.raises(ConfigError, match="another repository"):
        everything.repositories.register(tmp_path / "two", name="three", prefix="X")
    with pytest.raises(ConfigError):
        everything.repositories.register(tmp_path / "nowhere", name="three", prefix="X")
    with pytest.raises(NotFound):
        everything.repositories.of("three")
    person.commit("Later", {"b": "1"})
    assert everything.repositories.register(person.folder, name="three", prefix="X").location == str(left)
