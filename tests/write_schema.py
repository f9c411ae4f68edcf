"""Writes docs/reference/schema.sql: ``./dev python -m tests.write_schema``."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from orchestrator.db.migrate import init_db, schema_of
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy

PLACE = Path(__file__).parents[1] / "docs/reference/schema.sql"
NOTE = "-- The schema on SQLite. Written by `./dev python -m tests.write_schema`; do not edit.\n\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "orch.db"
        init_db(path, clock=SystemClock(), entropy=SystemEntropy())
        with closing(sqlite3.connect(path)) as connection:
            PLACE.write_text(NOTE + schema_of(connection) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
