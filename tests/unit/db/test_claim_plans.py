"""What a claim costs does not depend on how much has ended nor on how much waits: no table is read from end to end."""

import json
import re
from contextlib import closing

import psycopg
import pytest

from orchestrator.db.postgres_text import text_of
from orchestrator.db.sqlite import connect
from orchestrator.db.statements import statement
from orchestrator.domain.lease import BELIEVABLE
from tests.fixtures_db import Store

CLAIM = {
    "boot_id": "me",
    "agents_allowed": True,
    "checks_allowed": True,
    "repos": json.dumps(["sample"]),
    "believable": BELIEVABLE,
    "home": "",
    "limits": json.dumps({"all": 50, "repo/sample": 50, "agent/claude": 50}),
    "step_s": 3600.0,
}
GROWING = ("jobs", "tasks", "transition_epoch")
WAITING = 10_000


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_sqlite_goes_by_indexes(store: Store) -> None:
    """Its plan knows no sizes: it is the same for any number of rows."""
    with closing(connect(store.path, store.clock)) as connection:
        rows = connection.execute("EXPLAIN QUERY PLAN " + statement("jobs.claim_next_job"), CLAIM).fetchall()
    plan = [row["detail"] for row in rows]
    whole = [
        line for line in plan if re.match(rf"SCAN ({'|'.join(GROWING)})(?! USING INDEX jobs_running)", line)
    ]
    assert whole == []
    for step in (r"lane>\?", r"lane=\? AND id>\?"):  # from lane to lane, and in a lane from its first
        assert any(
            re.search(rf"SEARCH jobs USING (COVERING )?INDEX jobs_waiting \({step}\)", line) for line in plan
        )


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("ended", [1_000, 100_000])
def test_postgresql_goes_by_indexes(store: Store, ended: int) -> None:
    """By the plan that serves all parameters, which is what a prepared statement comes to."""
    assert store.url is not None
    with closing(psycopg.connect(store.url, autocommit=True)) as connection:
        connection.execute("SET session_replication_role = replica")  # the guards are not what is measured
        for filling in (
            "INSERT INTO tasks (id, work_item, repo, title, created_at, updated_at) "
            "SELECT n, 'OLD-' || n, 'sample', 'Say hello', utc_now(), utc_now() FROM generate_series(1, {all}) n",
            "INSERT INTO transition_epoch SELECT n, 3 FROM generate_series(1, {all}) n",
            "INSERT INTO lanes (repo, stage, agent, priority) "
            "SELECT 'sample', stage, agent, 0 FROM unnest(ARRAY['analysis', 'development', 'review']) stage, "
            "unnest(ARRAY['claude', 'codex']) agent",
            "INSERT INTO jobs (task_id, stage, round, kind, status, finished_at, created_at) "
            "SELECT n, 'review', 1, 'reviewer', 'done', utc_now(), utc_now() FROM generate_series(1, {ended}) n",
            "INSERT INTO jobs (task_id, stage, round, kind, created_at, lane) "
            "SELECT n, 'review', 1, 'reviewer', utc_now(), 1 + n % 6 FROM generate_series({ended} + 1, {all}) n",
            "ANALYZE",
            "SET plan_cache_mode = force_generic_plan",
        ):
            connection.execute(filling.format(ended=ended, all=ended + WAITING).encode())
        connection.execute(
            b"PREPARE claim AS " + re.sub(rb"%\((\w+)\)s", _numbered, text_of("jobs.claim_next_job"))
        )
        given = ", ".join(_literal(value) for value in CLAIM.values())
        explained = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) EXECUTE claim ({given})".encode()
        )
        plan = [line for (line,) in explained]
    assert [line for line in plan if re.search(rf"Seq Scan on ({'|'.join(GROWING)})\b", line)] == []
    assert any("Index Scan using jobs_waiting" in line for line in plan)
    assert _most_rows(plan) < WAITING / 10


def _numbered(found: "re.Match[bytes]") -> bytes:
    return b"$%d" % (list(CLAIM).index(found[1].decode()) + 1)


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def _most_rows(plan: list[str]) -> int:
    """Of the step that went through most: what it gave or left out, over all its repetitions."""
    steps = [re.search(r"actual time=\S+ rows=([\d.]+) loops=(\d+)", line) for line in plan]
    given = [float(step[1]) * int(step[2]) for step in steps if step]
    left_out = [int(line.rpartition(" ")[2]) for line in plan if "Rows Removed" in line]
    return int(max(given + left_out))
