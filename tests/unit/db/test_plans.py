"""However much has ended, nothing goes through it: no statement reads a growing table from end to end.

A daemon that asks every few seconds is an idle service's only work, and a transition asks under the writer's lock.
"""

import re
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest

from orchestrator.db.postgres_text import text_of
from orchestrator.db.sqlite import connect
from orchestrator.db.statements import statement
from tests.fixtures_db import Store

GROWING = (
    "agent_runs|approvals|candidates|checks|coverage_baseline|deliveries|effects|events|inbox|job_deps|jobs|lessons|"
    "outbox|own_commits|steps|task_documents|task_edges|tasks|tracker_tickets|transition_epoch"
)
OPEN = (  # indexes that hold what is still open, and nothing else
    "effects_unsettled|inbox_open|inbox_open_in_order|jobs_one_active_per_task|jobs_queue|jobs_running|jobs_waiting|"
    "outbox_open|outbox_parked|tasks_away|tasks_one_open_per_ticket|tasks_open|tasks_open_in_order|tasks_untidied"
)
END_TO_END = re.compile(rf"SCAN ({GROWING})\b(?! USING (COVERING )?INDEX ({OPEN})\b)|PRIMARY KEY \(rowid[<>]")
PAGES = {"effects.on_show", "inbox.has_come", "tasks.list_recent"}  # from a number on, until enough are found
PEOPLE = {"inbox.unpark"}  # a person's command, and no service's
PARENTS = {
    "lanes.add",
    "restored.add_task",
    "tasks.add",
}  # its children are looked for where a key was broken


def _names() -> list[str]:
    return [
        f"{Path(family.name).stem}.{name}"
        for family in files("orchestrator.db").joinpath("sql").iterdir()
        if family.name.endswith(".sql")
        for name in re.findall(r"^-- name: (\w+)", family.read_text(encoding="utf-8"), re.MULTILINE)
    ]


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_sqlite_goes_by_what_is_open(store: Store) -> None:
    """Its plans know no sizes: they are the same for any number of rows."""
    found = {}
    with closing(connect(store.path, store.clock)) as connection:
        for name in _names():
            text = statement(name)
            given = dict.fromkeys(re.findall(r":(\w+)", text))
            plan = [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", given)]
            found[name] = [line for line in plan if END_TO_END.search(_by_table(line, text))]
    assert {name for name, lines in found.items() if lines} == PAGES | PEOPLE | PARENTS


def _by_table(line: str, text: str) -> str:
    """The line with the table's own name, where the statement calls it otherwise."""
    called = {alias: table for table, alias in re.findall(r"(?:FROM|JOIN) (\w+) AS (\w+)", text)}
    return re.sub(r"^(SCAN|SEARCH) (\w+)", lambda part: f"{part[1]} {called.get(part[2], part[2])}", line)


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_postgresql_goes_by_what_is_open(store: Store) -> None:
    """By the plans that serve all parameters, which is what prepared statements come to, where much has ended."""
    assert store.url is not None
    found = {}
    with closing(psycopg.connect(store.url, autocommit=True)) as connection:
        for filling in ENDED:
            connection.execute(filling.encode())
        for name in _names():
            explained = connection.execute(b"EXPLAIN (GENERIC_PLAN, COSTS OFF) " + _numbered(text_of(name)))
            plan = [line for (line,) in explained]
            found[name] = [
                line for line in plan if re.search(r"Seq Scan on (tasks|jobs|effects|events)\b", line)
            ]
    assert {name: lines for name, lines in found.items() if lines} == {}


def _numbered(text: bytes) -> bytes:
    """The statement with ``$1`` for its first parameter, and so on; seconds are numbers, as when they are given."""
    numbers: dict[bytes, int] = {}

    def number(part: "re.Match[bytes]") -> bytes:
        place = numbers.setdefault(part[1], len(numbers) + 1)
        return b"$%d%s" % (place, b"::float8" if part[1].endswith(b"_s") else b"")

    return re.sub(rb"%\((\w+)\)s", number, text).replace(b"%%", b"%")


_EFFECT = (
    "INSERT INTO effects "
    "(task_id, name, key, round, state, epoch, sequence, token, actor, evidence, intent_at, settled_at) "
)
_FROM = "FROM generate_series(1, 20000) n"
ENDED = (
    "SET session_replication_role = replica",  # the guards are not what is asked about
    "INSERT INTO tasks (id, work_item, repo, title, stage, tidied_at, created_at, updated_at) "
    f"SELECT n, 'OLD-' || n, 'sample', 'Say hello', 'done', utc_now(), utc_now(), utc_now() {_FROM}",
    f"INSERT INTO transition_epoch SELECT n, 3 {_FROM}",
    "INSERT INTO jobs (task_id, stage, round, kind, status, finished_at, created_at) "
    f"SELECT n, 'review', 1, 'reviewer', 'done', utc_now(), utc_now() {_FROM}",
    "INSERT INTO events (task_id, type, actor, data, at) "
    f"SELECT n, 'stage.changed', 'monitor', '{{}}', utc_now() {_FROM}",
    f"{_EFFECT} SELECT n, 'merge_pr', 'k', 1, 'applied', 9, 2 * n, 't', 'monitor', "
    f"json_build_object('repo', 'sample', 'candidate', json_build_object('sequence', n)), utc_now(), utc_now() {_FROM}",
    f"{_EFFECT} SELECT n, 'deploy_init', 'k', 1, 'applied', 9, 2 * n + 1, 't', 'monitor', "
    f"json_build_object('environment', 'production', 'sha', md5(n::text)), utc_now(), utc_now() {_FROM}",
    "ANALYZE",
)
