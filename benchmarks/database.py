"""Database files with many finished tasks behind a few live ones, built once per size and kept in a folder.

A file belongs to one schema: its name carries the schema's fingerprint. It is complete iff it has its final name.
"""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from orchestrator.db import jobs, repositories, tasks
from orchestrator.db.jobs import NewJob
from orchestrator.db.migrate import init_db, migrations
from orchestrator.db.repositories import Repository
from orchestrator.db.sqlite import SqliteDatabase
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Ticket
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy

REPO = RepoName("sample")
MOVERS = 16  # live tasks whose stage is written; one for each thread
WAITERS = 1000  # live tasks with a queued job each: what claiming eats
BATCH = 20_000
THEN = "2026-01-05T10:00:00.000000Z"


def prepared(folder: Path, finished: int) -> Path:
    """The file with ``finished`` ended tasks; built if it is not there yet."""
    fingerprint = hashlib.sha256("".join(migrations().values()).encode()).hexdigest()[:12]
    path = folder / f"tasks-{finished}-{fingerprint}.db"
    if path.exists():
        return path
    half = path.with_suffix(".building")
    for left in folder.glob(f"{half.name}*"):
        left.unlink()
    init_db(half, clock=SystemClock(), entropy=SystemEntropy())
    database = SqliteDatabase(half, clock=SystemClock())
    with database.write() as tx:
        repositories.add(tx, Repository(REPO, "local", "/nowhere", "SMP"))
    fill(half, finished)
    _add_live(database)
    database.close()
    half.rename(path)
    return path


def copied(original: Path, place: Path) -> Path:
    """A file to measure on, so that every run begins with the same rows; on the disk before it is used."""
    shutil.copyfile(original, place)
    os.sync()
    return place


def movers(path: Path) -> list[TaskId]:
    """The live tasks that transitions are written for."""
    return _live(path, "'development', 'review'")


def refill(path: Path) -> None:
    """Put every claimed job of the waiting tasks back, between two measurements."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "UPDATE jobs SET status = 'queued', claimed_by = NULL, finished_at = NULL, attempts = 0 WHERE status IN "
            "('done', 'running') AND task_id IN (SELECT id FROM tasks WHERE stage = 'analysis')"
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fill(path: Path, finished: int) -> None:
    """Add so many ended tasks to a database that has the repository ``sample``."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA cache_size=-200000")
        for start in range(1, finished + 1, BATCH):
            numbers = range(start, min(start + BATCH, finished + 1))
            connection.execute("BEGIN")
            for statement, rows in _history(numbers):
                connection.executemany(statement, rows)
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _history(numbers: range) -> Iterator[tuple[str, Iterator[tuple[object, ...]]]]:
    """What one ended task leaves behind, in rows of each table."""
    body = "As a person I want to be greeted, so that I know the service is there. " * 3
    yield (
        "INSERT INTO tasks (id, work_item, repo, external_id, title, body, stage, tidied_at, created_at, updated_at) "
        "VALUES (?, ?, 'sample', ?, 'Say hello', ?, 'done', ?, ?, ?)",
        ((n, f"OLD-{n}", f"T-{n}", body, THEN, THEN, THEN) for n in numbers),
    )
    yield "INSERT INTO transition_epoch VALUES (?, 40)", ((n,) for n in numbers)
    yield (
        "INSERT INTO jobs (task_id, stage, round, kind, status, attempts, claims, finished_at, created_at) "
        "VALUES (?, ?, 1, ?, 'done', 1, 1, ?, ?)",
        (
            (n, stage, kind, THEN, THEN)
            for n in numbers
            for stage, kind in (("development", "developer"), ("review", "reviewer"))
        ),
    )
    yield (
        "INSERT INTO events (task_id, type, actor, stage, to_stage, round, epoch, data, at) "
        "VALUES (?, 'stage.changed', 'monitor', 'development', 'review', 1, 7, '{\"reason\": \"passed\"}', ?)",
        ((n, THEN) for n in numbers for _ in range(3)),
    )
    yield (
        "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, intent_at, settled_at) "
        "VALUES (?, 'merge_pr', 'k', 1, 'applied', 9, ?, 't', 'monitor', ?, ?)",
        ((n, n, THEN, THEN) for n in numbers),
    )
    yield (
        "INSERT INTO outbox (stable_id, task_id, kind, payload, sent_at, created_at) "
        "VALUES (?, ?, 'tracker.stage', '{}', ?, ?)",
        ((f"stage:{n}", n, THEN, THEN) for n in numbers),
    )
    yield "INSERT INTO task_edges VALUES (?, 'development', 'review', 1, 0)", ((n,) for n in numbers)


def _add_live(database: SqliteDatabase) -> None:
    with database.write() as tx:
        for number in range(MOVERS + WAITERS):
            stage = Stage.DEVELOPMENT if number < MOVERS else Stage.ANALYSIS
            task = tasks.add(tx, REPO, repositories.next_work_item(tx, REPO), Ticket("Say hello"))
            assert task is not None
            assert tasks.update_task_stage_cas(tx, task.id, task.stage, stage, epoch=task.epoch)
            if stage is Stage.ANALYSIS:
                jobs.enqueue(tx, tasks.get(tx, task.id), NewJob(JobKind.ANALYST))


def _live(path: Path, stages: str) -> list[TaskId]:
    with closing(sqlite3.connect(path)) as connection:
        query = f"SELECT id FROM tasks WHERE stage IN ({stages}) ORDER BY id"
        return [TaskId(row[0]) for row in connection.execute(query)]
