"""Grouped commits: one COMMIT for many writers, durable before any of them returns, and nothing of a block that failed.

What a test needs to see of the groups it sees at the waypoint ``db.before_commit``.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.db import events
from orchestrator.db.database import Tx
from orchestrator.db.sqlite import MAX_GROUP, SqliteDatabase, connect
from orchestrator.domain.errors import ConstraintRefused, DatabaseError, InvariantError
from orchestrator.domain.event import EventType
from orchestrator.domain.lease import Actor
from tests.clock import FakeClock
from tests.fixtures_db import Store, open_store
from tests.waiting import PATIENCE_S, wait_until

WRITES_UNTIL_KILLED = """
import sys
from pathlib import Path
from threading import Thread
from orchestrator.db import events
from orchestrator.db.sqlite import SqliteDatabase
from orchestrator.domain.event import EventType
from orchestrator.runtime.clock import SystemClock
database = SqliteDatabase(Path(sys.argv[1]), clock=SystemClock())
def write(thread):
    for number in range(10**6):
        with database.write() as tx:
            events.append(tx, EventType.NOTE, "child", data={"id": f"{thread}-{number}"})
        sys.stdout.write(f"{thread}-{number}\\n")
        sys.stdout.flush()
for thread in range(4):
    Thread(target=write, args=(thread,)).start()
