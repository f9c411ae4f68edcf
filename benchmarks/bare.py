"""The yardstick: the same statements in the same transactions, with nothing of the product around them.

One connection, set up as the product's writer is (SQLite: write-ahead log, ``synchronous=FULL``, foreign keys,
temporary things in memory, statement cache, a ``utc_now`` in Python; PostgreSQL: every statement prepared), rows as
plain tuples, parameters made up without any thought.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.numeric import Int8Dumper

from orchestrator.db.postgres_text import text_of
from orchestrator.db.statements import statement
from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import BELIEVABLE
from orchestrator.domain.shares import PRIORITY_STEP_S

BOOT = "bare"
STATEMENTS = (
    "tasks.get", "leases.get", "leases.raise_epoch", "leases.acquire", "leases.epoch", "jobs.cancel_active",
    "tasks.update_stage_cas", "tasks.edge_taken", "events.append", "jobs.enqueue", "mail.send", "leases.release",
    "jobs.claim_next_job", "jobs.finish", "lanes.served",
)  # fmt: skip
Params = Mapping[str, object]


class Bare(ABC):
    """What a person with a prepared connection would do by hand."""

    def __init__(self) -> None:
        self._serial = count()
        self._places: dict[str, tuple[int, ...]] = {}  # of the columns that are read, by statement

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def run(self, name: str, params: Params) -> Any:
        """A cursor."""

    @abstractmethod
    def close(self) -> None: ...

    def transition(self, task_id: TaskId) -> None:
        """Acquire in one commit; write the stage and all that belongs to it in another."""
        run, task = self.run, {"task_id": task_id}
        unique = f"bare-{id(self)}-{next(self._serial)}"
        self.begin()
        stage, round_, epoch = self._row("tasks.get", task, "stage", "round", "epoch")
        run("leases.get", task).fetchone()
        run("leases.raise_epoch", {"task_id": task_id, "epoch": epoch})
        run(
            "leases.acquire",
            {"task_id": task_id, "owner": "monitor", "owner_pid": 1, "owner_boot_id": BOOT, "run_id": None,
             "stage": stage, "judged_owner": None, "judged_pid": None, "judged_boot_id": None,
             "judged_run_id": None, "judged_stage": None, "judged_acquired_at": None},
        )  # fmt: skip
        self.commit()
        target = "review" if stage == "development" else "development"
        self.begin()
        run("leases.epoch", task).fetchone()
        run("tasks.get", task).fetchone()
        run("jobs.cancel_active", {"task_id": task_id, "reason": "it moved"}).fetchall()
        run(
            "tasks.update_stage_cas",
            {"task_id": task_id, "expected_stage": stage, "new_stage": target, "epoch": epoch + 1},
        )
        run("leases.raise_epoch", {"task_id": task_id, "epoch": epoch + 1})
        run("tasks.edge_taken", {"task_id": task_id, "from_stage": stage, "to_stage": target})
        run("tasks.get", task).fetchone()
        run(
            "events.append",
            {"task_id": task_id, "type": "stage.changed", "actor": "monitor", "stage": stage, "to_stage": target,
             "round": round_, "epoch": epoch + 2, "transition_id": unique, "data": '{"reason": "passed"}'},
        )  # fmt: skip
        run(
            "jobs.enqueue",
            {"task_id": task_id, "stage": target, "round": round_, "kind": "developer", "max_attempts": 3,
             "subject": None, "brief": "", "undo": None, "not_before": None, "agent": "unknown"},
        ).fetchone()  # fmt: skip
        run(
            "mail.send",
            {
                "stable_id": unique,
                "task_id": task_id,
                "kind": "tracker.stage",
                "payload": '{"stage": "review"}',
            },
        )
        run("leases.release", {"task_id": task_id, "boot_id": BOOT, "epoch": epoch + 2})
        self.commit()

    def claim_and_finish(self) -> bool:
        """Two commits; False once the queue is empty."""
        self.begin()
        wanted = {
            "boot_id": BOOT,
            "agents_allowed": True,
            "checks_allowed": True,
            "repos": None,
            "believable": BELIEVABLE,
            "home": "",
            "limits": "{}",
            "step_s": PRIORITY_STEP_S,
        }
        job = self._row("jobs.claim_next_job", wanted, "id", "claims", "lane")
        if job is not None:
            self.run("lanes.served", {"lane": job[2]})
        self.commit()
        if job is None:
            return False
        self.begin()
        ended = {"job_id": job[0], "boot_id": BOOT, "claims": job[1], "status": "done", "error": None}
        self.run("jobs.finish", ended)
        self.commit()
        return True

    def _row(self, name: str, params: Params, *columns: str) -> Any:
        cursor = self.run(name, params)
        row: Sequence[Any] | None = cursor.fetchone()
        if row is None:
            return None
        if name not in self._places:
            names = [column[0] for column in cursor.description]
            self._places[name] = tuple(names.index(column) for column in columns)
        return tuple(row[place] for place in self._places[name])


class BareSqlite(Bare):
    """Over the standard library's module."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=10, cached_statements=256)
        self._connection.create_function("utc_now", 0, _now)
        self._connection.create_function("periods_since", 2, _periods_since)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._sql = {name: statement(name) for name in STATEMENTS}

    def begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def run(self, name: str, params: Params) -> Any:
        return self._connection.execute(self._sql[name], params)

    def close(self) -> None:
        self._connection.close()


class BarePostgres(Bare):
    """Over psycopg, each statement prepared at its first use."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._connection.adapters.register_dumper(int, Int8Dumper)  # one plan for every number
        self._sql = {name: text_of(name) for name in STATEMENTS}

    def begin(self) -> None:
        self._connection.execute(b"BEGIN", prepare=False)

    def commit(self) -> None:
        self._connection.execute(b"COMMIT", prepare=False)

    def run(self, name: str, params: Params) -> Any:
        return self._connection.execute(self._sql[name], params)

    def close(self) -> None:
        self._connection.close()


def _periods_since(since: str, period_s: float) -> int:
    return int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds() // period_s)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
