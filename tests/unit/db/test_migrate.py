"""Migrations: one way to a schema, in steps that survive an interruption, and never on a file that is not ours."""

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.db import migrate
from orchestrator.db.migrate import (
    APPLICATION_ID,
    apply_statement,
    init_db,
    migrations,
    schema_of,
    split_statements,
)
from orchestrator.db.sqlite import connect
from orchestrator.domain.errors import DatabaseError, SchemaError
from orchestrator.runtime.entropy import SeededEntropy
from tests.clock import FakeClock
from tests.waiting import wait_until

REFERENCE = Path(__file__).parents[3] / "docs/reference/schema.sql"
KILLED_BETWEEN = """
import os, signal, sys
from pathlib import Path
from orchestrator.db import migrate
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
statements = migrate.split_statements
def dying(sql):
    found = statements(sql)
    if "processes" not in sql: return found
    def until_half():
        yield from found[: len(found) // 2]
        os.kill(os.getpid(), signal.SIGKILL)
    return until_half()
migrate.split_statements = dying
migrate.init_db(Path(sys.argv[1]), clock=SystemClock(), entropy=SystemEntropy())
"""


def init(path: Path) -> int:
    return init_db(path, clock=FakeClock(), entropy=SeededEntropy())


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def schema_at(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return schema_of(connection)


def test_the_schema_is_the_one_on_record(tmp_path: Path) -> None:
    init(tmp_path / "orch.db")
    assert (
        schema_at(tmp_path / "orch.db") + "\n" == REFERENCE.read_text(encoding="utf-8").partition("\n\n")[2]
    ), "the schema has changed: ./dev python -m tests.write_schema"


def test_fresh_and_stepwise_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = init(tmp_path / "fresh.db")
    steps = migrations()
    for number in sorted(steps):
        known = {n: sql for n, sql in steps.items() if n <= number}
        monkeypatch.setattr(migrate, "migrations", lambda known=known: known)
        if number >= 2:  # the installation's row belongs to the second step's table
            init(tmp_path / "steps.db")
        else:
            with closing(connect(tmp_path / "steps.db", FakeClock())) as connection:
                for statement in split_statements(known[1]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute("PRAGMA user_version = 1")
        assert version_of(tmp_path / "steps.db") == number
    assert version_of(tmp_path / "fresh.db") == newest == max(steps)
    assert schema_at(tmp_path / "fresh.db") == schema_at(tmp_path / "steps.db")


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    init(path)
    with closing(sqlite3.connect(path)) as connection:
        before = connection.execute("SELECT * FROM installation").fetchall()
    init_db(path, clock=FakeClock(), entropy=SeededEntropy(99))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM installation").fetchall() == before
    assert len(before) == 1


def test_every_statement_can_be_applied_twice(tmp_path: Path) -> None:
    init(tmp_path / "orch.db")
    before = schema_at(tmp_path / "orch.db")
    with closing(connect(tmp_path / "orch.db", FakeClock())) as connection:
        for sql in migrations().values():
            for statement in split_statements(sql):
                apply_statement(connection, statement)
    assert schema_at(tmp_path / "orch.db") == before


def test_what_waits_and_runs_comes_into_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent's program is known where the job ran before; what has ended is in none."""
    path, steps = tmp_path / "orch.db", migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: {n: sql for n, sql in steps.items() if n < 16})
    init(path)
    with closing(connect(path, FakeClock())) as connection:
        connection.execute(
            "INSERT INTO repositories (name, forge, location, prefix, added_at) VALUES ('r', 'local', '/', 'R', '')"
        )
        known = (("developer", "queued"), ("developer", "running"), ("ci", "queued"), ("developer", "done"))
        for number, (kind, status) in enumerate(known, 1):
            connection.execute(
                "INSERT INTO tasks (id, work_item, repo, title, stage, priority, created_at, updated_at) "
                "VALUES (?, ?, 'r', 't', 'development', 3, utc_now(), utc_now())",
                (number, f"R-{number}"),
            )
            connection.execute(
                "INSERT INTO jobs (id, task_id, stage, round, kind, status, priority, claimed_by, finished_at, "
                "created_at) VALUES (?, ?, 'development', 1, ?, ?, 3, ?, ?, utc_now())",
                (number, number, kind, status, *(("me", None) if status == "running" else (None, None))),
            )
        for name in ("codex", "claude"):
            connection.execute(
                "INSERT INTO agent_runs (job_id, task_id, attempt, agent, run_dir, started_at) "
                "VALUES (2, 2, 1, ?, ?, utc_now())",
                (name, f"/{name}"),
            )
    monkeypatch.setattr(migrate, "migrations", lambda: steps)
    init(path)
    with closing(connect(path, FakeClock())) as connection:
        rows = connection.execute(
            "SELECT jobs.id, repo, lanes.stage, agent, lanes.priority FROM jobs LEFT JOIN lanes ON lanes.id = lane "
            "ORDER BY jobs.id"
        )
        assert [tuple(row) for row in rows] == [
            (1, "r", "development", "unknown", 3),
            (2, "r", "development", "claude", 3),
            (3, "r", "development", "", 3),
            (4, None, None, None, None),
        ]


def test_causes_are_read_off_the_reasons_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, steps = tmp_path / "orch.db", migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: {n: sql for n, sql in steps.items() if n < 9})
    init(path)
    reasons = (
        "cancelled by Ann: no",
        "given up by Ann: no",
        "done again for Ann: no",
        "restored: accepted",
        "main moved to 1",
        None,
    )
    holds = (
        ("blocked", "its pull request 3 was closed by hand"),
        ("blocked", "its pull requests"),
        (None, None),
    )
    with closing(connect(path, FakeClock())) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for number, (hold, why) in enumerate(holds, 1):
            connection.execute(
                "INSERT INTO tasks (id, work_item, repo, title, stage, hold, hold_reason, hold_since, created_at, "
                "updated_at) VALUES (?, ?, 'r', 't', 'review', ?, ?, ?, utc_now(), utc_now())",
                (number, f"R-{number}", hold, why, hold and "now"),
            )
        for number, reason in enumerate(reasons):
            state = "revoking" if reason else "intended"
            connection.execute(
                "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, intent_at, "
                "reason) VALUES (1, 'push', ?, 1, ?, 1, ?, 't', 'monitor', utc_now(), ?)",
                (str(number), state, number, reason),
            )
    monkeypatch.setattr(migrate, "migrations", lambda: steps)
    init(path)
    with closing(connect(path, FakeClock())) as connection:
        causes = [row[0] for row in connection.execute("SELECT cause FROM effects ORDER BY id")]
        held = [row[0] for row in connection.execute("SELECT hold_cause FROM tasks ORDER BY id")]
    assert causes == ["cancelled", "given-up", "again", "restored", "facts", None]
    assert held == ["pull-request", None, None]


