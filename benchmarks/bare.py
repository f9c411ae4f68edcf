"""The yardstick: the same statements in the same transactions, with nothing of the product around them.

One connection, set up as the product's writer is (write-ahead log, ``synchronous=FULL``, foreign keys, statement
cache, a ``utc_now`` in Python), rows as plain tuples, parameters made up without any thought.
"""

import sqlite3
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from orchestrator.db.statements import statement
from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import BELIEVABLE
from orchestrator.domain.shares import PRIORITY_STEP_S

BOOT = "bare"
CLAIMS, LANE = 7, -1  # places of jobs.claims and jobs.lane in RETURNING *


class BareSql:
    """What a person with a prepared connection would do by hand."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=10, cached_statements=256)
        self._connection.create_function("utc_now", 0, _now)
        self._connection.create_function("periods_since", 2, _periods_since)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._sql = {
            name: statement(name)
            for name in (
                "tasks.get", "leases.get", "leases.raise_epoch", "leases.acquire", "leases.epoch",
                "jobs.cancel_active", "tasks.update_stage_cas", "tasks.edge_taken", "events.append", "jobs.enqueue",
                "mail.send", "leases.release", "jobs.claim_next_job", "jobs.finish", "lanes.served",
            )
        }  # fmt: skip
        self._serial = count()

    def transition(self, task_id: TaskId) -> None:
        """Acquire in one commit; write the stage and all that belongs to it in another."""
        sql, run = self._sql, self._connection.execute
        task = {"task_id": task_id}
        unique = f"bare-{id(self)}-{next(self._serial)}"
        run("BEGIN IMMEDIATE")
        row = run(sql["tasks.get"], task).fetchone()
        run(sql["leases.get"], task).fetchone()
        stage, round_, epoch = row[8], row[9], row[-1]
        run(sql["leases.raise_epoch"], {"task_id": task_id, "epoch": epoch})
        run(
            sql["leases.acquire"],
            {"task_id": task_id, "owner": "monitor", "owner_pid": 1, "owner_boot_id": BOOT, "run_id": None,
             "stage": stage, "judged_owner": None, "judged_pid": None, "judged_boot_id": None,
             "judged_run_id": None, "judged_stage": None, "judged_acquired_at": None},
        )  # fmt: skip
        run("COMMIT")
        target = "review" if stage == "development" else "development"
        run("BEGIN IMMEDIATE")
        run(sql["leases.epoch"], task).fetchone()
        run(sql["tasks.get"], task).fetchone()
        run(sql["jobs.cancel_active"], {"task_id": task_id, "reason": "it moved"})
        run(
            sql["tasks.update_stage_cas"],
            {"task_id": task_id, "expected_stage": stage, "new_stage": target, "epoch": epoch + 1},
        )
        run(sql["leases.raise_epoch"], {"task_id": task_id, "epoch": epoch + 1})
        run(sql["tasks.edge_taken"], {"task_id": task_id, "from_stage": stage, "to_stage": target})
        run(sql["tasks.get"], task).fetchone()
        run(
            sql["events.append"],
            {"task_id": task_id, "type": "stage.changed", "actor": "monitor", "stage": stage, "to_stage": target,
             "round": round_, "epoch": epoch + 2, "transition_id": unique, "data": '{"reason": "passed"}'},
        )  # fmt: skip
        run(
            sql["jobs.enqueue"],
            {"task_id": task_id, "stage": target, "round": round_, "kind": "developer", "max_attempts": 3,
             "subject": None, "brief": "", "undo": None, "not_before": None, "agent": "unknown"},
        ).fetchone()  # fmt: skip
        run(
            sql["mail.send"],
            {
                "stable_id": unique,
                "task_id": task_id,
                "kind": "tracker.stage",
                "payload": '{"stage": "review"}',
            },
        )
        run(sql["leases.release"], {"task_id": task_id, "boot_id": BOOT, "epoch": epoch + 2})
        run("COMMIT")

    def claim_and_finish(self) -> bool:
        """Two commits; False once the queue is empty."""
        sql, run = self._sql, self._connection.execute
        run("BEGIN IMMEDIATE")
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
        row = run(sql["jobs.claim_next_job"], wanted).fetchone()
        if row is not None:
            run(sql["lanes.served"], {"lane": row[LANE]})
        run("COMMIT")
        if row is None:
            return False
        run("BEGIN IMMEDIATE")
        ended = {"job_id": row[0], "boot_id": BOOT, "claims": row[CLAIMS], "status": "done", "error": None}
        run(sql["jobs.finish"], ended)
        run("COMMIT")
        return True

    def close(self) -> None:
        self._connection.close()


def _periods_since(since: str, period_s: float) -> int:
    return int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds() // period_s)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
