"""Ownership: one owner, an epoch that rises at every acquisition, dead owners replaced, never an exception."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.db import leases, tasks
from orchestrator.db.leases import LeaseRow, ProcessRow
from orchestrator.domain.errors import LostRace
from orchestrator.domain.ids import BootId, RunId, TaskId
from orchestrator.domain.lease import Actor, Lease, own_term_s
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.ownership.term import Term
from orchestrator.runtime.process import Liveness, ProcessIdentity, SystemProcesses
from orchestrator.transition_lease import Ownership
from tests.fixtures_db import REPO, Store, on_each
from tests.fixtures_ownership import (
    ME,
    NOBODY,
    OFF,
    OTHER,
    TTL_S,
    Failing,
    Logged,
    ownership,
    plant,
    register,
)
from tests.waiting import PATIENCE_S


class Looking(SystemProcesses):
    """Does something while it looks at another process for the first time."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], object] | None = meanwhile

    def liveness(self, identity: ProcessIdentity) -> Liveness:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().liveness(identity)


def row_of(store: Store, task_id: TaskId) -> LeaseRow | None:
    with store.database.read() as tx:
        return leases.get(tx, task_id)


def defers(owner: Ownership) -> object:
    return owner.snapshot()["deferred"]


def test_a_free_task_is_taken_and_given_back(store: Store) -> None:
    task, owner = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    with owner.transition(task.id, Actor.MONITOR, run_id=RunId(7)) as lease:
        assert lease == Lease(task.id, Actor.MONITOR, ME, task.epoch + 1, Stage.DEVELOPMENT, RunId(7))
        row = row_of(store, task.id)
        assert row is not None
        assert (row.owner, row.owner_boot_id, row.run_id, row.stage) == ("monitor", ME, 7, "development")
        assert row.owner_pid == SystemProcesses().own().pid
        assert row.acquired_at == "2026-01-05 10:00:00"  # the seed's form of time, from our clock
    assert row_of(store, task.id) is None
    assert store.epoch(task.id) == task.epoch + 1
    assert defers(owner) == {}


def test_the_epoch_rises_at_every_acquisition(store: Store) -> None:
    task, owner = store.new_task(), ownership(store)
    seen = []
    for _ in range(4):
        with owner.transition(task.id, Actor.RECONCILER) as lease:
            assert lease is not None
            seen.append(lease.epoch)
    assert seen == [1, 2, 3, 4]


def test_a_busy_task_is_deferred_and_counted(store: Store) -> None:
    task = store.new_task()
    first, second = ownership(store, ME), ownership(store, OTHER)
    with first.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        with second.transition(task.id, Actor.REAPER) as refused:
            assert refused is None
        with second.transition(task.id, Actor.REAPER) as refused:
            assert refused is None
        with second.transition(task.id, Actor.WEBHOOK) as refused:
            assert refused is None
    assert defers(second) == {"reaper": 2, "webhook": 1}
    assert store.epoch(task.id) == 1
    with second.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None


def test_other_tasks_are_not_concerned(store: Store) -> None:
    owner = ownership(store)
    one, two = store.new_task(), store.new_task()
    with owner.transition(one.id, Actor.MONITOR) as first, owner.transition(two.id, Actor.MONITOR) as second:
        assert first is not None
        assert second is not None


def test_an_exception_gives_the_lease_back_and_goes_on(store: Store) -> None:
    task, owner = store.new_task(), ownership(store)
    with pytest.raises(ValueError, match="mine"), owner.transition(task.id, Actor.MONITOR):
        raise ValueError("mine")
    assert row_of(store, task.id) is None
    with owner.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None


def test_the_transitions_own_commit_gives_the_lease_back(store: Store) -> None:
    """Whoever sees the new stage sees the task free: one commit for both."""
    task, owner = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    with owner.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        with store.database.write() as tx:
            leases.check(tx, lease)
            assert tasks.update_task_stage_cas(tx, task.id, task.stage, Stage.REVIEW, epoch=lease.epoch)
            owner.release(tx, lease, epoch=lease.epoch + 1)
        assert row_of(store, task.id) is None
        assert store.task(task.id).stage is Stage.REVIEW
    assert store.epoch(task.id) == lease.epoch + 1


