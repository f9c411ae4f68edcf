"""Where proofs keep their databases and worlds: in memory where the machine has room for it, for they commit a lot."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.proofs.explorer import quiet
from tests.proofs.memory_ledgers import FileLedger, MemoryLedger, NewLedger, ServerLedger
from tests.proofs.templates import DELIVERED, TESTED, make_delivered, make_tested
from tests.proofs.world import World

MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="orch-proofs-") as folder:
        yield Path(folder)


@pytest.fixture
def new_ledger(request: pytest.FixtureRequest, database_kind: str) -> Iterator[NewLedger]:
    """Makes databases of scenarios in memory."""
    made: list[MemoryLedger] = []

    def make() -> MemoryLedger:
        if database_kind == "sqlite":
            made.append(FileLedger(request.getfixturevalue("memory_folder") / str(len(made))))
        else:
            made.append(ServerLedger(request.getfixturevalue("postgres_server")))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


@pytest.fixture
def memory_ledger(new_ledger: NewLedger) -> MemoryLedger:
    """The database of a scenario in memory."""
    return new_ledger()


@pytest.fixture
def quietly() -> Iterator[None]:
    """Thousands of runs warn of what is meant to happen: nobody reads it."""
    with quiet():
        yield


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """Where scenarios are played, one after the other."""
    folder = Path(tempfile.mkdtemp(prefix="orch-worlds-", dir=MEMORY if MEMORY.is_dir() else None))
    yield folder
    World(folder / "world").clear()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def delivered_template(place: Path) -> Path:
    return make_delivered(World(place / "world"), place / DELIVERED)


@pytest.fixture(scope="session")
def templates(place: Path, delivered_template: Path) -> Mapping[str, Path]:
    tested = make_tested(World(place / "world"), delivered_template, place / TESTED)
    return {DELIVERED: delivered_template, TESTED: tested}


@pytest.fixture
def delivered(place: Path, delivered_template: Path) -> World:
    """A world in which one task is done."""
    return _world(place, delivered_template)


@pytest.fixture
def tested(place: Path, templates: Mapping[str, Path]) -> World:
    """A world in which two more are about to ask for the slots."""
    return _world(place, templates[TESTED])


def _world(place: Path, template: Path) -> World:
    world = World(place / "world")
    world.come_from(template)
    return world
