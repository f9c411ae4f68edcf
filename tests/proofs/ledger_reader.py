"""The database as a judge reads it: every table that a law asks about, in one snapshot, past the product's code."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row

TASKS = "SELECT id, work_item, stage, round, hold, hold_reason FROM tasks"
MOVES = "SELECT task_id, to_stage FROM events WHERE type = 'stage.changed' ORDER BY id"

Row = dict[str, Any]


@dataclass
class Ledger:
    """The database as it stands."""

    tasks: dict[int, Row]
    epochs: dict[int, int]
    effects: list[Row]
    candidates: list[Row]
    slots: dict[str, Row]
    freezes: list[Row]
    leases: list[Row]
    approvals: list[Row]
    jobs: list[Row]
    inbox: list[Row]
    baselines: list[Row]
    stories: dict[int, str]
    froze: set[int]

    def candidate(self, sha: str) -> Row | None:
        return next((row for row in self.candidates if row["sha"] == sha), None)

    def effects_of(self, task_id: int, name: str, key: str | None = None) -> list[Row]:
        return [
            e
            for e in self.effects
            if (e["task_id"], e["name"]) == (task_id, name) and key in (None, e["key"])
        ]


class LedgerReader:
    """Reads the ledger from a connection beside the product's."""

    def __init__(self, connection: Any, begin: str) -> None:
        self._connection, self._begin = connection, begin

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Of SQLite."""
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        return cls(connection, "BEGIN")

    @classmethod
    def of_server(cls, url: str) -> Self:
        """Of PostgreSQL."""
        connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)
        return cls(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def read(self) -> Ledger:
        self._connection.execute(self._begin)
        try:
            return Ledger(
                tasks={row["id"]: row for row in self._all(TASKS)},
                epochs={row["task_id"]: row["epoch"] for row in self._all("SELECT * FROM transition_epoch")},
                effects=self._all("SELECT * FROM effects ORDER BY id"),
                candidates=self._all("SELECT * FROM candidates ORDER BY sequence"),
                slots={row["name"]: row for row in self._all("SELECT * FROM slots")},
                freezes=self._all("SELECT * FROM repo_freeze"),
                leases=self._all("SELECT * FROM transition_lease"),
                approvals=self._all("SELECT * FROM approvals"),
                jobs=self._all("SELECT * FROM jobs"),
                inbox=self._all("SELECT * FROM inbox"),
                baselines=self._all("SELECT * FROM coverage_baseline ORDER BY id"),
                stories={
                    row["task_id"]: row["to_stage"]
                    for row in self._all(MOVES)
                },
                froze={row["task_id"] for row in self._all("SELECT task_id FROM events WHERE type = 'repo.frozen'")},
            )  # fmt: skip
        finally:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()

    def _all(self, query: str) -> list[Row]:
        return [dict(row) for row in self._connection.execute(query)]