def test_a_commit_that_failed_leaves_the_lease_to_the_exit(store: Store) -> None:
    task, owner = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    with pytest.raises(LostRace), owner.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        with store.database.write() as tx:
            owner.release(tx, lease, epoch=lease.epoch)
            raise LostRace("moved")
    assert row_of(store, task.id) is None
    with owner.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None


def test_a_stale_owner_cannot_release_its_successors_lease(store: Store) -> None:
    task, owner = store.new_task(), ownership(store)
    with owner.transition(task.id, Actor.MONITOR) as stale:
        assert stale is not None
        newer = replace(stale, owner=Actor.REAPER, epoch=stale.epoch + 1)
        with store.database.write() as tx:
            assert leases.raise_epoch(tx, newer)
        with store.database.write() as tx:
            assert not leases.release(tx, stale)
            with pytest.raises(LostRace, match="at epoch 2, not 1"):
                leases.check(tx, stale)
    assert row_of(store, task.id) is not None


def test_two_threads_of_one_process_share_one_lease(store: Store) -> None:
    task, owner = store.new_task(), ownership(store)
    inside, together = threading.Semaphore(1), threading.Barrier(8)
    won = threading.Semaphore(0)

    def contend(_: int) -> int:
        got = 0
        together.wait(PATIENCE_S)
        for _ in range(20):
            with owner.transition(task.id, Actor.MONITOR) as lease:
                if lease is not None:
                    assert inside.acquire(blocking=False)
                    got += 1
                    won.release()
                    inside.release()
        return got

    with ThreadPoolExecutor(8) as pool:
        total = sum(pool.map(contend, range(8)))
    assert total > 0
    assert store.epoch(task.id) == total
    counted = defers(owner)
    assert counted == ({"monitor": 160 - total} if total < 160 else {})


@pytest.mark.parametrize("scope", [EVERYTHING, OFF], ids=["on", "off"])
def test_one_thread_waits_inside_while_the_other_is_refused(store: Store, scope: Scope) -> None:
    """The registry answers within a process, with the durable layer or without."""
    task, owner = store.new_task(), ownership(store, scope=scope)
    with owner.transition(task.id, Actor.MONITOR) as lease, ThreadPoolExecutor(1) as pool:
        assert lease is not None

        def other() -> Lease | None:
            with owner.transition(task.id, Actor.REAPER) as refused:
                return refused

        assert pool.submit(other).result(20) is None
    assert defers(owner) == {"reaper": 1}


@pytest.mark.parametrize("stage", [Stage.DONE, Stage.CANCELLED], ids=str)
def test_a_terminal_stage_refuses(store: Store, stage: Stage) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    if stage is Stage.DONE:
        store.raw(
            "INSERT INTO effects "
            "(task_id, name, key, round, state, epoch, sequence, token, actor, intent_at, settled_at) "
            "VALUES (:task, 'merge_pr', 'k', 1, 'applied', 1, 99, 't', 'monitor', utc_now(), utc_now())",
            {"task": task.id},
        )
    ended = store.move(task.id, stage)
    owner = ownership(store)
    with owner.transition(task.id, Actor.MONITOR) as lease:
        assert lease is None
    assert store.epoch(task.id) == ended.epoch
    assert row_of(store, task.id) is None


def test_a_missing_task_is_refused_not_raised(store: Store) -> None:
    owner = ownership(store)
    with owner.transition(TaskId(404), Actor.MONITOR) as lease:
        assert lease is None
    assert defers(owner) == {"monitor": 1}


def own() -> ProcessIdentity:
    return SystemProcesses().own()


ALIVE, DEAD, UNKNOWN = Liveness.ALIVE, Liveness.DEAD, Liveness.UNKNOWN


