"""The short forms of the sweeps; what they do at length is told in ``docs/explanation/proofs.md``."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.fixtures_pipeline import gone
from tests.proofs import freeze, kill, oracle
from tests.proofs.freeze import SHORT_TERM
from tests.proofs.lives import Ending, Life, Living
from tests.proofs.templates import TESTED, make_templates
from tests.proofs.world import World
from tests.waiting import wait_until

MEMORY = Path("/dev/shm")  # a sweep is not about disks


pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Where scenarios are played."""
    folder = Path(tempfile.mkdtemp(prefix="orch-proofs-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    yield folder
    World(folder / "world").clear()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def templates(place: Path) -> Mapping[str, Path]:
    return make_templates(World(place / "world"), place / "templates")


@pytest.fixture
def world(place: Path, templates: Mapping[str, Path]) -> World:
    world = World(place / "world")
    world.come_from(templates[TESTED])
    return world


@pytest.mark.parametrize("seed", [3, 5])
def test_kill_sweep(seed: int, world: World, templates: Mapping[str, Path]) -> None:
    scenario = kill.run(seed, world, templates, kills=12)
    assert scenario.findings == []
    assert scenario.counts["kills"] >= 5


@pytest.mark.parametrize("seed", [1, 2])
def test_freeze_sweep(seed: int, world: World, templates: Mapping[str, Path]) -> None:
    scenario = freeze.run(seed, world, templates)
    assert scenario.findings == []


def test_service_that_starts_beside_a_living_one_leaves_its_work_alone(world: World) -> None:
    """And takes it over once the other has died: the check that outlived it is ended before it is repeated."""
    (world.root / "hold-checks").touch()
    there = world.root / "there"
    one = Living(world, Life(namespace="one", settings=SHORT_TERM))
    [_, pid] = wait_until(lambda: world.lines("checks.log")[before(world) :], 40)[0]
    two = Living(world, Life(script=lambda app: there.touch(), namespace="two", settings=SHORT_TERM))
    try:
        wait_until(there.exists, 40)
        assert not gone(int(pid))
        assert [row["claims"] for row in world.rows(RUNNING)] == [1]
        one.end()
        wait_until(lambda: gone(int(pid)), 40)
        wait_until(lambda: len(world.lines("checks.log")) == before(world) + 2, 40)
        (world.root / "hold-checks").unlink()
        assert two.until(lambda ending: ending is not Ending.LIVING, 60) is Ending.REST
    finally:
        one.end()
        two.end()
    assert oracle.at_the_end(world) == []


RUNNING = "SELECT * FROM jobs WHERE status = 'running' AND kind = 'candidate-ci'"


def before(world: World) -> int:
    """Runs of the checks that the template had seen."""
    return len(world.rows("SELECT id FROM jobs WHERE kind IN ('ci', 'candidate-ci') AND status = 'done'"))
