"""SQLite files to measure on."""

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bare import Bare, BareSqlite
from benchmarks.database import LIVE, REFILL, Store, batches, build, fingerprint, history
from orchestrator.db.database import Database
from orchestrator.db.migrate import init_db
from orchestrator.db.sqlite import SqliteDatabase
from orchestrator.domain.ids import TaskId
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy


@dataclass(frozen=True)
class FileStore:
    """One file."""

    path: Path

    def open(self) -> Database:
        return SqliteDatabase(self.path, clock=SystemClock())

    def bare(self) -> Bare:
        return BareSqlite(self.path)

    def movers(self) -> list[TaskId]:
        with closing(sqlite3.connect(self.path)) as connection:
            return [TaskId(row[0]) for row in connection.execute(LIVE)]

    def refill(self) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(REFILL)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class Files:
    """Kept in a folder."""

    name = "sqlite"
    version = f"SQLite {sqlite3.sqlite_version}"
    sixteen_aim = 2.0

    def __init__(self, folder: Path, scratch: Path) -> None:
        """``scratch``: where the copies go."""
        self._folder = folder
        self._scratch = scratch

    def prepared(self, finished: int) -> Store:
        path = self._folder / f"tasks-{finished}-{fingerprint('sqlite')}.db"
        if path.exists():
            return FileStore(path)
        half = path.with_suffix(".building")
        for left in self._folder.glob(f"{half.name}*"):
            left.unlink()
        init_db(half, clock=SystemClock(), entropy=SystemEntropy())
        database = SqliteDatabase(half, clock=SystemClock())
        build(database, lambda: fill(half, finished))
        database.close()
        half.rename(path)
        return FileStore(path)

    def copied(self, original: Store, name: str) -> Store:
        assert isinstance(original, FileStore)
        place = self._scratch / name
        shutil.copyfile(original.path, place)
        os.sync()
        return FileStore(place)

    def discard(self, store: Store) -> None:
        assert isinstance(store, FileStore)
        for left in self._scratch.glob(f"{store.path.name}*"):
            left.unlink()


def fill(path: Path, finished: int) -> None:
    """Add so many ended tasks to a file that has the repository ``sample``."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA cache_size=-200000")
        for numbers in batches(finished):
            connection.execute("BEGIN")
            for statement in history(numbers[0], numbers[-1]):
                connection.execute(statement)
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