def test_looks_after_undos_are_read_off_the_briefs_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, steps = tmp_path / "orch.db", migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: {n: sql for n, sql in steps.items() if n < 10})
    init(path)
    kinds = (("production-health", "undone:12"), ("production-health", ""), ("developer", "undone:3"))
    with closing(connect(path, FakeClock())) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for number, (kind, brief) in enumerate(kinds, 1):
            connection.execute(
                "INSERT INTO jobs (task_id, stage, round, kind, brief, created_at) "
                "VALUES (?, 'deploy', 1, ?, ?, utc_now())",
                (number, kind, brief),
            )
    monkeypatch.setattr(migrate, "migrations", lambda: steps)
    init(path)
    with closing(connect(path, FakeClock())) as connection:
        seen = [tuple(row) for row in connection.execute("SELECT undo, brief FROM jobs ORDER BY id")]
    assert seen == [(12, "after an undo"), (None, ""), (None, "undone:3")]


def test_what_was_started_in_production_under_an_earlier_version_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two repositories has started over the first: the place is where the last start is."""
    path, steps = tmp_path / "orch.db", migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: {n: sql for n, sql in steps.items() if n < 11})
    init(path)
    known = (  # repository, stage, has its merge slot, step, environment
        ("a", "deploy", True, "effect:deploy_init/production", "shared"),
        ("b", "deploy", True, "effect:deploy_init/production", "shared"),
        ("c", "deploy", False, "effect:deploy_init/production", "frozen"),
        ("d", "deploy-staging", True, "effect:deploy_init/staging", "staging"),
        ("e", "done", False, "effect:deploy_init/production", "over"),
    )
    with closing(connect(path, FakeClock())) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for number, (repo, stage, merge, step, environment) in enumerate(known, 1):
            connection.execute(
                "INSERT INTO tasks (id, work_item, repo, title, stage, created_at, updated_at) "
                "VALUES (?, ?, ?, 't', ?, utc_now(), utc_now())",
                (number, f"R-{number}", repo, stage),
            )
            if merge:
                connection.execute(
                    "INSERT INTO slots VALUES ('merge:' || ?, ?, 'task', ?, utc_now())", (repo, repo, number)
                )
            for times in (1, 2):  # a person had it started once more
                connection.execute(
                    "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, evidence, "
                    "intent_at, settled_at) VALUES (?, 'deploy_init', ?, 1, 'applied', 1, ?, 't', 'monitor', "
                    "json_object('environment', ?, 'step', ?), utc_now(), utc_now())",
                    (number, str(times), 10 * times + number, environment, step),
                )
    monkeypatch.setattr(migrate, "migrations", lambda: steps)
    init(path)
    with closing(connect(path, FakeClock())) as connection:
        seen = connection.execute(
            "SELECT name, repo, task_id FROM slots WHERE name LIKE 'environment:%'"
        ).fetchall()
    assert [tuple(row) for row in seen] == [("environment:shared", "b", 2)]


def test_a_step_that_fails_leaves_the_former_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, newest = tmp_path / "orch.db", init(tmp_path / "orch.db")
    before = schema_at(path)
    real = migrations()
    broken = {**real, newest + 1: "CREATE TABLE half (id INTEGER);\nCREATE TABLE half (id INTEGER);"}
    monkeypatch.setattr(migrate, "migrations", lambda: broken)
    with pytest.raises(DatabaseError, match="could not be brought up to date"):
        init(path)
    assert version_of(path) == newest
    assert schema_at(path) == before
    monkeypatch.setattr(
        migrate, "migrations", lambda: {**real, newest + 1: "CREATE TABLE half (id INTEGER);"}
    )
    assert init(path) == newest + 1
    assert "half" in schema_at(path)


def test_killed_inside_a_step_it_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_BETWEEN, str(path)], capture_output=True, check=False
    )
    assert ended.returncode == -9, ended.stderr
    assert version_of(path) == 1
    newest = init(path)
    init(tmp_path / "fresh.db")
    assert version_of(path) == newest
    assert schema_at(path) == schema_at(tmp_path / "fresh.db")


def test_two_starts_at_once_migrate_once(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    program = (
        "import sys; from pathlib import Path; from orchestrator.db.migrate import init_db;"
        "from orchestrator.runtime.clock import SystemClock; from orchestrator.runtime.entropy import SystemEntropy;"
        "print(init_db(Path(sys.argv[1]), clock=SystemClock(), entropy=SystemEntropy()))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    wait_until(lambda: all(child.poll() is not None for child in started))
    assert [child.communicate()[0].strip() for child in started] == [str(max(migrations()))] * 3
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM installation").fetchone()[0] == 1


def test_who_looks_while_another_makes_the_schema_sees_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the mark of before beside the number of after, which would look like a stranger's database."""
    path = tmp_path / "orch.db"
    connect(path, FakeClock()).close()  # it has a header by now, and nothing else
    made: list[int] = []

    def looking(*args: Any, **more: Any) -> sqlite3.Connection:
        connection = connect(*args, **more)

        def between(statement: str) -> None:
            if "user_version" in statement and not made:
                made.append(0)
                made[0] = init(path)

        if more.get("readonly"):
            connection.set_trace_callback(between)
        return connection

    monkeypatch.setattr(migrate, "connect", looking)
    assert init(path) == made[0]