@pytest.mark.parametrize(
    ("other", "fresh", "silent"),
    [
        pytest.param({}, ALIVE, ALIVE, id="other_boot_id_of_a_living_process"),
        pytest.param({"start_ticks": 1}, DEAD, DEAD, id="same_pid_other_start"),
        pytest.param({"pid": 2**22 + 1}, DEAD, DEAD, id="no_such_pid"),
        pytest.param({"machine_boot_id": "another-boot"}, UNKNOWN, DEAD, id="another_machine"),
        pytest.param({"pid_namespace": "pid:[1]"}, UNKNOWN, DEAD, id="another_namespace"),
        pytest.param({"pid": 0}, UNKNOWN, DEAD, id="pid_0"),
        pytest.param({"pid": -1}, UNKNOWN, DEAD, id="pid_minus_1"),
    ],
)
def test_an_owner_is_judged_by_its_process(
    store: Store, other: dict[str, object], fresh: Liveness, silent: Liveness
) -> None:
    """At once where its death is proven; else, and only then, by how long it has been silent (cases 3, 5, 8, 9)."""
    task, mine = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    register(store, OTHER, **other)
    plant(store, task)

    def judged() -> Liveness:
        with store.database.read() as tx:
            row = leases.get(tx, task.id)
            assert row is not None
            return mine.judge.owner(row, leases.process(tx, OTHER, TTL_S))

    assert judged() is fresh
    store.clock.advance(TTL_S - 1)
    assert judged() is fresh
    store.clock.advance(2)
    assert judged() is silent
    with store.database.write() as tx:
        assert leases.heartbeat(tx, OTHER)
    assert judged() is fresh


def test_a_dead_owner_is_replaced_at_once_and_this_is_told(store: Store) -> None:
    task, mine = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    register(store, OTHER, start_ticks=1)
    plant(store, task, owner="finalizer", pid=own().pid)
    with mine.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None
        assert lease.epoch == task.epoch + 1
        row = row_of(store, task.id)
        assert row is not None
        assert (row.owner, row.owner_boot_id) == ("reaper", ME)
        assert mine.snapshot()["stale_reclaims"] == 1
    (event,) = store.rows("SELECT type, actor, data FROM events WHERE type = 'lease.reclaimed'")
    assert event["actor"] == "reaper"
    assert '"from": "finalizer"' in event["data"]
    (lesson,) = store.rows("SELECT kind, text FROM lessons")
    assert lesson["kind"] == "stale-reclaim"
    assert task.work_item in lesson["text"]


def test_an_owner_is_judged_while_nobody_waits_for_the_writer(store: Store) -> None:
    """No look into /proc inside a write block: all other writers would wait for it."""
    task = store.new_task(stage=Stage.DEVELOPMENT)
    register(store, OTHER, start_ticks=1)
    plant(store, task)
    mine = ownership(store, processes=Looking(lambda: store.raw("UPDATE tasks SET priority = 7")))
    with mine.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None
    assert [row["priority"] for row in store.rows("SELECT priority FROM tasks")] == [7]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE transition_lease SET owner = 'webhook'",
        "UPDATE transition_lease SET owner_pid = 4711",
        "UPDATE transition_lease SET owner_boot_id = 'third'",
        "UPDATE transition_lease SET run_id = 9",
        "UPDATE transition_lease SET stage = 'review'",
        "UPDATE transition_lease SET acquired_at = '2026-01-05 10:00:01'",
        "UPDATE transition_epoch SET epoch = epoch + 1",
        "DELETE FROM transition_lease",
        "UPDATE processes SET heartbeat_at = utc_after(1) WHERE boot_id = 'other'",
        "DELETE FROM processes WHERE boot_id = 'other'",
    ],
)
def test_what_changed_since_it_was_judged_is_not_taken(store: Store, change: str) -> None:
    """All seven columns, the epoch, and the heartbeat the judgement rests on."""
    task = store.new_task(stage=Stage.DEVELOPMENT)
    register(store, OTHER, start_ticks=1)
    plant(store, task)
    mine = ownership(store, processes=Looking(lambda: store.raw(change)))
    with mine.transition(task.id, Actor.REAPER) as lease:
        assert lease is None
    assert store.rows("SELECT 1 FROM transition_lease WHERE owner_boot_id = 'me'") == []
    assert mine.snapshot()["stale_reclaims"] == 0
    with mine.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None


