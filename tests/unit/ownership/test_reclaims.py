"""Leases taken from the dead and the hung: bounded, observable, and whoever wakes up changes nothing (law 6)."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from orchestrator.db import leases, tasks
from orchestrator.domain.errors import LostRace
from orchestrator.domain.ids import BootId, TaskId
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.scope import Scope
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.ownership.reclaims import Reclaimed, Why
from orchestrator.transition_lease import Ownership
from tests.fixtures_db import Store
from tests.fixtures_ownership import ME, OFF, OTHER, TTL_S, Failing, Logged, ownership, plant, register

BACKSTOP_S = 3600.0


@pytest.fixture
def task(store: Store) -> Task:
    return store.new_task(stage=Stage.DEVELOPMENT)


@pytest.fixture
def others() -> Iterator[ExitStack]:
    """Owners that stay in their block until the test ends."""
    with ExitStack() as stack:
        yield stack


def enter(stack: ExitStack, owner: Ownership, task: Task, actor: Actor = Actor.MONITOR) -> Lease:
    lease = stack.enter_context(owner.transition(task.id, actor))
    assert lease is not None
    return lease


def reap(owner: Ownership, backstop_s: float = BACKSTOP_S) -> list[Reclaimed]:
    return list(owner.reclaim(Actor.REAPER, backstop_s))


def rows(store: Store) -> int:
    return len(store.rows("SELECT 1 FROM transition_lease"))


def counts(owner: Ownership) -> tuple[object, object]:
    shown = owner.snapshot()
    return shown["stale_reclaims"], shown["forced_reclaims"]


def test_a_hung_owner_of_our_own_is_replaced_at_the_backstop_and_wakes_up_to_nothing(
    store: Store, task: Task
) -> None:
    mine = ownership(store)
    hung = ExitStack()
    lease = enter(hung, mine, task)
    store.clock.advance(BACKSTOP_S)
    assert reap(mine) == []
    store.clock.advance(1)
    assert reap(mine) == [
        Reclaimed(task.id, task.work_item, Why.FORCED, "monitor", "2026-01-05 10:00:00", own=True)
    ]
    assert store.epoch(task.id) == lease.epoch + 1
    assert rows(store) == 0

    with mine.transition(task.id, Actor.REAPER) as successor:
        assert successor is not None
        assert successor.epoch == lease.epoch + 2
        with store.database.write() as tx, pytest.raises(LostRace):
            leases.check(tx, lease)
        hung.close()  # it wakes up and leaves its block
        assert rows(store) == 1
        with mine.transition(task.id, Actor.RECONCILER) as third:
            assert third is None  # the successor's entry in the registry is untouched
        with store.database.write() as tx:
            leases.check(tx, successor)
    assert rows(store) == 0
    assert counts(mine) == (0, 1)


def test_a_hung_owner_that_wakes_up_in_its_own_commit_leaves_its_successors_lease(
    store: Store, task: Task
) -> None:
    """Its transition is refused, and what it had marked as given back is not what its successor gives back."""
    mine = ownership(store)
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        store.clock.advance(BACKSTOP_S + 1)
        assert len(reap(mine)) == 1
        with mine.transition(task.id, Actor.REAPER) as successor:
            assert successor is not None
            with store.database.write() as tx:
                assert not tasks.update_task_stage_cas(
                    tx, task.id, Stage.DEVELOPMENT, Stage.REVIEW, epoch=lease.epoch
                )
                mine.release(tx, lease, epoch=lease.epoch + 1)
            assert rows(store) == 1
        assert rows(store) == 0
    assert store.task(task.id).stage is Stage.DEVELOPMENT


def test_it_is_told_as_event_lesson_and_alert_with_the_tasks_number(
    store: Store, task: Task, others: ExitStack
) -> None:
    mine = ownership(store)
    enter(others, mine, task, Actor.FINALIZER)
    store.clock.advance(BACKSTOP_S + 1)
    reap(mine)
    (event,) = store.rows("SELECT actor, epoch, data FROM events WHERE type = 'lease.reclaimed'")
    assert (event["actor"], event["epoch"]) == ("reaper", 3)
    told = json.loads(event["data"])
    assert (told["from"], told["kind"], told["since"]) == ("finalizer", "forced", "2026-01-05 10:00:00")
    assert told["reason"] == "it was held for more than 3600 s (backstop)"
    (lesson,) = store.rows("SELECT source, kind, text, task_id FROM lessons")
    assert (lesson["source"], lesson["kind"], lesson["task_id"]) == ("auto", "forced-reclaim", task.id)
    (alert,) = store.rows("SELECT kind, task_id, stable_id, payload FROM outbox")
    assert (alert["kind"], alert["task_id"]) == ("alert", task.id)
    assert alert["stable_id"] == f"alert:lease:{task.work_item}:3"
    said = json.loads(alert["payload"])
    assert said["work_item"] == task.work_item
    assert f"{task.work_item}: the lease of finalizer in development was taken away by reaper" in said["text"]


def test_a_living_process_of_another_is_held_to_the_backstop_by_the_databases_clock(
    store: Store, task: Task
) -> None:
    register(store)
    plant(store, task, owner="webhook")
    mine = ownership(store)
    store.clock.advance(BACKSTOP_S)
    assert reap(mine) == []
    store.clock.advance(1)
    (taken,) = reap(mine)
    assert (taken.why, taken.owner, taken.own) == (Why.FORCED, "webhook", False)
    assert (rows(store), store.epoch(task.id)) == (0, task.epoch + 1)


@pytest.mark.parametrize("acquired_at", ["soon", "", "2027-01-01 00:00:00", b"\xff"])
def test_a_lease_without_a_sensible_time_is_held_to_the_backstop_from_when_it_was_first_seen(
    store: Store, task: Task, acquired_at: object
) -> None:
    register(store)
    plant(store, task, acquired_at=acquired_at)
    mine = ownership(store)
    assert reap(mine) == []
    store.clock.advance(BACKSTOP_S)
    assert reap(mine) == []
    store.clock.advance(1)
    assert [lease.why for lease in reap(mine)] == [Why.FORCED]


def test_a_dead_owners_lease_goes_whether_or_not_anybody_wants_the_task(store: Store, task: Task) -> None:
    ended = store.new_task(stage=Stage.DEVELOPMENT)
    store.move(ended.id, Stage.CANCELLED)
    register(store, start_ticks=1)
    plant(store, task)
    plant(store, ended)
    mine = ownership(store)
    assert [(lease.task_id, lease.why) for lease in reap(mine)] == [
        (task.id, Why.STALE),
        (ended.id, Why.STALE),
    ]
    assert rows(store) == 0
    assert counts(mine) == (2, 0)
    assert [json.loads(row["payload"])["work_item"] for row in store.rows("SELECT payload FROM outbox")] == [
        task.work_item,
        ended.work_item,
    ]


def test_a_takeover_is_alerted_like_any_other_reclaim(store: Store, task: Task) -> None:
    register(store, start_ticks=1)
    plant(store, task)
    with ownership(store).transition(task.id, Actor.RECONCILER) as lease:
        assert lease is not None
    (alert,) = store.rows("SELECT stable_id, payload FROM outbox")
    assert alert["stable_id"] == f"alert:lease:{task.work_item}:{lease.epoch}"
    assert "taken away by reconciler: its owner is dead" in json.loads(alert["payload"])["text"]


def test_a_live_owner_is_left_alone(store: Store, task: Task, others: ExitStack) -> None:
    mine, theirs = ownership(store), ownership(store, OTHER)
    lease = enter(others, theirs, task)
    own = store.new_task()
    enter(others, mine, own)
    assert reap(mine) == reap(theirs) == []
    with store.database.write() as tx:
        leases.check(tx, lease)


def test_what_could_not_be_given_back_is_cleared(store: Store, task: Task) -> None:
    """The disk was full when the owner left: no thread of ours holds the row that names us."""
    database = Failing(store)
    mine = ownership(store, database=database)
    with mine.transition(task.id, Actor.MONITOR):
        database.broken = lambda: True
    database.broken = lambda: False
    assert [(lease.why, lease.own) for lease in reap(mine)] == [(Why.STALE, False)]
    assert rows(store) == 0


def test_a_lease_for_a_task_that_does_not_exist_is_cleared_with_a_warning(
    store: Store, task: Task, logged: Logged
) -> None:
    store.raw("INSERT INTO transition_lease (task_id, owner) VALUES (404, 'monitor')")
    mine = ownership(store)
    (taken,) = reap(mine)
    assert (taken.task_id, taken.work_item) == (404, None)
    told = str(logged)
    assert "lease reclaimed" in told
    assert "404" in told
    assert rows(store) == 0
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None


@pytest.mark.parametrize("scope", [OFF, Scope(repos=frozenset({"another"}))], ids=["off", "out of scope"])
def test_out_of_scope_no_lease_is_read_and_a_hung_thread_is_replaced_all_the_same(
    store: Store, task: Task, others: ExitStack, scope: Scope
) -> None:
    register(store, start_ticks=1)
    plant(store, store.new_task())
    mine = ownership(store, scope=scope)
    lease = enter(others, mine, task)
    assert reap(mine) == []
    store.clock.advance(BACKSTOP_S + 1)
    assert reap(mine) == [Reclaimed(task.id, task.work_item, Why.FORCED, "monitor", None, own=True)]
    assert rows(store) == 1  # the planted one
    assert store.epoch(task.id) == lease.epoch + 1
    with mine.transition(task.id, Actor.REAPER) as successor:
        assert successor is not None


def test_what_moved_since_it_was_judged_is_left(store: Store, task: Task, others: ExitStack) -> None:
    mine = ownership(store)
    lease = enter(others, mine, task)
    database = Moving(store, task)
    stale = ownership(store, database=database)
    register(store, start_ticks=1)
    with store.database.write() as tx:
        assert leases.release(tx, lease)
    plant(store, task)
    assert reap(stale) == []
    assert rows(store) == 1


class Moving(Failing):
    """Somebody else moves the task between a look and the write that follows."""

    def __init__(self, store: Store, task: Task) -> None:
        super().__init__(store)
        self._store, self._task = store, task

    def write(self):  # type: ignore[no-untyped-def]
        self._store.raw(
            "UPDATE transition_epoch SET epoch = epoch + 1 WHERE task_id = :t", {"t": self._task.id}
        )
        return super().write()


def test_a_row_that_cannot_be_removed_holds_up_no_other(store: Store, task: Task, logged: Logged) -> None:
    second = store.new_task()
    register(store, start_ticks=1)
    plant(store, task)
    plant(store, second)
    store.refuse("stuck", "transition_lease", "DELETE", "stuck", when=f"OLD.task_id = {task.id}")
    assert [lease.task_id for lease in reap(ownership(store))] == [second.id]
    assert "lease not reclaimed" in str(logged)


def test_a_database_that_cannot_be_read_is_a_warning(store: Store, logged: Logged) -> None:
    database = Failing(store)
    mine = ownership(store, database=database)
    database.broken = lambda: True
    assert reap(mine) == []
    assert "disk I/O error" in str(logged)


def test_clocks_that_drift_apart_force_nobody(store: Store, task: Task) -> None:
    """By the database's clock the lease is days old; by ours it is a minute (law 12)."""
    register(store)
    plant(store, task)
    mine = ownership(store)
    assert reap(mine) == []
    store.clock.set_utc(store.clock.utc().replace(year=2027))
    assert reap(mine) == []
    store.clock.advance(TTL_S - 1)
    assert reap(mine) == []


