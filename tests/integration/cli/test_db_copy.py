"""`orch db copy`: a ledger moves to PostgreSQL and back, with tickets that are done, and one in the middle."""

import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from orchestrator.places import STATE_ID
from tests.fixtures_orch import CONFIG, Here, Orch, ended
from tests.waiting import wait_until

SCRIPT = """\
developer:
  - when: slow
    steps:
      - wait: 3
      - write: {path: "slow.txt", content: done}
      - commit: {message: done}
  - steps:
      - write: {path: "quick.txt", content: done}
      - commit: {message: done}
"""
STORY = "SELECT work_item, stage, round FROM tasks ORDER BY id"
DOCUMENT = "INSERT INTO task_documents (task_id, name, round, subject, content, at) VALUES (1, 'log', 1, 'x', ?, 'x')"
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
EFFECTS = "SELECT name, key, state, fact FROM effects ORDER BY sequence"


@pytest.fixture
def database_kind() -> str:
    """Where it begins."""
    return "sqlite"


@pytest.fixture
def filed(here: Here) -> Here:
    """One ticket that nobody has looked at."""
    assert here("init", cwd=here.orch.checkout().folder).code == 0
    assert here("task", "add", "A ticket").code == 0
    return here


@pytest.fixture
def shop(orch: Orch) -> Orch:
    """One ticket delivered; then a service was killed while an agent worked on the next."""
    config = CONFIG.replace(
        'kind = "scripted"', f'kind = "scripted"\ncommand = ["{orch.folder}/script.yaml"]'
    )
    (orch.folder / "script.yaml").write_text(SCRIPT, encoding="utf-8")
    hand = orch.checkout(files={".orchestrator.toml": config})
    said = orch("run", "quick: привет \U0001f680", "--label", "fast", cwd=hand.folder)
    assert said.code == 0, said.err
    with orch.serving() as service:
        assert orch("task", "add", "slow", "--label", "fast").code == 0
        wait_until(lambda: at_work(orch))
        service.send_signal(signal.SIGKILL)
        service.wait()
    return orch


def at_work(orch: Orch) -> bool:
    query = (
        "SELECT 1 FROM agent_runs JOIN jobs ON jobs.id = job_id WHERE kind = 'developer' AND outcome IS NULL"
    )
    return bool(in_file(orch, query)) and bool(orch.supervisors())


def in_file(orch: Orch, query: str, name: str = "orchestrator.db") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(orch.home / name)) as connection:
        return connection.execute(query).fetchall()


def on_server(url: str, query: str) -> list[tuple[object, ...]]:
    with closing(psycopg.connect(url)) as connection:
        return connection.execute(query.encode()).fetchall()


def test_there_and_back_with_nothing_in_flight_lost(shop: Orch, empty_postgres_url: str) -> None:
    said = shop("db", "copy", empty_postgres_url, "--json")
    assert said.code == 0, said.err
    assert said.data["rows"] > 20
    assert on_server(empty_postgres_url, STORY) == in_file(shop, STORY)
    assert on_server(empty_postgres_url, EFFECTS) == in_file(shop, EFFECTS)

    shop.settings["ORCH_DATABASE_URL"] = empty_postgres_url
    with shop.serving() as service:
        wait_until(lambda: [stage for _, stage, _ in on_server(empty_postgres_url, STORY)] == ["done"] * 2)
        assert ended(service).code == 0
    runs = "SELECT count(*) FROM agent_runs JOIN jobs ON jobs.id = job_id WHERE kind = 'developer'"
    assert on_server(empty_postgres_url, runs) == [(2,)]  # adopted: nobody was paid twice
    third = shop("task", "add", "A third", "--json")
    assert third.data["work_item"] == "SHOP-3", third.err  # numbers go on

    back = shop.home / "back.db"
    said = shop("db", "copy", f"sqlite://{back}")
    assert said.code == 0, said.err
    assert in_file(shop, STORY, "back.db") == on_server(empty_postgres_url, STORY)
    shop.settings["ORCH_DATABASE_URL"] = f"sqlite://{back}"
    assert shop("task", "cancel", "SHOP-3").code == 0
    with shop.serving() as service:
        wait_until(lambda: ("SHOP-3", "cancelled", 1) in in_file(shop, STORY, "back.db"))
        assert ended(service).code == 0
    guards = "SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
    assert in_file(shop, guards, "back.db") == in_file(shop, guards)


def test_a_kept_document_of_bytes_goes_there_and_back(filed: Here, empty_postgres_url: str) -> None:
    """Bytes that are no text, a NUL, and what either database might take for an escape."""
    kept = b"healthy\xff\xfe\0\n\t\\x41\\."
    orch = filed.orch
    orch.shell(DOCUMENT, kept)
    said = orch("db", "copy", empty_postgres_url)
    assert said.code == 0, said.err
    assert on_server(empty_postgres_url, "SELECT content FROM task_documents") == [(kept,)]

    orch.settings["ORCH_DATABASE_URL"] = empty_postgres_url
    said = orch("db", "copy", f"sqlite://{orch.home / 'back.db'}")
    assert said.code == 0, said.err
    assert in_file(orch, "SELECT content FROM task_documents", "back.db") == [(kept,)]


def test_the_way_back_leads_to_the_file_that_is_used_without_a_url(
    filed: Here, empty_postgres_url: str
) -> None:
    """The one that the process which copies has locked already."""
    orch = filed.orch
    assert orch("db", "copy", empty_postgres_url).code == 0
    for file in orch.home.glob("orchestrator.db*"):
        file.rename(orch.home / f"old-{file.name}")
    orch.settings["ORCH_DATABASE_URL"] = empty_postgres_url
    said = orch("db", "copy", f"sqlite://{orch.home / 'orchestrator.db'}")
    assert said.code == 0, said.err
    del orch.settings["ORCH_DATABASE_URL"]
    assert in_file(orch, STORY) == on_server(empty_postgres_url, STORY)
    assert orch("task", "cancel", "SHOP-1").code == 0


