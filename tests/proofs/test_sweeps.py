"""The short forms of the sweeps; what they do at length is told in ``docs/explanation/proofs.md``."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fixtures_pipeline import gone
from tests.proofs import freeze, kill, oracle
from tests.proofs.freeze import SHORT_TERM
from tests.proofs.lives import Ending, Life, Living
from tests.proofs.world import World
from tests.waiting import wait_until

both = pytest.mark.parametrize("database_kind", ["sqlite", "postgres"], indirect=True)
SEEDS = ("database_kind", "seed")


@pytest.mark.parametrize(SEEDS, [("sqlite", 2), ("sqlite", 3), ("postgres", 2)], indirect=["database_kind"])
def test_kill_sweep(seed: int, tested: World, templates: Mapping[str, Path]) -> None:
    scenario = kill.run(seed, tested, templates, kills=12)
    assert scenario.findings == []
    assert scenario.counts["kills"] >= 3


@both
def test_kill_sweep_with_a_database_that_is_put_back(tested: World, templates: Mapping[str, Path]) -> None:
    scenario = kill.run(4, tested, templates, kills=12, shape=kill.RESTORED)
    assert scenario.findings == []
    assert scenario.counts["restores"]


def test_kill_sweep_of_a_service_that_delivers_itself(tested: World, templates: Mapping[str, Path]) -> None:
    scenario = kill.run(1, tested, templates, kills=12, shape=kill.SELF)
    assert scenario.findings == []


def test_kill_sweep_in_which_an_older_version_is_asked_for(
    tested: World, templates: Mapping[str, Path]
) -> None:
    scenario = kill.run(1, tested, templates, kills=12, shape=kill.OLDER)
    assert scenario.findings == []
    assert set(scenario.ended.values()) == {"done"}


@pytest.mark.parametrize(SEEDS, [("sqlite", 1), ("sqlite", 2), ("postgres", 1)], indirect=["database_kind"])
def test_freeze_sweep(seed: int, tested: World, templates: Mapping[str, Path]) -> None:
    scenario = freeze.run(seed, tested, templates)
    assert scenario.findings == []


@both
def test_service_that_starts_beside_a_living_one_leaves_its_work_alone(tested: World) -> None:
    """And takes it over once the other has died: the check that outlived it is ended before it is repeated."""
    (tested.root / "hold-checks").touch()
    there = tested.root / "there"
    one = Living(tested, Life(namespace="one", settings=SHORT_TERM))
    [_, pid] = wait_until(lambda: tested.lines("checks.log")[before(tested) :])[0]
    two = Living(tested, Life(script=lambda app: there.touch(), namespace="two", settings=SHORT_TERM))
    try:
        wait_until(there.exists)
        assert not gone(int(pid))
        assert [row["claims"] for row in tested.rows(RUNNING)] == [1]
        one.end()
        wait_until(lambda: gone(int(pid)))
        wait_until(lambda: len(tested.lines("checks.log")) == before(tested) + 2)
        (tested.root / "hold-checks").unlink()
        assert two.until(lambda ending: ending is not Ending.LIVING, 60) is Ending.REST
    finally:
        one.end()
        two.end()
    assert oracle.at_the_end(tested) == []


RUNNING = "SELECT * FROM jobs WHERE status = 'running' AND kind = 'candidate-ci'"


def before(world: World) -> int:
    """Runs of the checks that the template had seen."""
    return len(world.rows("SELECT id FROM jobs WHERE kind IN ('ci', 'candidate-ci') AND status = 'done'"))
