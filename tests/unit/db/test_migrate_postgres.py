"""Migrations on PostgreSQL, and that both databases hold the same: tables, columns, keys, indexes, guards, by name."""

import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.db.migrate import init_db, migrations
from orchestrator.db.migrate_postgres import init_postgres
from orchestrator.domain.errors import DatabaseError, SchemaError
from orchestrator.domain.stage import Stage
from orchestrator.runtime.entropy import SeededEntropy
from tests.clock import FakeClock

NEWEST = max(migrations("postgres"))
STARTED = '{"environment": "shared", "step": "effect:deploy_init/production"}'
TYPES = {"INTEGER": "bigint", "TEXT": "text", "REAL": "double precision", "BLOB": "bytea"}
# SQLite keeps its schema's number in the file's header, and has one writer at a time.
ONLY_ON_POSTGRES = {"schema_version", "a_task_at_a_time", "a_repository_at_a_time"}
LEASE_DEFAULT = ("transition_lease", "acquired_at")  # "now" is another function there

COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable = 'NO', column_default, is_identity = 'YES'
FROM information_schema.columns WHERE table_schema = 'public'
"""
KEYS = """
SELECT contype, relname, conkey::int[], (SELECT relname FROM pg_class WHERE oid = confrelid),
       ARRAY(SELECT attname::text FROM unnest(conkey) WITH ORDINALITY AS k (number, place)
             JOIN pg_attribute ON attrelid = conrelid AND attnum = number ORDER BY place)
FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
WHERE connamespace = 'public'::regnamespace AND contype IN ('p', 'u', 'f')
"""
CHECKS = """
SELECT relname, count(*) FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
WHERE connamespace = 'public'::regnamespace AND contype = 'c' GROUP BY 1
"""
INDEXES = """
SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""
TRIGGERS = """
SELECT relname, tgname, pg_get_triggerdef(pg_trigger.oid) FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE NOT tgisinternal
"""

Ask = Callable[[str], list[tuple[Any, ...]]]


def init(url: str, **how: Any) -> int:
    return init_postgres(url, entropy=SeededEntropy(), **how)


def ask(url: str, question: str) -> list[tuple[Any, ...]]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        return connection.execute(question.encode()).fetchall()


