"""What ``orch doctor`` says of the database before anything is in it, and where ``orch serve`` would be refused."""

from pathlib import Path

import psycopg
import pytest

from tests.fixtures_orch import Here, Orch
from tests.postgres_server import PostgresServer

READY = "Ready to work"


def database_of(here: Here) -> tuple[str, str, str]:
    """Level, text and hint of the finding about the database."""
    [one] = [one for one in here("doctor", "--json").data["findings"] if one["about"] == "database"]
    return one["level"], one["text"], one["hint"]


def tables(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert row is not None
        return int(row[0])


def test_an_empty_database_of_a_server_is_named_and_nothing_is_made(
    here: Here, empty_postgres_url: str
) -> None:
    here.monkeypatch.setenv("ORCH_DATABASE_URL", empty_postgres_url)
    level, text, _ = database_of(here)
    assert level == "ok"
    assert text.startswith("PostgreSQL test_")
    assert "empty: `orch init` or `orch serve` makes it" in text
    assert READY in here("doctor").out
    assert tables(empty_postgres_url) == 0


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("ALTER DATABASE {name} SET synchronous_commit = off", "does not wait for the disk"),
        ("ALTER DATABASE {name} SET default_transaction_read_only = on", "takes no writes"),
    ],
)
def test_a_server_s_database_that_a_service_would_refuse_is_told_while_it_is_empty(
    here: Here, empty_postgres_url: str, setting: str, words: str
) -> None:
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute(setting.format(name=connection.info.dbname).encode())
    here.monkeypatch.setenv("ORCH_DATABASE_URL", empty_postgres_url)
    level, text, hint = database_of(here)
    assert level == "failed"
    assert words in text
    assert hint
    assert READY not in here("doctor").out
    assert here("serve").code in (2, 3)


def test_a_database_whose_encoding_cannot_hold_every_character_is_told_while_it_is_empty(
    here: Here, postgres_server: PostgresServer
) -> None:
    postgres_server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    url = postgres_server.url("latin")
    try:
        here.monkeypatch.setenv("ORCH_DATABASE_URL", url)
        level, text, _ = database_of(here)
        assert (level, "stores LATIN1" in text) == ("failed", True)
        assert here("serve").code == 3
    finally:
        postgres_server.drop(url)


def test_a_user_that_may_make_no_tables_is_told_of(
    here: Here, postgres_server: PostgresServer, empty_postgres_url: str
) -> None:
    postgres_server.sql("CREATE ROLE looker LOGIN")
    try:
        here.monkeypatch.setenv("ORCH_DATABASE_URL", empty_postgres_url.replace("orch@", "looker@"))
        level, text, hint = database_of(here)
        assert level == "failed"
        assert "No tables can be made" in text
        assert "Grant the user" in hint
        assert here("serve").code == 3
    finally:
        postgres_server.sql("DROP ROLE looker")


@pytest.mark.parametrize("command", ["doctor", "serve"])
def test_a_file_in_a_folder_that_does_not_exist_is_the_url_s_fault(
    here: Here, tmp_path: Path, command: str
) -> None:
    here.monkeypatch.setenv("ORCH_DATABASE_URL", f"sqlite://{tmp_path}/nowhere/x.db")
    said = here(command)
    assert said.code in (1, 2)
    assert f"ORCH_DATABASE_URL puts the database into {tmp_path}/nowhere" in said.out + said.err
    assert READY not in said.out


@pytest.mark.parametrize("command", ["doctor", "serve", "queue"])
def test_a_file_that_is_a_folder_is_the_url_s_fault(here: Here, tmp_path: Path, command: str) -> None:
    (tmp_path / "data").mkdir()
    here.monkeypatch.setenv("ORCH_DATABASE_URL", f"sqlite://{tmp_path}/data")
    said = here(command)
    assert said.code in (1, 2)
    assert f"ORCH_DATABASE_URL names {tmp_path}/data, which is a folder" in said.out + said.err
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("command", ["doctor", "serve"])
def test_a_state_folder_that_is_a_file_is_told_as_such(orch: Orch, command: str) -> None:
    orch.home.write_text("")
    said = orch(command)
    assert said.code in (1, 2)
    assert f"ORCH_HOME has to be a folder, and {orch.home} is none" in said.out + said.err


@pytest.mark.of_the_file
def test_before_there_is_a_file_the_doctor_says_where_it_will_be(here: Here) -> None:
    level, text, _ = database_of(here)
    assert (level, text) == (
        "ok",
        f"{here.orch.home}/orchestrator.db (not there yet: `orch init` or `orch serve` makes it)",
    )
