"""Where proofs keep their databases and worlds: in memory where the machine has room for it, for they commit a lot."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.proofs.explorer import quiet
from tests.proofs.ledgers import FILES, Databases, Ledgers
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


class Worlds:
    """Where scenarios are played, one after the other, over one kind of database."""

    def __init__(self, place: Path, ledgers: Ledgers) -> None:
        self._place = place
        self._ledgers = ledgers
        self._made: dict[str, Path] = {}

    @property
    def world(self) -> World:
        return World(self._place / "world", self._ledgers)

    def template(self, name: str, make: Callable[[World, Path], object]) -> Path:
        """Made by the first test that asks."""
        if name not in self._made:
            make(self.world, self._place / name)
            self._made[name] = self._place / name
        return self._made[name]

    @property
    def templates(self) -> Mapping[str, Path]:
        """What sweeps begin with."""
        delivered = self.template(DELIVERED, make_delivered)
        tested = self.template(TESTED, lambda world, to: make_tested(world, delivered, to))
        return {DELIVERED: delivered, TESTED: tested}

    def at(self, template: Path) -> World:
        """A world that is as the template."""
        self.world.come_from(template)
        return self.world


@contextmanager
def _worlds(ledgers: Ledgers) -> Iterator[Worlds]:
    folder = Path(tempfile.mkdtemp(prefix="orch-worlds-", dir=MEMORY if MEMORY.is_dir() else None))
    worlds = Worlds(folder, ledgers)
    yield worlds
    worlds.world.clear()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def file_worlds() -> Iterator[Worlds]:
    with _worlds(FILES) as worlds:
        yield worlds


@pytest.fixture(scope="session")
def server_worlds(postgres_server: PostgresServer) -> Iterator[Worlds]:
    with _worlds(Databases(postgres_server)) as worlds:
        yield worlds


@pytest.fixture
def worlds(request: pytest.FixtureRequest, database_kind: str) -> Worlds:
    found: Worlds = request.getfixturevalue("file_worlds" if database_kind == "sqlite" else "server_worlds")
    return found


@pytest.fixture
def templates(worlds: Worlds) -> Mapping[str, Path]:
    return worlds.templates


@pytest.fixture
def delivered(worlds: Worlds) -> World:
    """A world in which one task is done."""
    return worlds.at(worlds.template(DELIVERED, make_delivered))


@pytest.fixture
def tested(worlds: Worlds) -> World:
    """A world in which two more are about to ask for the slots."""
    return worlds.at(worlds.templates[TESTED])