def test_who_copies_is_at_work_in_neither(filed: Here, empty_postgres_url: str) -> None:
    """In the target nobody would take it out again, and a service elsewhere would wait for it to fall silent."""
    assert filed("db", "copy", empty_postgres_url).code == 0
    assert on_server(empty_postgres_url, "SELECT count(*) FROM processes") == [(0,)]
    assert in_file(filed.orch, "SELECT count(*) FROM processes") == [(0,)]


def test_a_copy_belongs_to_the_folder_of_the_file(filed: Here, empty_postgres_url: str) -> None:
    orch = filed.orch
    assert filed("db", "copy", empty_postgres_url).code == 0
    known = (orch.home / STATE_ID).read_text()
    assert on_server(empty_postgres_url, "SELECT state_id FROM installation") == [(known,)]
    there = {"ORCH_DATABASE_URL": empty_postgres_url}
    elsewhere = Orch(orch.home.with_name("empty"), orch.folder, there)
    assert "not the one that belongs to the database" in elsewhere("serve").err
    assert not elsewhere.home.exists()
    orch.settings |= there
    with orch.serving() as service:
        assert ended(service).code == 0
    assert orch("db", "copy", f"sqlite://{orch.home / 'back.db'}").code == 0
    assert in_file(orch, "SELECT state_id FROM installation", "back.db") == [(None,)]
    orch.settings["ORCH_DATABASE_URL"] = f"sqlite://{orch.home / 'back.db'}"
    with orch.serving() as service:
        assert ended(service).code == 0


def test_guards_are_on_again(filed: Here, empty_postgres_url: str) -> None:
    assert filed("db", "copy", empty_postgres_url).code == 0
    with closing(psycopg.connect(empty_postgres_url)) as connection, pytest.raises(psycopg.IntegrityError):
        connection.execute("UPDATE events SET data = '{}'")


def test_a_target_that_holds_something_is_left_as_it_is(filed: Here, empty_postgres_url: str) -> None:
    assert filed("db", "copy", empty_postgres_url).code == 0
    before = on_server(empty_postgres_url, "SELECT * FROM events ORDER BY id")
    said = filed("db", "copy", empty_postgres_url)
    assert said.code == 2
    assert "There is a ledger in PostgreSQL" in said.err
    assert on_server(empty_postgres_url, "SELECT * FROM events ORDER BY id") == before


@pytest.mark.parametrize(
    ("damage", "words", "repair"),
    [
        (
            "UPDATE repositories SET added_at = x'00ff'",
            "A row of repositories holds bytes where a text or a number belongs",
            "UPDATE repositories SET added_at = 'x'",
        ),
        (
            "UPDATE task_documents SET content = 'a text'",
            "A row of task_documents holds a text or a number where bytes belong",
            "UPDATE task_documents SET content = x'00ff'",
        ),
    ],
    ids=["bytes", "text"],
)
def test_a_damaged_row_is_refused_and_nothing_is_copied(
    filed: Here, empty_postgres_url: str, damage: str, words: str, repair: str
) -> None:
    filed.orch.shell(DOCUMENT, b"healthy")
    filed.orch.shell(damage)
    said = filed("db", "copy", empty_postgres_url)
    assert said.code == 3
    assert words in said.err
    assert on_server(empty_postgres_url, "SELECT count(*) FROM events") == [(0,)]
    filed.orch.shell(repair)
    assert filed("db", "copy", empty_postgres_url).code == 0


def test_not_beside_a_service(filed: Here, empty_postgres_url: str) -> None:
    with filed.orch.serving() as service:
        said = filed("db", "copy", empty_postgres_url)
        assert said.code == 2
        assert f"orch serve (pid {service.pid})" in said.err
        assert ended(service).code == 0


def test_not_beside_a_service_that_starts_while_it_copies(filed: Here, empty_postgres_url: str) -> None:
    """A server has no file that could be locked."""
    orch, back = filed.orch, f"sqlite://{filed.orch.home / 'back.db'}"
    assert orch("db", "copy", empty_postgres_url).code == 0
    orch.settings["ORCH_DATABASE_URL"] = empty_postgres_url
    with ThreadPoolExecutor(1) as pool, closing(psycopg.connect(empty_postgres_url)) as connection:
        connection.execute("LOCK TABLE task_documents")  # which no service that starts asks for
        copying = pool.submit(orch, "db", "copy", back)
        wait_until(lambda: copying.done() or on_server(empty_postgres_url, WAITING))
        with orch.serving() as service:
            connection.rollback()
            said = copying.result()
            assert said.code == 2
            assert f"(pid {service.pid}," in said.err
            assert "nothing was copied" in said.err
            assert in_file(orch, "SELECT count(*) FROM events", "back.db") == [(0,)]
            assert ended(service).code == 0
    assert orch("db", "copy", back).code == 0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("mysql://h/db", "TARGET is no address of a database"),
        ("postgresql://u:cnry-pw@h/db", "others"),
        ("sqlite:///tmp/other.db", "from server to server use pg_dump"),
    ],
)
def test_a_target_that_is_none(filed: Here, target: str, words: str) -> None:
    said = filed("db", "copy", target)
    assert said.code == 2
    assert words in said.err
    assert "cnry-pw" not in said.err


def test_where_nothing_is_yet(orch: Orch, empty_postgres_url: str) -> None:
    said = orch("db", "copy", "-", stdin=empty_postgres_url)
    assert said.code == 2
    assert "There is nothing in" in said.err
    assert not orch.home.exists()
