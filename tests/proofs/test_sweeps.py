"""The short forms of the sweeps; what they do at length is told in ``docs/explanation/proofs.md``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_pipeline import gone
from tests.proofs import freeze, kill, oracle
from tests.proofs.conftest import Worlds
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


def a_second_pull_request(seen: Any) -> None:
    seen["pulls"].append(dict(seen["pulls"][0]))


def a_pull_request_is_still_open(seen: Any) -> None:
    seen["pulls"][0] |= {"merged": False, "state": "open"}


def said_twice(seen: Any) -> None:
    seen["tickets"][0]["said"].append(seen["tickets"][0]["said"][-1])


def another_state(seen: Any) -> None:
    seen["tickets"][0]["group"] = "started"


def never_taken(seen: Any) -> None:
    seen["tickets"].append(seen["tickets"][0] | {"id": "another"})


WRONG_AT_SERVERS = {
    a_second_pull_request: "pull-request: ",
    a_pull_request_is_still_open: "pull-request: ",
    said_twice: "was told",
    another_state: "its ticket shows started",
    never_taken: "was taken 0 times",
}


@pytest.mark.long
@pytest.mark.parametrize("kind", kill.AT_SERVERS)
def test_kill_sweep_over_servers_elsewhere(kind: str, file_worlds: Worlds) -> None:
    """And what the oracle reads of the servers tells it when something does not agree."""
    world = file_worlds.world
    scenario = kill.run(1, world, {}, kills=5, shape=kind)
    assert scenario.findings == []
    assert scenario.counts["kills"] >= 3
    assert set(scenario.ended) == {"S-1", "S-2"}
    note = world.servers / "seen.json"
    agrees = note.read_text()
    for wrong, told in WRONG_AT_SERVERS.items():
        seen = json.loads(agrees)
        wrong(seen)
        note.write_text(json.dumps(seen))
        assert any(told in finding for finding in oracle.at_the_end(world)), wrong.__name__


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
