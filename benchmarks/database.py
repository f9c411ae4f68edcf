"""Databases with many finished tasks behind a few live ones: what is in them, whatever they lie in.

They are built once per size and kept. A database belongs to one schema: its name carries the schema's fingerprint, and
it is complete iff it has its final name.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from benchmarks.bare import Bare
from orchestrator.db import jobs, repositories, tasks
from orchestrator.db.database import Database
from orchestrator.db.jobs import NewJob
from orchestrator.db.migrate import migrations
from orchestrator.db.repositories import Repository
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Ticket

REPO = RepoName("sample")
MOVERS = 16  # live tasks whose stage is written; one for each thread
WAITERS = 1000  # live tasks with a queued job each: what claiming eats
BATCH = 20_000
THEN = "2026-01-05T10:00:00.000000Z"
BODY = "As a person I want to be greeted, so that I know the service is there. " * 3
_EFFECTS = (  # what a merge and its two starts tell of themselves, as SQL
    ("merge_pr", """'{"repo": "sample", "candidate": {"sequence": ' || 3 * n || '}}'"""),
    ("deploy_init", """'{"environment": "sample/staging", "generation": 1, "sha": "' || n || '"}'"""),
    ("deploy_init", """'{"environment": "sample/production", "generation": 1, "sha": "' || n || '"}'"""),
)
LIVE = "SELECT id FROM tasks WHERE stage IN ('development', 'review') ORDER BY id"
REFILL = (
    "UPDATE jobs SET status = 'queued', claimed_by = NULL, finished_at = NULL, attempts = 0 WHERE status IN "
    "('done', 'running') AND task_id IN (SELECT id FROM tasks WHERE stage = 'analysis')"
)


class Store(Protocol):
    """One database to measure on; a value that other processes can be given."""

    def open(self) -> Database:
        """As the product does."""
        ...

    def bare(self) -> Bare:
        """One connection without any code of ours."""
        ...

    def movers(self) -> list[TaskId]:
        """The live tasks that transitions are written for."""
        ...

    def refill(self) -> None:
        """Put every claimed job of the waiting tasks back, between two measurements."""
        ...


class Shelf(Protocol):
    """Where databases of one kind are kept."""

    name: str
    version: str
    sixteen_aim: float  # of sixteen actors against one bare connection (issue's table)

    def prepared(self, finished: int) -> Store:
        """The one with so many ended tasks; built if it is not there yet."""
        ...

    def copied(self, original: Store, name: str) -> Store:
        """A copy, so that every run begins with the same rows; on the disk before it is used."""
        ...

    def discard(self, store: Store) -> None:
        """Throw a copy away."""
        ...


def fingerprint(dialect: str) -> str:
    """Of the schema of this version."""
    return hashlib.sha256("".join(migrations(dialect).values()).encode()).hexdigest()[:12]


def history(first: int, last: int) -> Sequence[str]:
    """What ended tasks with these numbers leave behind, as statements that both databases know."""
    numbers = (
        f"WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) "
        "SELECT"
    )
    return (
        "INSERT INTO tasks (id, work_item, repo, external_id, title, body, stage, tidied_at, created_at, updated_at) "
        f"{numbers} n, 'OLD-' || n, 'sample', 'T-' || n, 'Say hello', '{BODY}', 'done', '{THEN}', '{THEN}', '{THEN}' "
        "FROM numbers",
        f"INSERT INTO transition_epoch (task_id, epoch) {numbers} n, 40 FROM numbers",
        "INSERT INTO jobs (task_id, stage, round, kind, status, attempts, claims, finished_at, created_at) "
        f"{numbers} n, stage, 1, kind, 'done', 1, 1, '{THEN}', '{THEN}' FROM numbers CROSS JOIN "
        "(SELECT 'development' AS stage, 'developer' AS kind UNION ALL SELECT 'review', 'reviewer') AS kinds",
        "INSERT INTO events (task_id, type, actor, stage, to_stage, round, epoch, data, at) "
        f"{numbers} n, 'stage.changed', 'monitor', 'development', 'review', 1, 7, '{{\"reason\": \"passed\"}}', "
        f"'{THEN}' FROM numbers CROSS JOIN (SELECT 1 AS k UNION ALL SELECT 2 UNION ALL SELECT 3) AS thrice",
        *(
            "INSERT INTO effects "
            "(task_id, name, key, round, state, epoch, sequence, token, actor, evidence, intent_at, settled_at) "
            f"{numbers} n, '{name}', '{place}', 1, 'applied', 9, 3 * n + {place}, 't', 'monitor', {evidence}, "
            f"'{THEN}', '{THEN}' FROM numbers"
            for place, (name, evidence) in enumerate(_EFFECTS)
        ),
        f"UPDATE installation SET sequence = {3 * last + 3} WHERE sequence < {3 * last + 3}",
        "INSERT INTO outbox (stable_id, task_id, kind, payload, sent_at, created_at) "
        f"{numbers} 'stage:' || n, n, 'tracker.stage', '{{}}', '{THEN}', '{THEN}' FROM numbers",
        "INSERT INTO task_edges (task_id, from_stage, to_stage, taken, forgiven) "
        f"{numbers} n, 'development', 'review', 1, 0 FROM numbers",
    )


def batches(finished: int) -> Sequence[range]:
    """So many numbers, in parts of a sensible size."""
    return [range(first, min(first + BATCH, finished + 1)) for first in range(1, finished + 1, BATCH)]


def build(database: Database, fill: Callable[[], None]) -> None:
    """Repository, ended tasks, live tasks, in a database that has nothing yet."""
    with database.write() as tx:
        repositories.add(tx, Repository(REPO, "local", "/nowhere", "SMP"))
    fill()
    _add_live(database)


def _add_live(database: Database) -> None:
    with database.write() as tx:
        for number in range(MOVERS + WAITERS):
            stage = Stage.DEVELOPMENT if number < MOVERS else Stage.ANALYSIS
            task = tasks.add(tx, REPO, repositories.next_work_item(tx, REPO), Ticket("Say hello"))
            assert task is not None
            assert tasks.update_task_stage_cas(tx, task.id, task.stage, stage, epoch=task.epoch)
            if stage is Stage.ANALYSIS:
                jobs.enqueue(tx, tasks.get(tx, task.id), NewJob(JobKind.ANALYST))
