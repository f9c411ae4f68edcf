"""A database that is exchanged for another under a running process: a standby is promoted, a backup restored."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest

from orchestrator.db.database import Tx
from orchestrator.db.migrate_postgres import init_postgres
from orchestrator.db.postgres import PostgresDatabase
from orchestrator.domain.errors import DatabaseError, DatabaseReplaced
from orchestrator.runtime.entropy import SeededEntropy
from tests.fixtures_orch import Orch
from tests.postgres_server import USER, PostgresServer, crash_postgres, promote_postgres, running_postgres
from tests.postgres_wire import Wire
from tests.waiting import wait_until

NAME = "ours"


@pytest.fixture
def database_kind() -> str:
    return "postgres"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of its own, that can be promoted."""
    with running_postgres(wal_level="replica") as found:
        found.sql(f"CREATE DATABASE {NAME} TEMPLATE template0")
        init_postgres(found.url(NAME), entropy=SeededEntropy())
        yield found


def write(database: PostgresDatabase) -> None:
    with database.write() as tx:
        noted(tx)


def noted(tx: Tx) -> None:
    tx.execute("events.lesson", task_id=None, source="auto", kind="kind", text="text")


def written(server: PostgresServer) -> int:
    with closing(psycopg.connect(server.url(NAME))) as connection:
        [[count]] = connection.execute("SELECT count(*) FROM lessons").fetchall()
    return int(count)


@pytest.mark.parametrize("pooling", [False, True], ids=["direct", "pooler"])
def test_nothing_is_written_to_a_standby_that_was_promoted(server: PostgresServer, pooling: bool) -> None:
    """Behind a pooler our own connection does not even break."""
    with ExitStack() as stack:
        url = server.url(NAME)
        if pooling:
            url = stack.enter_context(Wire(url, pooling=True)).url
        database = stack.enter_context(closing(PostgresDatabase(url)))
        write(database)
        promote_postgres(server)
        for _ in range(3):
            with pytest.raises(DatabaseReplaced, match="a standby was promoted"):
                write(database)
        with closing(PostgresDatabase(url)) as fresh:  # a new life takes it as it is, and compares
            write(fresh)
    assert written(server) == 2


def test_nothing_is_written_to_a_copy_under_the_same_name(server: PostgresServer) -> None:
    with closing(PostgresDatabase(server.url(NAME))) as database:
        write(database)
        server.sql(f"DROP DATABASE {NAME} WITH (FORCE)")
        server.sql(f"CREATE DATABASE {NAME} TEMPLATE template0")
        init_postgres(server.url(NAME), entropy=SeededEntropy())
        with pytest.raises(DatabaseReplaced):
            write(database)
    assert written(server) == 0


def test_a_server_that_only_crashed_is_the_same(server: PostgresServer) -> None:
    with closing(PostgresDatabase(server.url(NAME))) as database:
        write(database)
        crash_postgres(server)
        write(database)
    assert written(server) == 2


@pytest.mark.parametrize("tells", [True, False])
def test_a_user_without_rights_of_its_own(server: PostgresServer, tells: bool) -> None:
    """An ordinary user is told; where a server's owner has forbidden it, work goes on without."""
    server.sql("CREATE ROLE plain LOGIN")
    with closing(psycopg.connect(server.url(NAME), autocommit=True)) as connection:
        connection.execute(b"GRANT ALL ON ALL TABLES IN SCHEMA public TO plain")
        connection.execute(b"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO plain")
        if not tells:
            connection.execute(b"REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    with closing(PostgresDatabase(server.url(NAME).replace(f"//{USER}@", "//plain@"))) as database:
        write(database)
        promote_postgres(server)
        if tells:
            with pytest.raises(DatabaseReplaced):
                write(database)
        else:
            write(database)
    assert written(server) == (1 if tells else 2)


FAULT = """
CREATE SCHEMA ahead;
CREATE SEQUENCE ahead.asked;
CREATE FUNCTION ahead.pg_control_system(OUT system_identifier bigint) LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('ahead.asked') = 1 THEN RAISE 'no room for it' USING ERRCODE = 'out_of_memory'; END IF;
    SELECT found.system_identifier INTO system_identifier FROM pg_catalog.pg_control_system() AS found;
END $$
"""


def test_a_passing_fault_is_not_taken_for_an_answer(server: PostgresServer) -> None:
    """Neither for a server that does not tell, nor for another one."""
    with closing(psycopg.connect(server.url(NAME), autocommit=True)) as connection:
        connection.execute(FAULT)
        connection.execute(f"ALTER DATABASE {NAME} SET search_path = ahead, pg_catalog, public".encode())
        with pytest.raises(DatabaseError, match="no room for it"):
            PostgresDatabase(server.url(NAME))
        with closing(PostgresDatabase(server.url(NAME))) as database:
            write(database)
            connection.execute(b"ALTER SEQUENCE ahead.asked RESTART")
            crash_postgres(server)
            write(database)
            promote_postgres(server)
            with pytest.raises(DatabaseReplaced):
                write(database)
    assert written(server) == 2


def test_a_service_ends_and_its_next_start_goes_on(server: PostgresServer, orch: Orch) -> None:
    orch.settings["ORCH_DATABASE_URL"] = server.url(NAME)
    orch.settings["ORCH_HEARTBEAT_INTERVAL_S"] = "1"
    with orch.serving() as process:
        promote_postgres(server)
        wait_until(lambda: process.poll() is not None)
        out, err = process.communicate()
    assert process.returncode == DatabaseError.exit_code
    assert "another one than when this process began" in err
    assert "Traceback" not in err + out
    with orch.serving():
        pass
