"""Commands and the service where ORCH_DATABASE_URL names a PostgreSQL database."""

import signal
from pathlib import Path

import psycopg
import pytest

from orchestrator.db.postgres_connection import connecting
from orchestrator.domain.errors import DatabaseError
from orchestrator.places import STATE_ID
from tests.fixtures_orch import CONFIG, Here, Orch, ended
from tests.waiting import PATIENCE_S, wait_until

PASSWORD = "pg-canary-4e1d7c"


@pytest.fixture
def shop(orch: Orch, empty_postgres_url: str) -> Orch:
    """A state whose database is a server's; nothing is in it yet. The password is one that nobody asks for."""
    orch.settings["ORCH_DATABASE_URL"] = empty_postgres_url.replace("orch@", f"orch:{PASSWORD}@")
    return orch


@pytest.fixture
def filled(shop: Orch) -> Orch:
    """A registered repository whose tasks wait for a person after the analysis."""
    files = {".orchestrator.toml": CONFIG + "[approvals]\nanalysis = true\n"}
    said = shop("init", cwd=shop.checkout(files=files).folder)
    assert said.code == 0, said.err
    return shop


def test_a_ticket_is_filed_and_looked_at_and_no_file_is_made(filled: Orch) -> None:
    filed = filled("task", "add", "Basket", "--json")
    assert (filed.code, filed.data["work_item"]) == (0, "SHOP-1"), filed.err
    assert "SHOP-1" in filled("task", "list").out
    assert filled("why", "SHOP-1").code == 0
    assert not (filled.home / "orchestrator.db").exists()


def test_the_service_serves_and_a_killed_one_is_followed_at_once(filled: Orch) -> None:
    with filled.serving() as first:
        filed = filled("task", "add", "Basket", "--json")
        assert filed.data["served"] is True
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE_S)
    with filled.serving() as second:
        assert "SHOP-1" in filled("task", "list").out
        said = ended(second)
    assert said.code == 0
    assert PASSWORD not in said.out + said.err


def test_one_that_is_refused_or_ends_leaves_the_living_one_its_address(filled: Orch) -> None:
    filled.settings["ORCH_HEARTBEAT_INTERVAL_S"] = "0.2"
    with filled.serving() as first:
        told = filled.api()
        filled.api_file.unlink()
        wait_until(filled.api_file.exists)
        filled.settings["ORCH_PORT"] = told["url"].rpartition(":")[2]
        assert filled("serve").code == 3  # the port is taken
        assert filled.api() == told
        filled.settings["ORCH_PORT"] = "0"
        with filled.serving() as second:
            assert ended(second).code == 0
        assert filled.api() == told
        assert ended(first).code == 0
    assert not filled.api_file.exists()


def test_another_state_folder_on_the_same_database_is_refused(filled: Orch) -> None:
    """What one of them has made the other would look for in vain. No lock of a folder can keep it off."""
    other = Orch(filled.home.with_name("elsewhere"), filled.folder, dict(filled.settings))
    with filled.serving() as first:
        said = other("serve")
        assert said.code == 2
        assert "not the one that belongs to the database" in said.err
        assert other("task", "add", "Basket", "--repo", "shop").code == 2
        assert other("queue").code == 0  # to look is nobody's business
        assert ended(first).code == 0
    assert other("task", "add", "Basket", "--repo", "shop").code == 2  # now it is known whose it is


def test_a_start_in_an_empty_folder_is_refused_and_leaves_no_id_there(filled: Orch) -> None:
    """The shared folder is not mounted: what was started outside would look as if it never was."""
    with filled.serving() as service:
        assert ended(service).code == 0
    known = (filled.home / STATE_ID).read_text()
    away = filled.home.rename(filled.home.with_name("not-mounted"))
    filled.home.mkdir()
    for command in (("serve",), ("run", "Basket"), ("restore", "accept", "--reason", "x")):
        said = filled(*command, cwd=filled.folder / "shop")
        assert said.code == 2
        assert "not the one that belongs to the database" in said.err
        assert "Nothing was started" in said.err
        assert list(filled.home.iterdir()) == []
    said = filled("doctor", "--json")
    found = [one for one in said.data["findings"] if one["about"] == "state folder"]
    assert (found[-1]["level"], "`orch restore folder --reason …`" in found[-1]["hint"]) == ("failed", True)
    filled.home.rmdir()
    away.rename(filled.home)
    assert "not the one" not in filled("doctor").out
    with filled.serving() as service:
        assert ended(service).code == 0
    assert (filled.home / STATE_ID).read_text() == known


