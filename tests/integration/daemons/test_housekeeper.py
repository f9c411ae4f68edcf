"""The housekeeper's pass over real repositories."""

from dataclasses import dataclass, field

import pytest

from orchestrator.daemons.housekeeper import FIRST_AFTER_S, Housekeeper
from orchestrator.db import repositories
from orchestrator.domain.errors import NotFound
from orchestrator.domain.ids import RepoName
from orchestrator.places import Folders, Place
from orchestrator.runtime import git_repack
from orchestrator.runtime.git_repack import clutter
from tests.fixtures_db import REPO, Store
from tests.fixtures_git import House


@dataclass
class OneHouse:
    """The place of one repository; others are not to be had."""

    place: Place
    asked: list[str] = field(default_factory=list)

    def of(self, repo: str) -> Place:
        self.asked.append(repo)
        if repo != self.place.repo:
            raise NotFound(f"{repo} is not here.")
        return self.place


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_repack, "PACK_LIMIT", 3)
    monkeypatch.setattr(git_repack, "LOOSE_LIMIT", 20)


@pytest.fixture
def places(house: House) -> OneHouse:
    for number in range(6):
        house.push(f"b{number}", house.clone.commit_files(house.main, {"a": b"%d" % number}, "Deliver\n"))
        house.clone.fetch()
    return OneHouse(Place(REPO, house.forge, house.clone, house.workspaces))


def test_clone_and_forge_are_repacked_but_not_at_the_start(
    store: Store, house: House, places: OneHouse
) -> None:
    before = clutter(house.forge.path)
    keeper = Housekeeper(store.database, places, Folders(house.root), house.git, store.clock)
    assert keeper.run_once() == {"repacked": 0, "pruned": 0, "failed": 0}
    assert clutter(house.forge.path) == before
    store.clock.advance(FIRST_AFTER_S)
    assert keeper.run_once() == {"repacked": 2, "pruned": 0, "failed": 0}
    assert max(clutter(house.forge.path).packs, clutter(house.clone.path).packs) <= 2
    assert keeper.run_once() == {"repacked": 0, "pruned": 0, "failed": 0}


def test_a_repository_that_fails_does_not_keep_the_others_from_their_turn(
    store: Store, house: House, places: OneHouse
) -> None:
    with store.database.write() as tx:
        repositories.add(tx, repositories.Repository(RepoName("absent"), "local", "/nowhere", "ABS"))
    keeper = Housekeeper(store.database, places, Folders(house.root), house.git, store.clock)
    store.clock.advance(FIRST_AFTER_S)
    assert keeper.run_once() == {"repacked": 2, "pruned": 0, "failed": 1}
    assert sorted(places.asked) == ["absent", REPO]
