"""Times: one stored form, UTC text of fixed width; where the machine stands changes no decision (case 23)."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orchestrator.db
from orchestrator.db.migrate import migrations
from orchestrator.domain.stage import Stage
from orchestrator.runtime.clock import parse_stamp, stamp, stamp_after
from tests.fixtures_db import Store

ROOT = Path(__file__).parents[3]
ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
# Across the hour that New York has twice in autumn: 05:30 and 06:30 UTC are both half past one there.
DECIDES = """
import json, sys, tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from orchestrator.db import jobs, leases
from orchestrator.db.jobs import NewJob
from orchestrator.domain.ids import BootId
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.ownership.term import Term
from orchestrator.runtime.process import ProcessIdentity, SystemProcesses
from orchestrator.transition_lease import Ownership
from tests.clock import FakeClock
from tests.fixtures_db import open_store

clock = FakeClock(datetime(2026, 11, 1, 5, 30, tzinfo=UTC))
said = []
with tempfile.TemporaryDirectory() as folder:
    store = open_store(Path(folder) / "orch.db", clock)
    with closing(store.database):
        me = BootId("me")
        with store.database.write() as tx:
            elsewhere = ProcessIdentity("another-boot", "pid:[1]", 7, 7)
            leases.register_process(tx, BootId("elsewhere"), "there", elsewhere, "serve", "")
        term = Term(clock, 1800)
        mine = Ownership(store.database, boot_id=me, processes=SystemProcesses(), clock=clock,
                         liveness=FinalizerLiveness(), term=term)
        task = store.new_task(stage=Stage.DEVELOPMENT)
        store.raw("INSERT INTO transition_lease (task_id, owner, owner_boot_id) VALUES (1, 'monitor', 'elsewhere')")
        with store.database.write() as tx:
            jobs.enqueue(tx, task, NewJob(JobKind.DEVELOPER))
            job = jobs.claim_next_job(tx, me)
            jobs.requeue(tx, job, me, error="limit", brief="", delay_s=3600, free=True)
        for minutes in range(0, 121, 15):
            term.renew(clock.boottime())
            with mine.transition(task.id, Actor.REAPER) as lease:
                got = lease is not None
            with store.database.write() as tx:
                due = jobs.claim_next_job(tx, me)
                if due is not None:
                    jobs.requeue(tx, due, me, error="limit", brief="", delay_s=3600, free=True)
            said.append((minutes, got, due is not None))
            clock.advance(900)
        rows = [tuple(row) for row in store.rows("SELECT created_at, claimed_at, not_before FROM jobs")]
        events = [tuple(row) for row in store.rows("SELECT type, at FROM events")]
print(json.dumps({"said": said, "rows": rows, "events": events}))
"""


def decide(zone: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", DECIDES],
        cwd=ROOT,
        env={**os.environ, "TZ": zone, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))  # before it: what was logged


def test_the_same_decisions_in_every_zone() -> None:
    heard = {zone: decide(zone) for zone in ZONES}
    assert heard["America/New_York"] == heard["UTC"] == heard["Asia/Kolkata"]
    said = heard["UTC"]["said"]
    assert isinstance(said, list)
    # A fresh owner is respected for its 30 minutes, a silent one is not; what is due in an hour is due in an hour.
    assert [got for _, got, _ in said] == [False, False, False, True, True, True, True, True, True]
    assert [minutes for minutes, _, due in said if due] == [60, 120]


moments = st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))
offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(moments, moments, offsets)
def test_stamps_sort_as_text(one: datetime, two: datetime, zone: timezone) -> None:
    assert (stamp(one) < stamp(two)) == (one < two)
    assert (stamp(one) == stamp(two)) == (one == two)
    assert stamp(one.astimezone(zone)) == stamp(one)
    assert len(stamp(one)) == len("2026-01-05T10:00:00.000000Z")
    assert parse_stamp(stamp(one)) == one


@pytest.mark.parametrize("text", ["2026-01-05 10:00:00", "2026-01-05T10:00:00-05:00", "", "now"], ids=repr)
def test_nothing_else_is_a_stamp(text: str) -> None:
    with pytest.raises(ValueError, match="does not match|unconverted"):
        parse_stamp(text)


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres"], indirect=True)
def test_the_database_speaks_of_the_same_time(store: Store) -> None:
    store.new_task(stage=Stage.ANALYSIS)
    assert store.rows("SELECT utc_now() AS now, utc_after(90.5) AS later")[0]["now"] == stamp(
        store.clock.utc()
    )
    assert store.rows("SELECT utc_after(90.5) AS later")[0]["later"] == stamp_after(store.clock, 90.5)
    later = [
        store.rows("SELECT utc_after(:s)", {"s": s})[0][0] for s in (-3600, -0.5, 0, 0.000001, 59.9, 86_400)
    ]
    assert all(one < two for one, two in pairwise(later))


def test_no_statement_asks_sqlite_for_the_time() -> None:
    """The seed's default of a lease's time is the one exception, and the statement that writes it overrides it."""
    asking = re.compile(r"CURRENT_(TIMESTAMP|TIME|DATE)|'now'|unixepoch|julianday", re.IGNORECASE)
    folder = Path(orchestrator.db.__file__).parent / "sql"
    for family in folder.rglob("*.sql"):
        assert not asking.search(re.sub(r"--.*", "", family.read_text(encoding="utf-8"))), family.name
    schema = re.sub(r"--.*", "", "\n".join(migrations().values()))
    assert [found.group(0) for found in asking.finditer(schema)] == ["'now'"]
