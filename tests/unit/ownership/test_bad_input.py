"""What nobody of ours would have written, and a database that fails anywhere: a warning that names the task, a safe
default, and the queue goes on (FR-7, NFR-1)."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from orchestrator.db import leases
from orchestrator.db.database import Tx
from orchestrator.domain.errors import DatabaseError, LostRace
from orchestrator.domain.ids import BootId, TaskId
from orchestrator.domain.lease import BELIEVABLE, Actor
from orchestrator.domain.scope import EVERYTHING
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.runtime.process import Liveness, ProcessIdentity, SystemProcesses
from orchestrator.transition_lease import Ownership
from orchestrator.web.views import plain
from tests.fixtures_db import Store, on_each
from tests.fixtures_ownership import OFF, OTHER, Logged, ownership, plant, register


@pytest.fixture
def task(store: Store) -> Task:
    return store.new_task(stage=Stage.DEVELOPMENT)


def goes_on(store: Store, mine: Ownership) -> bool:
    """Another task is taken and given back as ever."""
    with mine.transition(store.new_task().id, Actor.RECONCILER) as lease:
        return lease is not None


ODD = [
    pytest.param({"owner": "nobody knows"}, "owner", id="unknown_owner"),
    pytest.param({"boot_id": None}, "owner_boot_id", id="no_boot_id"),
    pytest.param({"pid": -7}, "owner_pid", id="negative_pid"),
    pytest.param({"stage": "merging"}, "stage", id="unknown_stage"),
    pytest.param({"acquired_at": "soon"}, "acquired_at", id="time_of_words"),
    pytest.param({"acquired_at": 17}, "acquired_at", id="time_of_numbers"),
]
UNTYPED = [  # SQLite takes any value in any column; PostgreSQL does not
    pytest.param({"owner": b"\xff\xfe"}, "owner", id="owner_of_bytes"),
    pytest.param({"boot_id": b"\x00\xff"}, "owner_boot_id", id="boot_id_of_bytes"),
    pytest.param({"pid": "many"}, "owner_pid", id="pid_of_words"),
]
DAMAGED = "CAST(x'fffe' AS TEXT)"  # what a damaged disk leaves of a text
NO_TEXT = [
    pytest.param(name, id=name)
    for name in ("owner", "owner_pid", "owner_boot_id", "run_id", "stage", "acquired_at")
]


@on_each("odd,named", ODD, UNTYPED)
def test_an_odd_row_is_warned_of_and_taken_over_where_its_owner_is_dead(
    store: Store, task: Task, odd: dict[str, object], named: str, logged: Logged
) -> None:
    plant(store, task, **odd)  # type: ignore[arg-type]
    mine = ownership(store)
    assert mine.snapshot()["holders"]
    with mine.transition(task.id, Actor.RECONCILER) as lease:
        assert lease is not None
    told = str(logged)
    assert "lease row with odd values" in told
    assert named in told
    assert task.work_item in told
    assert goes_on(store, mine)


@on_each("odd,named", [case for case in ODD if "boot_id" not in str(case.id)], UNTYPED[::2])
def test_an_odd_row_of_a_living_owner_is_a_reason_to_skip(
    store: Store, task: Task, odd: dict[str, object], named: str, logged: Logged
) -> None:
    """Whatever else it says, its process lives: nothing is done twice (FR-5)."""
    register(store)
    plant(store, task, **odd)  # type: ignore[arg-type]
    mine = ownership(store)
    with mine.transition(task.id, Actor.RECONCILER) as lease:
        assert lease is None
    assert mine.reclaim(Actor.REAPER, 3600.0) == []
    assert named in str(logged)
    assert goes_on(store, mine)


@on_each("column", [], NO_TEXT)
def test_a_row_that_is_no_text_holds_up_no_other(
    store: Store, task: Task, column: str, logged: Logged
) -> None:
    """It can be read, shown, judged and taken away like any other, and so can its neighbours."""
    register(store, start_ticks=1)
    beside = store.new_task()
    for one in (task, beside):
        plant(store, one)
    store.raw(f"UPDATE transition_lease SET {column} = {DAMAGED} WHERE task_id = :t", {"t": task.id})
    mine = ownership(store)
    assert mine.owners() == {task.id: Liveness.DEAD, beside.id: Liveness.DEAD}
    holders = mine.snapshot()["holders"]
    assert isinstance(holders, list)
    assert json.dumps(plain(holders))
    assert {taken.task_id for taken in mine.reclaim(Actor.REAPER, 3600.0)} == {task.id, beside.id}
    told = str(logged)
    assert "lease row with odd values" in told
    assert column in told
    assert task.work_item in told
    assert goes_on(store, mine)


@on_each("column", [], NO_TEXT)
def test_a_row_that_is_no_text_is_taken_over_by_whoever_wants_its_task(
    store: Store, task: Task, column: str
) -> None:
    register(store, start_ticks=1)
    plant(store, task)
    store.raw(f"UPDATE transition_lease SET {column} = {DAMAGED}")
    mine = ownership(store)
    with mine.transition(task.id, Actor.RECONCILER) as lease:
        assert lease is not None


def test_a_lease_from_the_future_is_not_believed(store: Store, task: Task) -> None:
    """Its epoch is higher than the task's: whatever it was acquired from is not this database as it is now."""
    mine = ownership(store)
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        future = replace(lease, epoch=lease.epoch + 5)
        with store.database.write() as tx:
            with pytest.raises(LostRace, match="is at epoch"):
                leases.check(tx, future)
            assert not leases.release(tx, future)
            assert not leases.raise_epoch(tx, future)
    assert goes_on(store, mine)