"""


@dataclass
class Commits:
    """Sees every COMMIT; can hold the first one back, or make one fail."""

    sizes: list[int] = field(default_factory=list)
    may_pass: threading.Event | None = None
    fail_from: int | None = None

    def reach(self, name: str, **data: object) -> None:
        if name != "db.before_commit":
            return
        members = data["members"]
        assert isinstance(members, int)
        self.sizes.append(members)
        if self.may_pass is not None:
            assert self.may_pass.wait(PATIENCE_S)
        if self.fail_from is not None and members >= self.fail_from:
            raise sqlite3.OperationalError("disk I/O error")


pytestmark = pytest.mark.of_the_file  # its writers stand in one line; a server's do not


@pytest.fixture
def commits(store: Store) -> Iterator[tuple[SqliteDatabase, Commits]]:
    seen = Commits()
    database = SqliteDatabase(store.path, clock=store.clock, waypoints=seen)
    yield database, seen
    database.close()


def note(tx: Tx, text: str) -> None:
    events.append(tx, EventType.NOTE, Actor.OPERATOR, data={"id": text})


def notes(store: Store) -> list[str]:
    return [row[0] for row in store.rows("SELECT json_extract(data, '$.id') FROM events ORDER BY id")]


def in_threads(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    started = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in started:
        thread.start()
    return started


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(30)
    assert not [thread for thread in threads if thread.is_alive()]


def behind_a_held_commit(
    database: SqliteDatabase, seen: Commits, count: int, work: Callable[[int], None]
) -> list[threading.Thread]:
    """``count`` writers that have queued up while one commit is held back, so that they must share the next."""
    seen.may_pass = threading.Event()
    first = in_threads(1, lambda _: write_one(database, "first"))
    wait_until(lambda: seen.sizes)
    others = in_threads(count, work)
    wait_until(lambda: database._behind == count)
    seen.may_pass.set()
    seen.may_pass = None
    return first + others


def write_one(database: SqliteDatabase, text: str) -> None:
    with database.write() as tx:
        note(tx, text)


def test_many_writers_share_commits(store: Store, commits: tuple[SqliteDatabase, Commits]) -> None:
    database, seen = commits
    join(behind_a_held_commit(database, seen, 16, lambda n: write_one(database, str(n))))
    assert sorted(notes(store)) == sorted(["first", *map(str, range(16))])
    assert sum(seen.sizes) == 17
    assert seen.sizes == [1, 16]


def test_a_block_returns_only_after_its_commit(store: Store, commits: tuple[SqliteDatabase, Commits]) -> None:
    database, seen = commits
    seen.may_pass = threading.Event()
    returned = threading.Event()

    def write(_: int) -> None:
        write_one(database, "x")
        returned.set()

    threads = in_threads(1, write)
    wait_until(lambda: seen.sizes)
    assert not returned.is_set()
    assert notes(store) == []
    seen.may_pass.set()
    join(threads)
    assert notes(store) == ["x"]


def test_groups_are_bounded(store: Store, commits: tuple[SqliteDatabase, Commits]) -> None:
    database, seen = commits
    join(behind_a_held_commit(database, seen, MAX_GROUP + 8, lambda n: write_one(database, str(n))))
    assert seen.sizes == [1, MAX_GROUP, 8]
    assert len(notes(store)) == MAX_GROUP + 9


def test_a_raising_member_leaves_nothing_and_the_others_land(
    store: Store, commits: tuple[SqliteDatabase, Commits]
) -> None:
    database, seen = commits
    raised: list[int] = []

    def write(number: int) -> None:
        try:
            with database.write() as tx:
                note(tx, str(number))
                if number % 3 == 0:
                    raise ValueError(number)
        except ValueError:
            raised.append(number)

    join(behind_a_held_commit(database, seen, 12, write))
    assert len(seen.sizes) == 2  # one that raised before any other had written needs no commit
    assert 8 <= seen.sizes[1] <= 12
    assert sorted(raised) == [0, 3, 6, 9]
    assert sorted(notes(store)) == sorted(["first", *(str(n) for n in range(12) if n % 3)])


def test_the_last_of_a_group_raises_and_commits_for_the_others(
    store: Store, commits: tuple[SqliteDatabase, Commits]
) -> None:
    database, seen = commits
    raised = []

    def write(number: int) -> None:
        with suppress(ValueError), database.write() as tx:
            note(tx, str(number))
            assert database._group is not None
            if database._group.members == 4:
                raised.append(str(number))
                raise ValueError("given up")

    join(behind_a_held_commit(database, seen, 4, write))
    assert seen.sizes == [1, 4]
    assert len(raised) == 1
    assert sorted(notes(store) + raised) == ["0", "1", "2", "3", "first"]


def test_where_every_member_raises_nothing_is_left(
    store: Store, commits: tuple[SqliteDatabase, Commits]
) -> None:
    database, seen = commits

    def write(number: int) -> None:
        with pytest.raises(ValueError, match="given up"), database.write() as tx:
            note(tx, "never")
            raise ValueError("given up")

    join(behind_a_held_commit(database, seen, 3, write))
    assert seen.sizes == [1]
    assert notes(store) == ["first"]
    write_one(database, "after")
    assert notes(store) == ["first", "after"]


def test_a_refused_member_does_not_harm_its_group(
    store: Store, commits: tuple[SqliteDatabase, Commits]
) -> None:
    database, seen = commits
    refused: list[int] = []

    def write(number: int) -> None:
        try:
            with database.write() as tx:
                note(tx, str(number))
                if number == 1:
                    tx.execute("tasks.add_epoch", task_id=999)
        except ConstraintRefused:
            refused.append(number)

    join(behind_a_held_commit(database, seen, 3, write))
    assert refused == [1]
    assert sorted(notes(store)) == ["0", "2", "first"]
    assert len(seen.sizes) == 2


def test_a_failed_commit_fails_every_member(store: Store, commits: tuple[SqliteDatabase, Commits]) -> None:
    database, seen = commits
    seen.fail_from = 2
    failed: list[int] = []

    def write(number: int) -> None:
        try:
            write_one(database, str(number))
        except DatabaseError as error:
            assert "disk I/O error" in str(error)
            failed.append(number)

    join(behind_a_held_commit(database, seen, 8, write))
    assert sorted(failed) == list(range(8))
    assert notes(store) == ["first"]
    write_one(database, "after")
    assert notes(store) == ["first", "after"]


def test_a_waypoint_that_raises_hangs_nobody(store: Store, commits: tuple[SqliteDatabase, Commits]) -> None:
    database, seen = commits
    seen.sizes = [0]

    class Stop(BaseException):
        pass

    def stop(name: str, **data: object) -> None:
        raise Stop

    seen.reach = stop  # type: ignore[method-assign]
    with pytest.raises(Stop):
        write_one(database, "lost")
    del seen.reach  # type: ignore[method-assign]
    write_one(database, "after")
    assert notes(store) == ["after"]


def test_a_full_disk_leaves_nothing_half_written(store: Store) -> None:
    """SQLite itself gives the transaction up; every statement after that is refused, and so is the whole block."""
    used = store.rows("PRAGMA page_count")[0][0]
    store.database._writer.execute(f"PRAGMA max_page_count={used + 5}")
    with pytest.raises(DatabaseError) as full, store.database.write() as tx:
        note(tx, "small")
        with pytest.raises(DatabaseError):
            note(tx, "x" * 200_000)
        note(tx, "after the disk was full")
    assert notes(store) == []
    assert full.value.hint
    store.database._writer.execute("PRAGMA max_page_count=1000000")
    write_one(store.database, "after")
    assert notes(store) == ["after"]


def test_a_full_disk_says_so(store: Store) -> None:
    used = store.rows("PRAGMA page_count")[0][0]
    store.database._writer.execute(f"PRAGMA max_page_count={used + 2}")
    with pytest.raises(DatabaseError, match="full") as full:
        write_one(store.database, "x" * 200_000)
    assert "disk is full" in full.value.hint


def test_a_write_inside_a_write_is_refused(store: Store) -> None:
    with (
        pytest.raises(InvariantError, match="inside another"),
        store.database.write(),
        store.database.write(),
    ):
        pass
    write_one(store.database, "after")
    assert notes(store) == ["after"]


def test_a_reader_sees_one_snapshot_and_cannot_write(store: Store) -> None:
    write_one(store.database, "before")
    with store.database.read() as tx:
        count = "SELECT count(*) AS n FROM events"
        assert tx._connection.execute(count).fetchone()["n"] == 1  # type: ignore[attr-defined]
        write_one(store.database, "meanwhile")
        assert tx._connection.execute(count).fetchone()["n"] == 1  # type: ignore[attr-defined]
        with pytest.raises(DatabaseError, match="readonly"):
            note(tx, "never")
    assert notes(store) == ["before", "meanwhile"]


def test_readers_are_kept_after_an_error_and_closed_with_the_database(tmp_path: Path) -> None:
    store = open_store(tmp_path / "orch.db", FakeClock())
    for _ in range(3):
        with pytest.raises(ValueError, match="mine"), store.database.read():
            raise ValueError("mine")
    assert store.database._readers.qsize() == 1
    with store.database.read() as tx:
        store.database.close()
        assert tx.all("jobs.queued") == []
    assert store.database._readers.qsize() == 0
    with pytest.raises(DatabaseError):
        write_one(store.database, "too late")


def test_many_readers_at_once(store: Store) -> None:
    """More than are kept; two that reach for the last idle one at the same time both get one."""
    barrier = threading.Barrier(24)

    def read(_: int) -> int:
        for _ in range(30):
            barrier.wait(PATIENCE_S)
            with store.database.read() as tx:
                assert tx.all("jobs.queued") == []
        return 30

    with ThreadPoolExecutor(24) as pool:
        assert sum(pool.map(read, range(24))) == 720


def test_everything_that_returned_survives_a_kill(tmp_path: Path) -> None:
    """A child prints each id once ``write`` has returned; killed at any moment, every printed id is in the file."""
    store = open_store(tmp_path / "orch.db", FakeClock())
    store.database.close()
    for wanted in (1, 50, 200):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITES_UNTIL_KILLED, str(store.path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        printed = [child.stdout.readline() for _ in range(wanted)]
        os.kill(child.pid, signal.SIGKILL)
        printed += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        whole = {line.strip() for line in printed if line.endswith("\n")}
        assert len(whole) >= wanted
        with closing(connect(store.path, FakeClock())) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert whole <= set(notes(store))


def test_writing_is_durable_on_the_disk_not_only_in_the_log(store: Store) -> None:
    settings = {
        name: store.database._writer.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