def test_an_unknown_owner_is_waited_for_and_then_replaced(store: Store) -> None:
    task, mine = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    register(store, OTHER, machine_boot_id="another-boot")
    plant(store, task)
    store.clock.advance(TTL_S)
    with mine.transition(task.id, Actor.REAPER) as lease:
        assert lease is None
    store.clock.advance(0.001)
    with mine.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None


def test_an_owner_that_is_off_the_list_is_replaced(store: Store) -> None:
    """Whoever pruned the list first does not hide its tasks (case 5)."""
    task, mine = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    register(store, OTHER)
    plant(store, task)
    with store.database.write() as tx:
        leases.forget_process(tx, OTHER)
    with mine.transition(task.id, Actor.RECOVERY) as lease:
        assert lease is not None


def test_this_pid_in_another_life_is_not_us(store: Store) -> None:
    """A restarted container: same pid, same machine boot; only start and boot id differ (case 8)."""
    task, mine = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    register(store, BootId("earlier-life"), start_ticks=own().start_ticks - 1)
    plant(store, task, boot_id="earlier-life", pid=own().pid)
    with mine.transition(task.id, Actor.RECOVERY) as lease:
        assert lease is not None
        assert lease.epoch == task.epoch + 1


def test_a_wall_clock_set_forward_does_not_take_a_provably_living_owner(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    first, second = ownership(store, ME), ownership(store, OTHER)
    with first.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        store.clock.advance(3600)
        with second.transition(task.id, Actor.REAPER) as refused:
            assert refused is None


CORRUPT = [
    pytest.param({"owner": "nonsense' --"}, id="nonsense_owner"),
    pytest.param({"owner": ""}, id="no_owner"),
    pytest.param({"pid": -5}, id="negative_pid"),
    pytest.param({"pid": 2**62}, id="huge_pid"),
    pytest.param({"pid": None}, id="no_pid"),
    pytest.param({"boot_id": None}, id="no_boot_id"),
    pytest.param({"boot_id": ""}, id="empty_boot_id"),
    pytest.param({"stage": "merging"}, id="unknown_stage"),
    pytest.param({"stage": None}, id="no_stage"),
]
UNTYPED = [  # what SQLite takes and PostgreSQL does not
    pytest.param({"owner": "\x00nonsense' --"}, id="owner_with_a_nul"),
    pytest.param({"owner": b"\xff\xfe"}, id="owner_of_bytes"),
    pytest.param({"pid": "not a number"}, id="pid_of_words"),
    pytest.param({"boot_id": b"\x00\xff"}, id="boot_id_of_bytes"),
]


@on_each("corrupt", CORRUPT, UNTYPED)
def test_a_corrupt_row_never_raises_and_strands_nothing(store: Store, corrupt: dict[str, object]) -> None:
    """It names no process that lives, so it is replaced; the board shows it meanwhile."""
    task, mine = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    plant(store, task, **corrupt)  # type: ignore[arg-type]
    holders = mine.snapshot()["holders"]
    assert isinstance(holders, list)
    assert [holder["liveness"] for holder in holders] == ["dead"]
    with mine.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None
    assert row_of(store, task.id) is None


def test_a_lease_of_a_task_that_is_gone_is_shown(store: Store) -> None:
    mine = ownership(store)
    store.raw("INSERT INTO transition_lease (task_id, owner) VALUES (404, 'monitor')")
    holders = mine.snapshot()["holders"]
    assert isinstance(holders, list)
    assert [holder["task"] for holder in holders] == [404]


@pytest.mark.parametrize(
    "scope", [OFF, Scope(repos=frozenset({"another"})), NOBODY], ids=["off", "other", "none"]
)
def test_out_of_scope_no_lease_is_read_or_written_and_the_epoch_rises(store: Store, scope: Scope) -> None:
    """Switch and scope turn off law 1 only: fencing and compare-and-swap stay (FR-7)."""
    task, mine = store.new_task(stage=Stage.DEVELOPMENT), ownership(store, scope=scope)
    register(store, OTHER)
    plant(store, task)
    before = row_of(store, task.id)
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        assert lease.epoch == store.epoch(task.id) == task.epoch + 1
        with store.database.write() as tx:
            assert not tasks.update_task_stage_cas(tx, task.id, task.stage, Stage.REVIEW, epoch=task.epoch)
            assert tasks.update_task_stage_cas(tx, task.id, task.stage, Stage.REVIEW, epoch=lease.epoch)
            mine.release(tx, lease, epoch=lease.epoch + 1)
    assert row_of(store, task.id) == before
    with pytest.raises(ValueError, match="mine"), mine.transition(task.id, Actor.REAPER):
        raise ValueError("mine")
    assert row_of(store, task.id) == before
    assert mine.owners() == {}
    assert mine.free(task.id, Actor.WEBHOOK)
    assert (mine.snapshot()["enabled"], mine.snapshot()["scope"]) == (scope.enabled, sorted(scope.named()))


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        (EVERYTHING, True),
        (Scope(repos=frozenset({REPO})), True),
        (Scope(repos=frozenset({"another", REPO})), True),
        (Scope(repos=frozenset({"another"}), self_repo=REPO), False),
        (Scope(repos=frozenset(), self_repo=REPO), True),
        (Scope(repos=frozenset(), self_repo="another"), False),
        (NOBODY, False),
        (Scope(enabled=False, repos=frozenset({REPO})), False),
    ],
)
def test_the_scope_says_whose_tasks_are_leased(store: Store, scope: Scope, covered: bool) -> None:
    """An empty list stands for the repository of this installation itself (FR-7)."""
    task, mine = store.new_task(), ownership(store, scope=scope)
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        assert lease.durable is covered
        assert (row_of(store, task.id) is not None) is covered
    assert row_of(store, task.id) is None


