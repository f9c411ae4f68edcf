"""Owners that live: long work and a lost heartbeat are no death (cases 2 and 4)."""

import threading
from datetime import timedelta

import pytest

from orchestrator.db import leases
from orchestrator.domain.errors import DatabaseError
from orchestrator.wiring import App
from tests.fixtures_pipeline import Build
from tests.waiting import PATIENCE_S, wait_until

SHORT = {"ORCH_PROCESS_TTL_S": "5", "ORCH_HEARTBEAT_INTERVAL_S": "0.2"}


@pytest.mark.long
def test_a_long_stage_is_not_taken_for_a_dead_one(pipeline: Build) -> None:
    """Hours of work, an agent that says nothing, and every net cast again: one run, one attempt, nobody replaced."""
    line = pipeline(settings=SHORT).start()
    line.agent({"role": "developer", "until": str(line.root / "go")})
    item = line.add()
    run = line.started(item, "developer")
    for _ in range(5):
        line.clock.ahead += timedelta(hours=1)
        assert line.app.reaper.run_once() == {
            **line.app.reaper.run_once(),
            "dead_owner": 0,
            "not_finalised": 0,
        }
        line.app.reconciler.run_once()
    assert line.app.ownership.snapshot()["stale_reclaims"] == 0
    (line.root / "go").touch()
    line.done(item)
    assert [each["pid"] for each in line.agents(item) if each["role"] == "developer"] == [run["pid"]]
    assert {each["attempt"] for each in line.agents(item)} == {1}


@pytest.mark.long
def test_one_lost_heartbeat_costs_nothing(pipeline: Build) -> None:
    line = pipeline(settings=SHORT).start()
    line.agent({"role": "developer", "until": str(line.root / "go")})
    item = line.add()
    line.started(item, "developer")
    lost = []

    def fail() -> None:
        lost.append(True)
        raise DatabaseError("The database refused: database is locked.")

    line.points.on("db.before_commit", fail)
    wait_until(lambda: lost)
    before = _heartbeat(line.app)
    wait_until(lambda: _heartbeat(line.app) != before)
    (line.root / "go").touch()
    line.done(item)
    assert {each["attempt"] for each in line.agents(item)} == {1}
    assert line.alerts() == []


def _heartbeat(app: App) -> str:
    with app.database.read() as tx:
        row = leases.process(tx, app.boot_id, 5.0)
    assert row is not None
    return str(row.heartbeat_at)


@pytest.mark.parametrize("point", ["merge_pr.before_probe", "merge_pr.before_act", "merge_pr.after_act"])
def test_a_hung_owner_loses_its_task_at_the_backstop_and_wakes_up_to_nothing(
    pipeline: Build, point: str
) -> None:
    """Law 6: another thread of the service finishes what it was at; everything outside happens once."""
    line = pipeline(staging=True, production=True, settings=SHORT | {"ORCH_REAPER_INTERVAL_S": "0.2"})
    hung: list[threading.Thread] = []
    go = threading.Event()

    def hang() -> None:
        hung.append(threading.current_thread())
        assert go.wait(PATIENCE_S)

    line.points.on(point, hang)
    line.start()
    item = line.add()
    wait_until(lambda: hung)
    assert line.app.ownership.snapshot()["forced_reclaims"] == 0
    line.clock.ahead += timedelta(hours=5)
    line.clock.up += 5 * 3600.0
    line.done(item, 60)
    assert line.app.ownership.snapshot()["forced_reclaims"] == 1
    wait_until(lambda: any(item in alert and "backstop" in alert for alert in line.alerts()))

    before = line.story(item)
    go.set()
    hung[0].join(20)
    assert not hung[0].is_alive()
    assert line.story(item).effects == before.effects
    assert [event.type for event in line.events(item)] == [event.type for event in before.events]
    [merge] = line.merges()
    assert merge == line.main == line.running("staging") == line.running("production")
    assert sorted(start["env"] for start in line.journal("deploys")) == ["production", "staging"]
