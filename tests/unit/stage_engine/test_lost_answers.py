"""The answer to COMMIT is lost on its way: whether the transition took place is decided by its id (law 2)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from orchestrator.db.postgres import PostgresDatabase
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_db import Store
from tests.fixtures_transition import Bench, Points
from tests.postgres_wire import Wire
from tests.waiting import wait_until

WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def database_kind() -> str:
    return "postgres"  # a server answers; a file does not


@pytest.fixture
def wire(store: Store) -> Iterator[Wire]:
    assert store.url is not None
    with Wire(store.url) as opened:
        yield opened


def test_a_commit_that_lands_after_its_answer_was_given_up_is_waited_for(store: Store, wire: Wire) -> None:
    """The engine asks while the COMMIT is still on its way: it goes on as if it had been answered, once."""
    task = Bench(store).before_the_merge()
    far = PostgresDatabase(wire.url, clock=store.clock, idle_s=0)
    bench, points = Bench(replace(store, database=far)), Points()
    engine, _ = bench.process("one", points=points)
    points.on("transition.before_commit", wire.hold_commit)
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(engine.advance_stage, task.id, Actor.MONITOR)
        wait_until(lambda: moving.done() or store.rows(WAITING))
        wire.let_go()
        assert moving.result(20) is Outcome.WORKING
    far.close()
    assert store.task(task.id).stage is Stage.DEPLOY
    told = store.rows("SELECT count(*) AS n FROM events WHERE type = 'stage.changed' AND to_stage = 'deploy'")
    assert told[0]["n"] == 1