def test_the_board_shows_who_holds_what(store: Store) -> None:
    task, mine = store.new_task(stage=Stage.DEVELOPMENT), ownership(store)
    with mine.transition(task.id, Actor.MONITOR):
        assert mine.snapshot() == {
            "enabled": True,
            "scope": ["*"],
            "holders": [
                {
                    "task": task.work_item,
                    "owner": "monitor",
                    "stage": "development",
                    "since": "2026-01-05 10:00:00",
                    "age_s": 0,
                    "liveness": "alive",
                }
            ],
            "deferred": {},
            "stale_reclaims": 0,
            "forced_reclaims": 0,
            "finalizing": {},
            "term": {"trusted": False, "length_s": 20.0, "left_s": 0.0},
        }


def failing_ownership(store: Store) -> tuple[Ownership, Failing]:
    database = Failing(store)
    return ownership(store, database=database), database


def test_a_database_that_fails_means_busy_not_an_exception(store: Store) -> None:
    task = store.new_task()
    mine, database = failing_ownership(store)
    database.broken = lambda: True
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is None
    assert mine.snapshot()["holders"] is None
    database.broken = lambda: False
    assert store.epoch(task.id) == 0
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None


def test_a_lease_that_could_not_be_given_back_does_not_strand_the_task(store: Store) -> None:
    """The disk was full at the end of the block; the next acquisition of this very process takes the row over."""
    task = store.new_task()
    mine, database = failing_ownership(store)
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        database.broken = lambda: True
    database.broken = lambda: False
    assert row_of(store, task.id) is not None
    with mine.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None
        assert lease.epoch == 2
    assert row_of(store, task.id) is None


