"""The inbox: deferred while a task is owned, nothing lost, poison parked, bounded passes (law 7, FR-5, TC-08)."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.daemons import inbox as daemon
from orchestrator.db import inbox, leases, tasks
from orchestrator.db.database import Tx
from orchestrator.db.inbox import Delivery
from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.runtime.waypoints import NoWaypoints
from orchestrator.webhooks.handler import Handled
from orchestrator.webhooks.plane import PlaneHandler, PlaneStates
from tests.deliveries import TICKET, USER, gitea_push, plane_comment, plane_state
from tests.fixtures_db import Store
from tests.fixtures_ownership import plant, register
from tests.fixtures_webhooks import Letters, letters_over
from tests.waiting import wait_until

WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
NOTHING = {"handled": 0, "deferred": 0, "failed": 0}


def ticket(letters: Letters, external_id: str = TICKET) -> Task:
    return letters.on_show(
        letters.store.new_task(stage=Stage.ANALYSIS, tracker="plane", external_id=external_id)
    )


def test_deferred_under_a_lease_and_not_lost(letters: Letters) -> None:
    """TC-08: the late signal of a person is applied to what it was given for, once the task is free."""
    task = ticket(letters)
    with letters.ownership.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        sent = letters.plane(plane_state("Approved"))
        assert letters.run() == {"handled": 0, "deferred": 1, "failed": 0}
        assert (letters.words(task), letters.outcome(sent)) == ([], None)
        assert letters.ownership.snapshot()["deferred"] == {"webhook": 1}
        assert letters.delivery(sent)["attempts"] == 0  # waiting is no failure
        assert letters.daemon.interval_s < 1  # it comes back soon
    letters.store.clock.advance(60)
    assert letters.run()["handled"] == 1
    assert letters.run() == NOTHING
    assert [word.signal.kind for word in letters.words(task)] == ["approved"]
    assert letters.daemon.interval_s == 60


@pytest.mark.parametrize("pid_namespace", ["", "pid:[1]"], ids=["alive", "unknown"])
def test_deferred_under_the_lease_of_another_process(letters: Letters, pid_namespace: str) -> None:
    """Of whom nothing is known is taken for alive: skip rather than do twice."""
    task = ticket(letters)
    register(letters.store, **({"pid_namespace": pid_namespace} if pid_namespace else {}))
    plant(letters.store, task)
    letters.plane(plane_state("Approved"))
    assert letters.run()["deferred"] == 1
    assert letters.words(task) == []
    letters.store.raw("DELETE FROM transition_lease")
    letters.store.clock.advance(60)
    assert letters.run()["handled"] == 1


def test_lease_of_the_dead_holds_nobody(letters: Letters) -> None:
    task = ticket(letters)
    letters.store.raw(
        "INSERT INTO transition_lease (task_id, owner, owner_boot_id) VALUES (:task, 'monitor', 'gone')",
        {"task": task.id},
    )
    letters.plane(plane_state("Approved"))
    assert letters.run()["handled"] == 1


def test_lease_that_cannot_be_read_is_taken_for_held(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved"))

    def unreadable(*_: object) -> None:
        raise DatabaseError("The disk is gone.")

    monkeypatch.setattr(leases, "get", unreadable)
    assert letters.run()["deferred"] == 1
    monkeypatch.undo()
    letters.store.clock.advance(60)
    letters.run()
    assert (len(letters.words(task)), letters.outcome(sent)) == (1, "stored as approved")


def test_deferral_holds_the_later_ones_of_its_task_and_nobody_else(letters: Letters) -> None:
    task, other = ticket(letters), ticket(letters, "another-ticket")
    with letters.ownership.transition(task.id, Actor.MONITOR):
        letters.plane(plane_comment("<p>orch reject no</p>"))
        letters.plane(plane_comment("<p>orch approve</p>"))
        letters.plane(plane_comment("<p>orch approve</p>", ticket="another-ticket"))
        assert letters.run() == {"handled": 1, "deferred": 1, "failed": 0}
    assert letters.run()["deferred"] == 1  # free, but not due: the order stays
    letters.store.clock.advance(60)
    letters.run()
    assert [word.signal.kind for word in letters.words(task)] == ["reject", "approved"]
    assert len(letters.words(other)) == 1


def test_pauses_grow_to_a_bound(letters: Letters) -> None:
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved"))
    with letters.ownership.transition(task.id, Actor.MONITOR):
        for _ in range(30):
            letters.run()
            letters.store.clock.advance(daemon.MAX_DEFER_S)
    assert letters.delivery(sent)["deferrals"] == 30
    assert letters.run()["handled"] == 1


def test_poison_is_parked_with_an_alert_and_holds_nobody(letters: Letters) -> None:
    task = ticket(letters)
    poison = letters.plane({**plane_state("Approved"), "data": {"id": TICKET}})
    letters.plane(plane_comment("<p>orch approve</p>"))
    assert letters.run() == {"handled": 0, "deferred": 0, "failed": 1}
    letters.plane(plane_comment("<p>orch approve</p>", ticket="nobody's"))
    assert letters.run()["handled"] == 1
    for _ in range(inbox.MAX_ATTEMPTS):
        letters.store.clock.advance(3600)
        letters.run()
    row = letters.delivery(poison)
    assert row["attempts"] == inbox.MAX_ATTEMPTS
    assert row["parked_at"]
    assert "does not say when" in row["error"]
    assert letters.outcome(poison) is None
    assert [word.signal.kind for word in letters.words(task)] == ["approved"]
    [alert] = [message for message in letters.messages() if "parked" in message]
    assert "does not say when" in alert
    [payload] = letters.store.rows("SELECT payload FROM outbox WHERE kind = 'alert'")
    assert json.loads(payload["payload"])["work_item"] == task.work_item  # by which it can be clicked
    assert letters.run() == NOTHING


def parked(letters: Letters) -> tuple[Task, int]:
    task = ticket(letters)
    sent = letters.plane({**plane_state("Approved"), "data": {"id": TICKET}})
    for _ in range(inbox.MAX_ATTEMPTS):
        letters.run()
        letters.store.clock.advance(3600)
    assert letters.delivery(sent)["parked_at"]
    return task, sent


def understand(letters: Letters, task: Task, sent: int) -> None:
    """Somebody has corrected what kept it from being understood."""
    letters.store.raw(
        "UPDATE inbox SET payload = :payload WHERE id = :id",
        {"payload": json.dumps(plane_state("Approved")), "id": sent},
    )


def test_parked_delivery_that_is_sent_again_is_looked_at_again(letters: Letters) -> None:
    task, sent = parked(letters)
    again = {**plane_state("Approved"), "data": {"id": TICKET}}
    before = letters.arrived
    assert letters.send("plane", "issue", again) is None
    assert letters.arrived == before + 1
    assert letters.run()["failed"] == 1  # one look, and no second alert
    assert letters.delivery(sent)["parked_at"]
    assert len([message for message in letters.messages() if "parked" in message]) == 1
    understand(letters, task, sent)
    letters.send("plane", "issue", again)
    assert letters.run()["handled"] == 1
    assert len(letters.words(task)) == 1


def test_parked_delivery_is_looked_at_again_by_the_next_life(letters: Letters) -> None:
    """It may have waited for that version, or for its settings."""
    task, sent = parked(letters)
    understand(letters, task, sent)
    assert letters.run() == NOTHING
    letters.open()
    assert letters.run()["handled"] == 1
    assert len(letters.words(task)) == 1
    assert letters.run() == NOTHING


def fill(letters: Letters, count: int = daemon.TOGETHER) -> None:
    """So many deliveries about nothing: what comes then is dealt with in the next commit."""
    for n in range(count):
        letters.plane(plane_comment(f"<p>{n}</p>", ticket="nobody's"))


def test_failure_holds_the_later_ones_of_its_task_in_every_commit_of_the_pass(letters: Letters) -> None:
    task = ticket(letters)
    letters.plane({**plane_state("Approved"), "data": {"id": TICKET}})
    fill(letters)
    letters.plane(plane_comment("<p>orch approve</p>"))
    assert letters.run() == {"handled": daemon.TOGETHER, "deferred": 0, "failed": 1}
    assert letters.words(task) == []


def test_task_that_is_taken_between_two_commits_of_a_pass_is_left_alone(store: Store) -> None:
    letters = letters_over(store)
    task = ticket(letters)
    register(store)

    class Taking(NoWaypoints):
        def reach(self, name: str, **data: object) -> None:
            if name == "inbox.after_handle" and not store.rows("SELECT * FROM transition_lease"):
                plant(store, task)

    letters.waypoints = Taking()
    letters.open()
    letters.plane(plane_comment("<p>hello</p>"))
    fill(letters)
    letters.plane(plane_comment("<p>orch approve</p>"))
    assert letters.run()["deferred"] == 1
    assert letters.words(task) == []


def test_payloads_are_read_while_no_writer_waits(letters: Letters) -> None:
    """Whatever reading takes, it holds up no commit of anybody."""
    task = ticket(letters)
    plane = letters.handlers[0]

    class Reading(PlaneHandler):
        def read(self, kind: str, payload: object) -> Any:
            with letters.store.database.write() as tx:
                tasks.hold(tx, task.id, Hold.PERSON, "somebody writes meanwhile")
            return plane.read(kind, payload)

    letters.handlers = (Reading(user=USER, states=PlaneStates(frozenset(), frozenset())),)
    letters.open()
    letters.plane(plane_comment("<p>orch approve</p>"))
    assert letters.run()["handled"] == 1
    assert letters.store.task(task.id).hold_reason == "somebody writes meanwhile"
    assert [word.signal.kind for word in letters.words(task)] == ["approved"]


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("about", [TICKET, "another-ticket"])
def test_delivery_that_another_service_deals_with_is_left_to_it(store: Store, about: str) -> None:
    """A file has one writer. At a server both have found it open."""
    letters, others = letters_over(store), letters_over(store)
    task = ticket(letters)
    beside = []

    class Slow(PlaneHandler):
        def handle(self, tx: Tx, delivery: Delivery, task: Task | None) -> Handled:
            done = super().handle(tx, delivery, task)
            beside.append(pool.submit(others.run))
            wait_until(lambda: beside[0].done() or store.rows(WAITING))
            return done

    letters.handlers = (Slow(user=USER, states=PlaneStates(frozenset({"approved"}), frozenset())),)
    letters.open()
    letters.plane(plane_state("Approved", ticket=about))
    with ThreadPoolExecutor(1) as pool:
        assert letters.run()["handled"] == 1
        assert beside[0].result() == NOTHING
    assert letters.told(task).count("signal.received") == (about == TICKET)


def test_fault_of_ours_costs_one_delivery(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    task = ticket(letters)

    def broken(self: PlaneHandler, tx: object, delivery: Delivery, task: Task | None) -> Handled:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(PlaneHandler, "handle", broken)
        sent = letters.plane(plane_state("Approved"))
        pushed = letters.gitea("push", gitea_push("x", "a" * 40))
        assert letters.run() == {"handled": 1, "deferred": 0, "failed": 1}
    assert letters.outcome(pushed)
    assert "fault of ours" in letters.delivery(sent)["error"]
    letters.store.clock.advance(3600)
    letters.run()
    assert len(letters.words(task)) == 1


def test_word_whose_commit_fails_is_said_again(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit closes the delivery and stores the word: neither without the other."""
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved"))

    def refuse(*_: object) -> bool:
        raise DatabaseError("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(daemon.mail, "handled", refuse)
        letters.run()
    assert (letters.words(task), letters.outcome(sent)) == ([], None)
    letters.store.clock.advance(60)
    letters.run()
    assert len(letters.words(task)) == 1


def test_ticket_that_is_filed_after_its_first_word(letters: Letters) -> None:
    """Its delivery is bound at the first look, and that look asks for the lease like every other."""
    sent = letters.plane(plane_state("Approved"))
    task = ticket(letters)
    with letters.ownership.transition(task.id, Actor.MONITOR):
        assert letters.run()["deferred"] == 1
    letters.store.clock.advance(60)
    letters.run()
    assert letters.outcome(sent) == "stored as approved"
    [word] = letters.words(task)
    assert word.signal.subject == "a" * 40


def test_ten_thousand_drain_in_bounded_passes(letters: Letters) -> None:
    task = ticket(letters)
    payload = plane_comment("<p>hello</p>")
    with letters.store.database.write() as tx:
        for n in range(10_000):
            new = inbox.NewDelivery("plane", "cycle", f"key-{n}", f"id-{n}", '{"data": {}}')
            assert inbox.store(tx, new, task if n % 3 else None, None) is not None
    last = letters.plane(payload)
    passes = 0
    while (done := letters.run())["handled"]:
        assert done["handled"] <= daemon.MAX_PASS
        assert done["deferred"] == 0
        passes += 1
        assert passes <= 10_001 // daemon.MAX_PASS + 1
    assert letters.outcome(last) == "nothing to do"
    assert letters.store.rows("SELECT count(*) AS n FROM inbox WHERE handled_at IS NULL")[0]["n"] == 0
    assert letters.daemon.interval_s == 60


def test_overdue_is_hastened(letters: Letters) -> None:
    """The reconciler's net: whatever pause a delivery was given, in the end it is looked at."""
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved"))
    with letters.store.database.write() as tx:
        inbox.defer(tx, sent, 10 * 24 * 3600)
    letters.store.clock.advance(daemon.OVERDUE_S / 2)
    assert (letters.daemon.hasten(), letters.run()["handled"]) == (0, 0)
    letters.store.clock.advance(daemon.OVERDUE_S)
    assert letters.run()["handled"] == 0
    assert letters.daemon.hasten() == 1
    assert letters.run()["handled"] == 1
    assert len(letters.words(task)) == 1


def test_counts(store: Store) -> None:
    letters = letters_over(store)
    task = ticket(letters)
    first = letters.plane(plane_state("Approved"))
    letters.plane(plane_comment("<p>orch approve</p>"))
    poison = letters.gitea("push", {"ref": 5})
    with letters.ownership.transition(task.id, Actor.MONITOR):
        letters.run()
    with store.database.write() as tx:
        for _ in range(inbox.MAX_ATTEMPTS):
            inbox.failed(tx, poison, "no", 0.0)
    with store.database.read() as tx:
        counts = inbox.counts(tx)
    assert (counts.open, counts.deferred, counts.parked) == (3, 1, 1)
    [row] = store.rows("SELECT received_at FROM inbox WHERE id = :id", {"id": first})
    assert counts.oldest == row["received_at"]
