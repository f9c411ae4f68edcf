"""This process on the list: a heartbeat renews its term, a row that is gone ends it, no fault ends the heartbeats."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.daemons.heartbeat import Heartbeat
from orchestrator.db import leases
from orchestrator.db.database import Database, Tx
from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.ids import BootId
from orchestrator.ownership.registration import Registration
from orchestrator.ownership.term import Term
from orchestrator.runtime.process import SystemProcesses
from tests.fixtures_db import Store

TTL_S, ME = 30.0, BootId("me")


class Slow:
    """The real database, whose writes take time; or fail, while ``broken``."""

    def __init__(self, store: Store, *, takes_s: float = 0.0) -> None:
        self._store = store
        self._takes_s = takes_s
        self.broken = False

    @contextmanager
    def write(self) -> Iterator[Tx]:
        if self.broken:
            raise DatabaseError("The database refused: disk I/O error.")
        self._store.clock.advance(self._takes_s)
        with self._store.database.write() as tx:
            yield tx

    @contextmanager
    def read(self) -> Iterator[Tx]:
        with self._store.database.read() as tx:
            yield tx

    def close(self) -> None:
        """It is the store's."""


def registration(store: Store, database: Database | None = None) -> Registration:
    term = Term(store.clock, TTL_S)
    return Registration(
        database or store.database, ME, SystemProcesses(), store.clock, term, "test", "transition_lease=on"
    )


def on_the_list(store: Store) -> list[str]:
    return [row["heartbeat_at"] for row in store.rows("SELECT heartbeat_at FROM processes")]


def test_a_term_begins_with_the_entry_and_goes_on_with_each_heartbeat(store: Store) -> None:
    me = registration(store)
    assert me.term.number() is None
    me.enter()
    assert me.term.snapshot() == {"trusted": True, "length_s": 20.0, "left_s": 20.0}
    for _ in range(5):
        store.clock.advance(TTL_S / 2)
        assert Heartbeat(me, interval_s=5.0).run_once() == {"beats": 1}
        assert me.term.number() == 0
    assert on_the_list(store) == ["2026-01-05T10:01:15.000000Z"]
    me.leave()
    assert me.term.number() is None
    assert on_the_list(store) == []


def test_a_term_counts_from_before_the_heartbeat_was_sent(store: Store) -> None:
    """However long the answer takes: by then others may count for longer already."""
    me = registration(store, Slow(store, takes_s=7.0))
    me.enter()
    assert me.term.snapshot()["left_s"] == 13.0
    assert me.beat()
    assert me.term.snapshot()["left_s"] == 13.0


def test_heartbeats_that_fail_let_the_term_end_and_go_on(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    database = Slow(store)
    me = registration(store, database)
    me.enter()
    database.broken = True
    store.clock.advance(19.0)
    assert Heartbeat(me, interval_s=5.0).run_once() == {"beats": 0}
    assert "disk I/O error" in capsys.readouterr().out
    assert me.term.number() == 0
    store.clock.advance(1.0)
    assert me.term.number() is None
    database.broken = False
    assert me.beat()
    assert me.term.number() == 1


def test_a_process_that_was_taken_off_the_list_stops_and_enters_itself_anew(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    me = registration(store)
    me.enter()
    with store.database.write() as tx:
        leases.forget_process(tx, ME)
    assert me.beat()
    assert "off the list" in capsys.readouterr().out
    assert len(on_the_list(store)) == 1
    assert me.term.number() == 1  # what was acquired before is not trusted any more


def test_who_cannot_enter_itself_anew_is_not_trusted(store: Store) -> None:
    me = registration(store)
    me.enter()
    store.raw(
        "CREATE TRIGGER full BEFORE INSERT ON processes BEGIN SELECT RAISE(ABORT, 'the list is full'); END"
    )
    store.raw("DELETE FROM processes")
    assert not me.beat()
    assert me.term.number() is None


def test_what_a_lease_still_names_is_not_forgotten(store: Store) -> None:
    me = registration(store)
    me.enter()
    store.raw("INSERT INTO transition_lease (task_id, owner, owner_boot_id) VALUES (1, 'monitor', 'me')")
    me.leave()
    assert len(on_the_list(store)) == 1