def test_a_task_without_an_epoch_is_left_alone(store: Store, task: Task, logged: Logged) -> None:
    store.drop_guard("transition_epoch_stays", "transition_epoch")
    store.raw("DELETE FROM transition_epoch WHERE task_id = :t", {"t": task.id})
    mine = ownership(store)
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is None
    assert f"'task_id': {task.id}" in str(logged)
    assert goes_on(store, mine)


BEYOND = [pytest.param(BELIEVABLE, id="first"), pytest.param(2**63 - 1, id="last")]


@on_each("epoch", BEYOND, [])
def test_a_task_at_an_epoch_that_no_counting_leads_to_is_left_alone(
    store: Store, task: Task, epoch: int, logged: Logged
) -> None:
    """Near the end it could not rise any more; with leases and without."""
    store.raw("UPDATE transition_epoch SET epoch = :e WHERE task_id = :t", {"e": epoch, "t": task.id})
    for scope in (EVERYTHING, OFF):
        mine = ownership(store, scope=scope)
        with mine.transition(task.id, Actor.MONITOR) as lease:
            assert lease is None
        [told] = [entry for entry in logged if task.work_item in str(entry)]
        assert told["log_level"] == "warning"
        assert str(epoch) in str(told)
        logged.clear()
        assert store.epoch(task.id) == epoch
        assert goes_on(store, mine)


def test_the_lease_of_such_a_task_stays_and_holds_up_no_other(
    store: Store, task: Task, logged: Logged
) -> None:
    """Taking it away would raise the epoch."""
    register(store, start_ticks=1)
    beside = store.new_task()
    for one in (task, beside):
        plant(store, one)
    store.raw("UPDATE transition_epoch SET epoch = :e WHERE task_id = :t", {"e": 2**63 - 1, "t": task.id})
    mine = ownership(store)
    assert [taken.task_id for taken in mine.reclaim(Actor.REAPER, 3600.0)] == [beside.id]
    assert mine.release_by_person(task.id, person="Ann", reason="it hangs") is None
    assert task.work_item in str(logged)
    assert store.epoch(task.id) == 2**63 - 1


class Breaking:
    """Every transaction fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @contextmanager
    def write(self) -> Iterator[Tx]:
        raise self._error
        yield

    read = write

    def close(self) -> None:
        """There is nothing."""

    def execute(self, name: str, /, **params: object) -> int:
        raise self._error

    one = all = execute


class Blind(SystemProcesses):
    """/proc cannot be read, in a way nobody has thought of."""

    def liveness(self, identity: ProcessIdentity) -> Liveness:
        raise RuntimeError("no /proc today")


def entered(mine: Ownership, task_id: TaskId) -> object:
    with mine.transition(task_id, Actor.MONITOR) as lease:
        return lease


CALLS: list[tuple[str, Callable[[Ownership, Task], object], object]] = [
    ("transition", lambda mine, task: entered(mine, task.id), None),
    ("reclaim", lambda mine, task: list(mine.reclaim(Actor.REAPER, 1.0)), []),
    ("owner_of", lambda mine, task: mine.owner_of(task), None),
    ("release_by_person", lambda mine, task: mine.release_by_person(task.id, person="", reason=""), None),
    ("snapshot", lambda mine, task: mine.snapshot()["holders"], None),
    ("free", lambda mine, task: mine.free(task.id, Actor.WEBHOOK), False),
    ("owners", lambda mine, task: mine.owners(), None),
]


@pytest.mark.parametrize(
    "error",
    [
        DatabaseError("The database refused: boom."),
        sqlite3.OperationalError("boom"),
        RuntimeError("boom"),
        KeyError("boom"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(("call", "safe"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS])
def test_a_database_that_raises_is_a_warning_and_a_safe_default(
    store: Store,
    task: Task,
    call: Callable[[Ownership, Task], object],
    safe: object,
    error: Exception,
    logged: Logged,
) -> None:
    mine = ownership(store, database=Breaking(error))
    assert call(mine, task) == safe
    assert "boom" in str(logged)


def test_a_task_of_which_nothing_can_be_told_is_named(store: Store, task: Task, logged: Logged) -> None:
    mine = ownership(store, database=Breaking(RuntimeError("boom")))
    assert not mine.free(task.id, Actor.WEBHOOK)
    assert [entry["task_id"] for entry in logged if entry["event"] == "lease not read"] == [task.id]


def test_a_release_that_fails_leaves_the_lease_to_the_exit(store: Store, task: Task, logged: Logged) -> None:
    mine = ownership(store)
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        mine.release(Breaking(sqlite3.OperationalError("boom")), lease, epoch=lease.epoch)  # type: ignore[arg-type]
        assert "boom" in str(logged)
        assert store.rows("SELECT 1 FROM transition_lease")
    assert not store.rows("SELECT 1 FROM transition_lease")


def test_an_owner_that_cannot_be_judged_is_not_replaced(store: Store, task: Task, logged: Logged) -> None:
    register(store, OTHER)
    plant(store, task)
    mine = ownership(store, processes=Blind())
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is None
    assert "no /proc today" in str(logged)
    assert goes_on(store, mine)
    assert mine.boot_id == BootId("me")