def test_a_process_row_says_how_long_it_has_been_silent(store: Store) -> None:
    register(store, OTHER)

    def seen() -> ProcessRow:
        with store.database.read() as tx:
            (found,) = leases.processes(tx, TTL_S)
            return found

    assert (seen().silent, seen().identity, seen().role) == (False, own(), "test")
    store.clock.advance(TTL_S + 1)
    assert seen().silent
    with store.database.write() as tx:
        assert leases.heartbeat(tx, OTHER)
        assert not leases.heartbeat(tx, BootId("nobody"))
    assert not seen().silent


def test_whose_own_term_has_ended_acquires_nothing(store: Store, logged: Logged) -> None:
    """A process that others may take for dead does not begin anything (law 12)."""
    task, term = store.new_task(), Term(store.clock, TTL_S)
    mine = ownership(store, term=term)

    def taken() -> Lease | None:
        with mine.transition(task.id, Actor.MONITOR) as lease:
            return lease

    assert taken() is None  # it has not begun
    told = str(logged)
    assert "own term has ended" in told
    assert task.work_item in told
    term.renew(store.clock.boottime())
    first = taken()
    assert first is not None
    store.clock.advance(TTL_S * 2 / 3)
    assert taken() is None
    assert store.epoch(task.id) == 1
    term.renew(store.clock.boottime())
    second = taken()
    assert second is not None
    assert (first.term, second.term) == (0, 1)
    term.end()
    assert taken() is None
    assert defers(mine) == {"monitor": 3}


def test_out_of_scope_there_is_no_term_to_end(store: Store) -> None:
    task, mine = store.new_task(), ownership(store, scope=OFF, term=Term(store.clock, TTL_S))
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None


def silent_owner(store: Store) -> Task:
    """A task whose owner is a process of another machine: only its heartbeats speak for it."""
    task = store.new_task(stage=Stage.DEVELOPMENT)
    register(store, OTHER, machine_boot_id="another-boot")
    plant(store, task)
    return task


def reclaimed(mine: Ownership, task: Task) -> bool:
    with mine.transition(task.id, Actor.REAPER) as lease:
        return lease is not None


def test_a_pass_in_which_the_clocks_drift_apart_takes_nothing_over(store: Store, logged: Logged) -> None:
    """The database's clock jumps an hour: everybody looks dead at once, and nobody is (law 12)."""
    task, mine = silent_owner(store), ownership(store)
    assert not reclaimed(mine, task)
    store.clock.set_utc(store.clock.utc() + timedelta(hours=1))
    assert not reclaimed(mine, task)
    assert "drift apart" in str(logged)
    store.clock.advance(TTL_S - 1)
    assert not reclaimed(mine, task)
    with store.database.write() as tx:
        assert leases.heartbeat(tx, OTHER)  # it lives, and had a whole TTL to say so
    store.clock.advance(2)
    assert not reclaimed(mine, task)
    store.clock.advance(TTL_S)
    assert reclaimed(mine, task)


def test_a_clock_that_runs_a_little_wrong_stops_nothing(store: Store) -> None:
    """The database's clock is a sixth too fast: its owner is replaced earlier, but not before it has stopped itself."""
    task, mine = silent_owner(store), ownership(store)
    passed = 0.0
    while not reclaimed(mine, task):
        passed += TTL_S / 10
        store.clock.advance(TTL_S / 10)
        store.clock.set_utc(store.clock.utc() + timedelta(seconds=TTL_S / 60))
    assert own_term_s(TTL_S) < passed < TTL_S


def test_a_clock_set_back_a_day_does_not_let_the_dead_live_on(store: Store) -> None:
    """Its last heartbeat lies in the future now; that no other one comes is seen by our own clock (law 6)."""
    task, mine = silent_owner(store), ownership(store)
    assert not reclaimed(mine, task)
    store.clock.set_utc(store.clock.utc() - timedelta(days=1))
    assert not reclaimed(mine, task)
    store.clock.advance(TTL_S + 1)
    assert reclaimed(mine, task)
