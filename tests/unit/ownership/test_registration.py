"""This process on the list: a heartbeat renews its term, a row that is gone ends it, no fault ends the heartbeats."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from orchestrator.daemons.heartbeat import Heartbeat
from orchestrator.db import homes, installation, leases
from orchestrator.db.database import Database, Tx
from orchestrator.domain.errors import DatabaseError, OperatorError, OrchestratorError
from orchestrator.domain.ids import SHARED_HOME, BootId, Home
from orchestrator.domain.lease import switches
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.ownership.judge import Judge
from orchestrator.ownership.registration import SERVING, WORKER, OwnHome, Registration
from orchestrator.ownership.term import Term
from orchestrator.runtime.process import SystemProcesses
from tests.fixtures_db import Store
from tests.fixtures_ownership import Logged, register

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


def registration(
    store: Store,
    database: Database | None = None,
    *,
    boot_id: BootId = ME,
    scope: Scope = EVERYTHING,
    state: str = "",
    home: Home = SHARED_HOME,
    role: str = "serve",
) -> Registration:
    said = switches(scope) + (f" state={state}" if state else "")
    own = OwnHome(home, "/state", 960.0) if home else None
    term, processes = Term(store.clock, TTL_S), SystemProcesses()
    judge = Judge(boot_id=boot_id, processes=processes, clock=store.clock, term=term)
    return Registration(
        database or store.database, boot_id, processes, store.clock, term, judge,
        WORKER if home else role, said, "one" if home else "", own,
    )  # fmt: skip


def on_the_list(store: Store) -> list[str]:
    return [row["heartbeat_at"] for row in store.rows("SELECT heartbeat_at FROM processes")]


def test_a_term_begins_with_the_entry_and_goes_on_with_each_heartbeat(store: Store) -> None:
    me = registration(store)
    assert me.term.number() is None
    me.enter()
    assert me.term.snapshot() == {"trusted": True, "length_s": 20.0, "left_s": 20.0}
    for _ in range(5):
        store.clock.advance(TTL_S / 2)
        assert Heartbeat(me, ends=pytest.fail, interval_s=5.0).run_once() == {"beats": 1}
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


def test_heartbeats_that_fail_let_the_term_end_and_go_on(store: Store, logged: Logged) -> None:
    database = Slow(store)
    me = registration(store, database)
    me.enter()
    database.broken = True
    store.clock.advance(19.0)
    assert Heartbeat(me, ends=pytest.fail, interval_s=5.0).run_once() == {"beats": 0}
    assert "disk I/O error" in str(logged)
    assert me.term.number() == 0
    store.clock.advance(1.0)
    assert me.term.number() is None
    database.broken = False
    assert me.beat()
    assert me.term.number() == 1


def test_a_process_that_was_taken_off_the_list_stops_and_enters_itself_anew(
    store: Store, logged: Logged
) -> None:
    me = registration(store)
    me.enter()
    with store.database.write() as tx:
        leases.forget_process(tx, ME)
    assert me.beat()
    assert "off the list" in str(logged)
    assert len(on_the_list(store)) == 1
    assert me.term.number() == 1  # what was acquired before is not trusted any more


def test_who_cannot_enter_itself_anew_is_not_trusted(store: Store) -> None:
    me = registration(store)
    me.enter()
    store.refuse("no_room", "processes", "INSERT", "the list is full")
    store.raw("DELETE FROM processes")
    assert not me.beat()
    assert me.term.number() is None


def test_what_a_lease_still_names_is_not_forgotten(store: Store) -> None:
    me = registration(store)
    me.enter()
    store.raw("INSERT INTO transition_lease (task_id, owner, owner_boot_id) VALUES (1, 'monitor', 'me')")
    me.leave()
    assert len(on_the_list(store)) == 1


SHOP = Scope(repos=frozenset({"shop"}))


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (EVERYTHING, Scope(enabled=False), "transition_lease is on there and off here"),
        (Scope(enabled=False), EVERYTHING, "transition_lease is off there and on here"),
        (SHOP, EVERYTHING, "repos is shop there and * here"),
        (Scope(repos=frozenset()), SHOP, "repos is - there and shop here"),
    ],
)
def test_processes_with_different_switches_refuse_to_run_together(
    store: Store, theirs: Scope, ours: Scope, said: str
) -> None:
    registration(store, boot_id=BootId("first"), scope=theirs).enter()
    me = registration(store, scope=ours)
    with pytest.raises(OperatorError) as refused:
        me.enter()
    assert said in refused.value.message
    assert f"serve (pid {SystemProcesses().own().pid}" in refused.value.message
    assert "ORCH_TRANSITION_LEASE_REPOS" in refused.value.hint
    assert me.term.number() is None
    assert [row["boot_id"] for row in store.rows("SELECT boot_id FROM processes")] == ["first"]


def test_the_same_scope_said_differently_is_the_same(store: Store) -> None:
    """What counts is which repositories the settings come down to."""
    registration(store, boot_id=BootId("first"), scope=SHOP).enter()
    registration(store, scope=Scope(repos=frozenset(), self_repo="shop")).enter()


@pytest.mark.parametrize(
    "gone", [{"start_ticks": 1}, {"machine_boot_id": "another", "silent": True}], ids=str
)
def test_what_a_dead_process_had_does_not_matter(store: Store, gone: dict[str, object]) -> None:
    identity = {name: value for name, value in gone.items() if name != "silent"}
    register(store, **identity)  # with switches of an older version
    if "silent" in gone:
        store.clock.advance(TTL_S + 1)
    registration(store).enter()


def test_an_unknown_process_counts_until_its_term_has_ended(store: Store) -> None:
    register(store, machine_boot_id="another")
    with pytest.raises(OperatorError, match="transition_lease is not said there and on here"):
        registration(store).enter()
    store.clock.advance(TTL_S + 1)
    registration(store).enter()


def test_who_was_off_the_list_does_not_come_back_beside_other_switches(store: Store, logged: Logged) -> None:
    me = registration(store)
    me.enter()
    store.raw("DELETE FROM processes")
    other = registration(store, boot_id=BootId("other"), scope=Scope(enabled=False))
    other.enter()
    assert not me.beat()
    assert "runs with other switches" in str(logged)
    assert me.term.number() is None
    other.leave()
    assert me.beat()
    assert me.term.number() == 1


def test_a_worker_has_a_state_folder_of_its_own_beside_the_others_and_is_heard_of(store: Store) -> None:
    registration(store, boot_id=BootId("first"), state="theirs").enter()
    worker = registration(store, home=Home("mine"))
    worker.enter()
    registration(store, boot_id=BootId("second"), state="theirs").enter()
    for passed, lost in ((961.0, True), (0.0, False)):
        store.clock.advance(passed)
        if not lost:
            assert worker.beat()
        with store.database.read() as tx:
            found = homes.get(tx, Home("mine"))
        assert found is not None
        assert (found.lost, found.host, found.folder) == (lost, "one", "/state")


def test_a_worker_that_is_refused_again_and_again_keeps_its_home_no_longer_alive(store: Store) -> None:
    """Nobody looks after what lies there: it is to be done anew elsewhere."""
    worker = registration(store, home=Home("mine"))
    worker.enter()
    worker.leave()
    registration(store, boot_id=BootId("other"), scope=Scope(enabled=False)).enter()
    for _ in range(4):
        store.clock.advance(300.0)
        with store.database.write() as tx:
            leases.heartbeat(tx, BootId("other"))
        with pytest.raises(OperatorError, match="runs with other switches"):
            worker.enter()
    with store.database.read() as tx:
        found = homes.get(tx, Home("mine"))
    assert found is not None
    assert found.lost


@pytest.mark.parametrize("worker_first", [True, False])
def test_no_state_folder_is_an_orchestrator_s_and_a_worker_s(store: Store, worker_first: bool) -> None:
    served = registration(store, boot_id=BootId("first"), state="one-folder")
    worker = registration(store, home=Home("one-folder"))
    first, second = (worker, served) if worker_first else (served, worker)
    first.enter()
    with pytest.raises(OperatorError, match="This state folder is"):
        second.enter()
    assert len(on_the_list(store)) == 1
    with store.database.read() as tx:
        assert (homes.get(tx, Home("one-folder")) is not None) is worker_first


# -- the state folder that belongs to the database -----------------------------------------------------------------


def folder(store: Store) -> str | None:
    with store.database.read() as tx:
        return installation.folder(tx)


@pytest.mark.parametrize("role", ["serve", "run", "task add", "doctor"])
def test_the_folder_of_the_first_that_serves_is_remembered_and_another_one_refused(
    store: Store, role: str
) -> None:
    first = registration(store, state="theirs", role=role)
    first.enter()
    first.leave()
    assert folder(store) == ("theirs" if role in SERVING else None)
    registration(store, state="theirs").enter()
    store.raw("DELETE FROM processes")
    for late in (role, "serve", "restore accept"):
        other = registration(store, boot_id=BootId("other"), state="empty", role=late)
        with pytest.raises(OperatorError, match="not the one that belongs to the database") as refused:
            other.enter()
        assert "Nothing was started" in refused.value.message
        assert "ORCH_HOME" in refused.value.hint
        assert "orch restore folder" in refused.value.hint
    assert on_the_list(store) == []
    assert folder(store) == "theirs"


def test_of_two_with_different_folders_that_start_at_once_one_is_let_in(store: Store) -> None:
    together = threading.Barrier(2)

    def start(name: str) -> bool:
        together.wait()
        try:
            registration(store, boot_id=BootId(name), state=name).enter()
        except OperatorError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        let_in = list(pool.map(start, ("one", "two")))
    assert sorted(let_in) == [False, True]
    assert folder(store) == ("one" if let_in[0] else "two")
    assert [row["boot_id"] for row in store.rows("SELECT boot_id FROM processes")] == [folder(store)]


def test_the_folder_of_one_that_is_refused_for_another_reason_is_not_remembered(store: Store) -> None:
    """The other one is of a version that stored none, or a worker's."""
    registration(store, boot_id=BootId("old"), state="theirs").enter()
    store.raw("UPDATE installation SET state_id = NULL")
    with pytest.raises(OperatorError, match="state is theirs there and empty here"):
        registration(store, state="empty").enter()
    assert folder(store) is None
    registration(store, boot_id=BootId("worker"), home=Home("mine")).enter()
    store.raw("DELETE FROM processes")
    with pytest.raises(OperatorError, match="This state folder is a worker's"):
        registration(store, state="mine").enter()
    assert folder(store) is None


def test_a_worker_does_not_get_the_shared_folder_though_nobody_lives_there(store: Store) -> None:
    served = registration(store, state="theirs")
    served.enter()
    served.leave()
    with pytest.raises(OperatorError, match="is the one that the orchestrators share"):
        registration(store, home=Home("theirs")).enter()
    with store.database.read() as tx:
        assert homes.all_homes(tx) == []
    registration(store, home=Home("mine")).enter()
    assert folder(store) == "theirs"


def test_who_was_off_the_list_while_another_folder_was_taken_ends(store: Store) -> None:
    """It hung for so long that it was taken for dead."""
    me = registration(store, state="lost")
    me.enter()
    store.raw("DELETE FROM processes")
    store.raw("UPDATE installation SET state_id = 'new'")
    ended: list[OrchestratorError] = []
    assert Heartbeat(me, ends=ended.append, interval_s=5.0).run_once() == {"beats": 0}
    assert "not the one that belongs to the database" in str(ended)
    assert me.term.number() is None
    assert on_the_list(store) == []


def test_where_there_is_no_folder_to_share_none_is_remembered(store: Store) -> None:
    """A SQLite file lies in its folder."""
    registration(store).enter()
    assert folder(store) is None