def test_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    newest = init(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {newest + 1}")
    before = path.read_bytes()
    with pytest.raises(
        SchemaError, match=f"has schema {newest + 1}; this version of orch knows {newest}"
    ) as refusal:
        init(path)
    assert "Nothing was changed" in refusal.value.hint
    assert path.read_bytes() == before


def test_a_foreign_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="not one of orch"):
        init(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["foreign.db"]


def test_a_text_file_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("call the plumber\n" * 100, encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="cannot be read as a database") as refusal:
        init(path)
    assert "Nothing was changed" in refusal.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/orch.db", "file/orch.db", "folder"], ids=str)
def test_a_place_that_cannot_hold_a_database(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DatabaseError, match="cannot be opened") as refusal:
        init(tmp_path / place)
    assert "state folder" in refusal.value.hint


def test_a_read_only_folder_is_refused_clearly(tmp_path: Path) -> None:
    """The superuser may write anywhere, so an ordinary user tries: this one, or nobody."""
    program = (
        "import os, sys; from pathlib import Path; from orchestrator.db.migrate import init_db, migrations\n"
        "from orchestrator.domain.errors import DatabaseError\n"
        "from orchestrator.runtime.entropy import SeededEntropy; from orchestrator.runtime.clock import SystemClock\n"
        "migrations()  # whatever is imported late, for the other user may not read it\n"
        "os.chdir(sys.argv[1]); os.getuid() or os.setuid(65534)\n"
        "try: init_db(Path('orch.db'), clock=SystemClock(), entropy=SeededEntropy())\n"
        "except DatabaseError as error: print(error, error.hint)"
    )
    folder = tmp_path / "state"
    folder.mkdir(mode=0o555)
    said = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False
    )
    assert "Permission denied" in said.stdout, said.stderr
    assert "writable" in said.stdout
    assert list(folder.iterdir()) == []


def test_the_file_and_its_log_are_private(tmp_path: Path) -> None:
    init(tmp_path / "orch.db")
    with closing(connect(tmp_path / "orch.db", FakeClock())) as connection:
        connection.execute(
            "INSERT INTO lessons (source, kind, text, at) VALUES ('auto', 'k', 't', utc_now())"
        )
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()}
    assert modes == {"orch.db": 0o600, "orch.db-wal": 0o600, "orch.db-shm": 0o600}


def test_numbers_have_no_gap() -> None:
    assert sorted(migrations()) == list(range(1, len(migrations()) + 1))


def test_the_lease_table_is_the_seeds(tmp_path: Path) -> None:
    init(tmp_path / "orch.db")
    with closing(sqlite3.connect(tmp_path / "orch.db")) as connection:
        columns = [tuple(row[1:]) for row in connection.execute("PRAGMA table_info(transition_lease)")]
    assert columns == [
        ("task_id", "INTEGER", 0, None, 1),
        ("owner", "TEXT", 1, None, 0),
        ("owner_pid", "INTEGER", 0, None, 0),
        ("owner_boot_id", "TEXT", 0, None, 0),
        ("run_id", "INTEGER", 0, None, 0),
        ("stage", "TEXT", 0, None, 0),
        ("acquired_at", "TEXT", 1, "datetime('now')", 0),
    ]