def tables(url: str) -> list[str]:
    return [name for (name,) in ask(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]


@pytest.fixture
def postgres(postgres_url: str) -> Ask:
    return lambda question: [
        row for row in ask(postgres_url, question) if not ONLY_ON_POSTGRES & {*map(str, row)}
    ]


@pytest.fixture
def sqlite(tmp_path: Path) -> Ask:
    path = tmp_path / "orch.db"
    init_db(path, clock=FakeClock(), entropy=SeededEntropy())

    def of(question: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(question).fetchall()

    return of


# --- the same on both -------------------------------------------------------------------------------------------------

MASTER = "SELECT tbl_name, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type = '{}'"


def test_both_have_the_same_number() -> None:
    """A step of one is a step of the other: the numbers are compared when a database is moved or upgraded."""
    assert max(migrations()) == NEWEST


def test_tables_and_columns(postgres: Ask, sqlite: Ask) -> None:
    here = {}
    for table, _, _ in sqlite(MASTER.format("table")):
        for _, name, kind, filled, default, key in sqlite(f"PRAGMA table_info({table})"):
            number = kind == "INTEGER" and key == 1 and name == "id"
            here[table, name] = (TYPES[kind], bool(filled or key), default, number)
    there = {
        (table, name): (kind, filled, default and str(default).partition("::")[0], number)
        for table, name, kind, filled, default, number in postgres(COLUMNS)
    }
    assert here.pop(LEASE_DEFAULT)[:2] == there.pop(LEASE_DEFAULT)[:2]
    assert there == here


def test_keys(postgres: Ask, sqlite: Ask) -> None:
    here: Counter[tuple[str, str, str, tuple[str, ...]]] = Counter()
    for table, _, _ in sqlite(MASTER.format("table")):
        columns = [row for row in sqlite(f"PRAGMA table_info({table})") if row[5]]
        here["p", table, "", tuple(row[1] for row in sorted(columns, key=lambda row: row[5]))] += 1
        for _, index, unique, origin, _ in sqlite(f"PRAGMA index_list({table})"):
            if unique and origin == "u":
                here["u", table, "", tuple(row[2] for row in sqlite(f"PRAGMA index_info({index})"))] += 1
        for row in sqlite(f"PRAGMA foreign_key_list({table})"):
            here["f", table, row[2], (row[3],)] += 1
    there = Counter(
        (kind, table, other or "", tuple(columns)) for kind, table, _, other, columns in postgres(KEYS)
    )
    assert there == here


def test_as_many_checks(postgres: Ask, sqlite: Ask) -> None:
    here = {
        table: len(re.findall(r"\bCHECK\s*\(", re.sub(r"--.*", "", sql)))
        for table, _, sql in sqlite(MASTER.format("table"))
    }
    assert dict(postgres(CHECKS)) == {table: count for table, count in here.items() if count}


def what_is_indexed(definition: str) -> tuple[bool, list[str], bool]:
    """Columns, and paths of expressions; how each of the two writes a type is left out."""
    what, where, _ = " ".join(definition.split()).partition(" WHERE ")
    columns = re.search(r"ON [\w.]+(?: USING btree)? \((.*)\)$", what)
    assert columns is not None
    plain = re.sub(r"::\w+|CAST|AS (TEXT|BIGINT)", "", columns[1])
    return "UNIQUE" in what, re.findall(r"[\w$.]+", plain), bool(where)


def test_indexes(postgres: Ask, sqlite: Ask) -> None:
    here = {(table, name): what_is_indexed(sql) for table, name, sql in sqlite(MASTER.format("index"))}
    assert {(table, name): what_is_indexed(sql) for table, name, sql in postgres(INDEXES)} == here


def when(definition: str) -> str:
    found = re.search(r"(BEFORE|AFTER) (INSERT|UPDATE(?: OF \w+)?|DELETE)", definition)
    assert found is not None
    return found[0]


def test_guards(postgres: Ask, sqlite: Ask) -> None:
    here = {(table, name): when(sql) for table, name, sql in sqlite(MASTER.format("trigger"))}
    assert {(table, name): when(sql) for table, name, sql in postgres(TRIGGERS)} == here


def test_every_exception_above_is_one(postgres_url: str) -> None:
    there = set(tables(postgres_url)) | {name for _, name, _ in ask(postgres_url, TRIGGERS)}
    assert there >= ONLY_ON_POSTGRES


# --- steps ------------------------------------------------------------------------------------------------------------


def test_a_second_start_changes_nothing(empty_postgres_url: str) -> None:
    assert init(empty_postgres_url) == NEWEST
    before = ask(empty_postgres_url, "SELECT * FROM installation")
    assert init_postgres(empty_postgres_url, entropy=SeededEntropy(99)) == NEWEST
    assert ask(empty_postgres_url, "SELECT * FROM installation") == before
    assert len(before) == 1


def test_four_starts_at_once_migrate_once(empty_postgres_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: init(empty_postgres_url), range(4))) == [NEWEST] * 4
    assert len(ask(empty_postgres_url, "SELECT * FROM installation")) == 1


def test_a_step_that_fails_leaves_the_former_schema(postgres_url: str) -> None:
    before = tables(postgres_url)
    half = {
        **migrations("postgres"),
        NEWEST + 1: "CREATE TABLE half (id BIGINT); CREATE TABLE half (id BIGINT);",
    }
    with pytest.raises(DatabaseError, match=r'refused: relation "half" already exists'):
        init(postgres_url, steps=half)
    assert tables(postgres_url) == before
    assert init(postgres_url) == NEWEST


def test_one_step_after_the_other(empty_postgres_url: str) -> None:
    init(empty_postgres_url)
    further = {**migrations("postgres"), NEWEST + 1: "CREATE TABLE further (id BIGINT)"}
    assert init(empty_postgres_url, steps=further) == NEWEST + 1
    assert "further" in tables(empty_postgres_url)
    with pytest.raises(SchemaError, match=f"has schema {NEWEST + 1}; this version of orch knows {NEWEST}"):
        init(empty_postgres_url)
    assert "further" in tables(empty_postgres_url)


def test_what_is_there_goes_through_every_step(empty_postgres_url: str) -> None:
    """A task in each stage, with a start of every state; two repositories have started in the same production."""
    steps = migrations("postgres")
    first = min(steps)
    assert init(empty_postgres_url, steps={first: steps[first]}) == first
    states = ("applied", "in_doubt", "revoking", "intended", "revoked")
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as connection:
        for number, stage in enumerate(Stage, 1):
            repo = f"r{number}"
            connection.execute(
                "INSERT INTO repositories VALUES (%s, 'local', '/x', %s, 2, utc_now())",
                [repo, f"R{number}"],
            )
            connection.execute(
                "INSERT INTO tasks (id, work_item, repo, title, stage, created_at, updated_at) "
                "VALUES (%s, %s, %s, 't', %s, utc_now(), utc_now())",
                [number, f"R{number}-1", repo, stage],
            )
            connection.execute("INSERT INTO transition_epoch VALUES (%s, 1)", [number])
            connection.execute(
                "INSERT INTO slots VALUES (%s, %s, 'task', %s, utc_now())", [f"merge:{repo}", repo, number]
            )
            connection.execute(
                "INSERT INTO jobs (id, task_id, stage, round, kind, created_at) "
                "VALUES (%s, %s, %s, 1, 'developer', utc_now())",
                [number, number, stage],
            )
            for place, state in enumerate(states, 1):
                connection.execute(
                    "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, evidence, "
                    "intent_at, settled_at) VALUES (%s, 'deploy_init', %s, 1, %s, 1, %s, 't', 'monitor', %s, "
                    "utc_now(), CASE WHEN %s IN ('applied', 'revoked') THEN utc_now() END)",
                    [number, str(place), state, 10 * number + place, STARTED, state],
                )
        connection.execute(
            "INSERT INTO agent_runs (job_id, task_id, attempt, agent, run_dir, started_at) "
            "VALUES (1, 1, 1, 'codex', '/runs/1', utc_now())"
        )
    assert init(empty_postgres_url) == NEWEST
    stages = list(Stage)
    agents = ask(
        empty_postgres_url,
        "SELECT agent, count(*) FROM lanes JOIN jobs ON lane = lanes.id GROUP BY 1 ORDER BY 1",
    )
    assert agents == [("codex", 1), ("unknown", len(stages) - 1)]
    places = ask(empty_postgres_url, "SELECT name, task_id FROM slots WHERE name LIKE 'environment:%'")
    assert places == [("environment:shared", stages.index(Stage.DEPLOY) + 1)]


def test_a_foreign_database_is_refused_untouched(empty_postgres_url: str) -> None:
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE TABLE theirs (id BIGINT)")
    with pytest.raises(SchemaError, match="not those of orch"):
        init(empty_postgres_url)
    assert tables(empty_postgres_url) == ["theirs"]


def test_a_user_without_rights_is_told_what_it_lacks(empty_postgres_url: str) -> None:
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE ROLE guest LOGIN")
    with pytest.raises(DatabaseError, match="permission denied") as refused:
        init(empty_postgres_url.replace("orch@", "guest@"))
    assert "Grant the user" in refused.value.hint
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as connection:
        connection.execute("DROP ROLE guest")


def test_numbers_have_no_gap() -> None:
    steps = migrations("postgres")
    assert sorted(steps) == list(range(min(steps), NEWEST + 1))
