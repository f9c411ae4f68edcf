"""Brings a PostgreSQL database to this version's schema; the numbers of its steps are those of SQLite's.

One transaction under one lock: several processes may start at once, one migrates and the others find it done. What
fails, or is killed, has changed nothing. A newer database is refused untouched.
"""

from collections.abc import Mapping

import psycopg
from psycopg.rows import DictRow

from orchestrator.db.migrate import migrations, newest
from orchestrator.db.postgres_connection import HINTS, check, connecting, database_error, server_of
from orchestrator.domain.errors import DatabaseError, SchemaError
from orchestrator.runtime.entropy import Entropy

LOCK = 0x4F524348  # "ORCH"; ends with its transaction, so that it holds behind a pooler, too
WAIT_S = 60  # for another process that is just migrating
MAY = """
SELECT current_setting('transaction_read_only') = 'on' AS readonly,
       coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS create
"""
PLACE = "Nothing was changed. Name a database of its own in ORCH_DATABASE_URL."


def init_postgres(url: str, *, entropy: Entropy, steps: Mapping[int, str] | None = None) -> int:
    """Create or migrate the schema and return its number. ``steps``: others than this version's, for tests.

    :raises SchemaError: it was written by a newer version, or the database is in use by another program.
    :raises DatabaseError: it cannot be reached or changed, or does not keep what it says.
    """
    server = server_of(url)
    with connecting(url) as connection:
        check(connection, server)
        try:
            with connection.transaction():
                return _migrate(connection, server, entropy, steps or migrations("postgres"))
        except psycopg.Error as error:
            raise database_error(error, server) from error


def _migrate(
    connection: psycopg.Connection[DictRow], server: str, entropy: Entropy, steps: Mapping[int, str]
) -> int:
    last = max(steps)
    connection.execute(f"SET LOCAL lock_timeout = '{WAIT_S}s'".encode())
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
    found = version_of(connection, server)
    _refuse_newer(found, last, server)
    for number, sql in sorted(steps.items()):
        if number > found:
            connection.execute(sql.encode(), prepare=False)
    connection.execute(
        "INSERT INTO schema_version (one, number) VALUES (1, %s) "
        "ON CONFLICT (one) DO UPDATE SET number = excluded.number",
        [last],
    )
    connection.execute(
        "INSERT INTO installation (one, installation_id, created_at) VALUES (1, %s, utc_now()) ON CONFLICT DO NOTHING",
        [entropy.token(16)],
    )
    return last


def would_open(url: str) -> int:
    """The number of the schema that is there, 0: an empty database, once all is known that :func:`init_postgres` would
    be refused for. Makes nothing.

    :raises SchemaError: it was written by a newer version, or the database is in use by another program.
    :raises DatabaseError: it cannot be reached or changed, or does not keep what it says.
    """
    server, last = server_of(url), newest()
    with connecting(url) as connection:
        check(connection, server)
        try:
            found = version_of(connection, server)
            may = connection.execute(MAY).fetchone()
        except psycopg.Error as error:
            raise database_error(error, server) from error
    _refuse_newer(found, last, server)
    if may is None or may["readonly"]:
        raise DatabaseError(f"The database ({server}) takes no writes.", hint=HINTS["25006"])
    if found < last and not may["create"]:
        raise DatabaseError(
            f"No tables can be made in the database ({server}): its user has no right to.",
            hint=HINTS["42501"],
        )
    return found


def _refuse_newer(found: int, known: int, server: str) -> None:
    if found > known:
        raise SchemaError(
            f"The database ({server}) has schema {found}; this version of orch knows {known}.",
            hint="Nothing was changed. Start the newer version, or restore a backup from before the upgrade.",
        )


def schema_of_server(url: str) -> int:
    """The number of the schema that is there; 0: an empty database.

    :raises SchemaError: what is there is not ours.
    :raises DatabaseError: it cannot be reached.
    """
    server = server_of(url)
    with connecting(url) as connection:
        try:
            return version_of(connection, server)
        except psycopg.Error as error:
            raise database_error(error, server) from error


def version_of(connection: psycopg.Connection[DictRow], server: str) -> int:
    """The number of the schema that is there; 0: an empty one.

    :raises SchemaError: what is there is not ours.
    """
    tables = {
        str(row["tablename"])
        for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    }
    if "schema_version" not in tables:
        if tables:
            raise SchemaError(f"The database ({server}) has tables, but not those of orch.", hint=PLACE)
        return 0
    row = connection.execute("SELECT number FROM schema_version").fetchone()
    if row is None:
        raise SchemaError(f"The database ({server}) does not say which schema it has.", hint=PLACE)
    return int(row["number"])