def test_a_thread_that_was_taken_for_hung_while_it_waited_for_the_database_gives_back_what_it_gets(
    store: Store, task: Task
) -> None:
    database = Failing(store)
    mine = ownership(store, database=database)
    taken: list[Reclaimed] = []

    class Waiting:
        """The first write waits for so long that its thread is taken for hung."""

        def write(self):  # type: ignore[no-untyped-def]
            self.write = database.write  # type: ignore[method-assign]
            store.clock.advance(BACKSTOP_S + 1)
            taken.extend(reap(mine))
            return database.write()

        def read(self):  # type: ignore[no-untyped-def]
            return database.read()

        def close(self) -> None:
            """It is the store's."""

    mine._database = Waiting()
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is None
    assert len(taken) == 1
    assert rows(store) == 0
    assert BootId(ME) == mine.boot_id


def test_a_person_takes_a_task_from_a_living_owner(store: Store, task: Task) -> None:
    """No age is asked for; what the owner still does is refused (FR-6)."""
    mine, theirs = ownership(store), ownership(store, OTHER)
    with theirs.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        assert mine.owner_of(task) == "monitor"
        taken = mine.release_by_person(task.id, person="Ann", reason="it hangs")
        assert taken is not None
        assert (taken.why, taken.owner, taken.own) == (Why.FORCED, "monitor", False)
        assert mine.owner_of(task) is None
        with store.database.write() as tx, pytest.raises(LostRace):
            leases.check(tx, lease)
    (event,) = store.rows("SELECT actor, data FROM events WHERE type = 'lease.reclaimed'")
    told = json.loads(event["data"])
    assert (event["actor"], told["person"], told["reason"]) == ("operator", "Ann", "it hangs")
    (alert,) = store.rows("SELECT payload FROM outbox")
    assert "was taken away by Ann: it hangs" in json.loads(alert["payload"])["text"]
    assert counts(mine) == (0, 1)


def test_a_person_takes_a_task_from_a_thread_of_this_very_process(store: Store, task: Task) -> None:
    mine = ownership(store)
    with mine.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        taken = mine.release_by_person(task.id, person="Ann", reason="")
        assert taken is not None
        assert taken.own
        with mine.transition(task.id, Actor.RECONCILER) as successor:
            assert successor is not None


def test_there_is_nothing_to_release_where_nobody_owns(store: Store, task: Task) -> None:
    mine, off = ownership(store), ownership(store, OTHER, scope=OFF)
    assert mine.release_by_person(task.id, person="Ann", reason="") is None
    assert mine.release_by_person(TaskId(404), person="Ann", reason="") is None
    register(store, BootId("third"))
    plant(store, task, boot_id="third")
    assert off.owner_of(task) is None  # leases are not read
    assert rows(store) == 1
    assert counts(mine) == (0, 0)