def test_another_folder_takes_the_place_of_one_that_is_lost_by_a_person_s_word(filled: Orch) -> None:
    word = ("restore", "folder", "--reason", "the disk is broken", "--as", "Ann")
    other = Orch(filled.home.with_name("elsewhere"), filled.folder, dict(filled.settings))
    with filled.serving() as service:
        assert filled(*word).code == 2  # it is the one
        said = other(*word)
        assert said.code == 2
        assert f"(pid {service.pid}" in said.err
        assert ended(service).code == 0
    assert filled(*word).code == 2
    said = other(*word)
    assert said.code == 0, said.err
    assert "is the state folder now" in said.out
    assert "their repositories stay closed" in said.out
    assert filled("serve").code == 2  # it came back
    [event] = other.shell("SELECT data FROM events WHERE type = 'installation.folder'")
    assert "the disk is broken" in event["data"]
    with other.serving() as service:
        assert ended(service).code == 0


def test_before_there_is_anything(shop: Orch, empty_postgres_url: str) -> None:
    """Nothing is made by a command that only looks, or is refused; and the database is named without its secrets."""
    for command in (("task", "list"), ("watch", "SHOP-1"), ("task", "cancel", "SHOP-1")):
        said = shop(*command)
        assert said.code == 2
        assert "There is nothing in PostgreSQL" in said.err
        assert PASSWORD not in said.err
    assert "none is registered yet" in shop("doctor").out
    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() == (0,)


def test_the_doctor_names_the_database(filled: Orch) -> None:
    said = filled("doctor")
    assert "PostgreSQL test_" in said.out
    assert PASSWORD not in said.out + said.err


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "postgresql://orch:{password}@127.0.0.1:1/orch",
            "Nothing was started. Does it run",
        ),
        ("postgresql://orch:{password}@/nowhere?host={socket}", 'database "nowhere" does not exist'),
        ("postgresql://orch:{password}@/nowhere?host={socket}", "Create the database first"),
        ("postgresql://nobody:{password}@/orch?host={socket}", "it has to exist"),
        ("postgresql://orch:a/{password}?{password}=@h/orch", "ORCH_DATABASE_URL"),
        (
            "postgresql://orch:{password}@h/orch?colour=red",
            "is no URL of a PostgreSQL database: colour is no parameter of libpq",
        ),
        ("postgresql://orch:{password}@h", "expected postgresql://<user>@<host>/<database>"),
        ("postgresql://orch:a/{password}@h/orch", "percent-encoded"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "queue", "doctor", "task add x"])
def test_a_database_that_cannot_be_used(
    here: Here, empty_postgres_url: str, command: str, url: str, words: str
) -> None:
    """Said in words, without the password, and nothing is made."""
    socket = empty_postgres_url.partition("host=")[2]
    here.monkeypatch.setenv("ORCH_DATABASE_URL", url.format(password=PASSWORD, socket=socket))
    said = here(*command.split())
    assert said.code in (1, 2, 3)
    assert words in said.out + said.err
    assert PASSWORD not in said.out + said.err
    assert not Path(here.orch.home / "orchestrator.db").exists()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('FATAL:  password authentication failed for user "orch"', "Correct user or password"),
        ("fe_sendauth: no password supplied", "the file that its passfile names"),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "orch"', "pg_hba.conf decides"),
        ("Connection refused", "Does it run"),
    ],
)
def test_a_server_that_lets_nobody_in_is_told_from_one_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, said: str, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError(f"connection failed: connection to server failed: {said}")

    monkeypatch.setattr(psycopg, "connect", refuse)
    with pytest.raises(DatabaseError) as refused, connecting("postgresql://orch@h/orch"):
        pass
    assert words in refused.value.hint
