"""Messages in: once, bound to what was on show. Messages out: at least once, in order per task, poison parked."""

import pytest

from orchestrator.db import alerts, mail, restored
from orchestrator.db.mail import MAX_ATTEMPTS, OutgoingMessage
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal, Task
from tests.fixtures_db import REFUSED, Store


def send(store: Store, task: Task | None, *ids: str) -> None:
    with store.database.write() as tx:
        for stable_id in ids:
            mail.send(tx, "alert", stable_id, {"text": "Привет"}, task_id=task.id if task else None)


def due(store: Store) -> list[OutgoingMessage]:
    with store.database.read() as tx:
        return mail.due(tx)


def fail(store: Store, message: OutgoingMessage, delay_s: float = 0.0) -> None:
    with store.database.write() as tx:
        mail.failed(tx, message, "no answer", delay_s)


def test_a_task_hears_its_messages_in_order(store: Store) -> None:
    one, two = store.new_task(), store.new_task()
    send(store, one, "a", "b")
    send(store, two, "c")
    first = due(store)
    assert [(message.stable_id, message.payload) for message in first] == [
        ("a", {"text": "Привет"}),
        ("c", {"text": "Привет"}),
    ]
    with store.database.write() as tx:
        mail.sent(tx, first[0])
    assert [message.stable_id for message in due(store)] == ["b", "c"]


def test_messages_of_no_task_do_not_wait_for_each_other(store: Store) -> None:
    send(store, None, "a", "b")
    assert [message.stable_id for message in due(store)] == ["a", "b"]


def test_the_same_id_is_one_message(store: Store) -> None:
    send(store, store.new_task(), "a", "a")
    assert len(due(store)) == 1


def test_a_failed_message_waits_and_holds_the_next_one_back(store: Store) -> None:
    send(store, store.new_task(), "a", "b")
    fail(store, due(store)[0], 60)
    assert due(store) == []
    store.clock.advance(60)
    assert [(message.stable_id, message.attempts) for message in due(store)] == [("a", 1)]


def test_a_poison_message_is_parked_and_lets_the_others_pass(store: Store) -> None:
    send(store, store.new_task(), "poison", "b")
    for _ in range(MAX_ATTEMPTS):
        fail(store, due(store)[0])
    assert [message.stable_id for message in due(store)] == ["b"]


def word(subject: str | None = "sha", reason: str = "") -> Signal:
    return Signal("approved", Stage.ANALYSIS, 1, subject, "a person", reason, {"via": "page"})


def test_a_word_is_stored_once_and_told_in_order(store: Store) -> None:
    task = store.new_task()
    with store.database.write() as tx:
        first = mail.receive(tx, task, word(reason="so be it"), source="api", dedup_key="1")
        assert mail.receive(tx, task, word(reason="again"), source="api", dedup_key="1") is None
        second = mail.receive(tx, task, word(None), source="api", dedup_key="2")
        assert first is not None
        assert second is not None
        waiting = mail.waiting_signals(tx, task.id)
        assert [found.inbox_id for found in waiting] == [first, second]
        said = waiting[0].signal
        assert (said.stage, said.round, said.subject, said.person, said.reason) == (
            Stage.ANALYSIS,
            1,
            "sha",
            "a person",
            "so be it",
        )
        assert mail.tasks_with_signals(tx) == [task.id]
        assert mail.handled(tx, first, "applied")
        assert not mail.handled(tx, first, "refused")
        assert (mail.outcome_of(tx, first), mail.outcome_of(tx, second)) == ("applied", None)
        assert mail.handled(tx, second, "refused")
        assert mail.tasks_with_signals(tx) == []


def test_an_approval_is_of_exactly_what_was_on_show(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        mail.approve(tx, task, "approved", "sha-1", "anna")
        mail.approve(tx, task, "approved", "sha-1", "boris")
        assert mail.approved(tx, task, "approved", "sha-1") == "anna"
        assert mail.approved(tx, task, "approved", "sha-2") is None
        assert mail.approved(tx, task, "confirm-deploy", "sha-1") is None
    store.move(task.id, Stage.REVIEW)
    again = store.move(task.id, Stage.DEVELOPMENT)
    with store.database.read() as tx:
        assert mail.approved(tx, again, "approved", "sha-1") is None  # another round


def test_after_an_accepted_restore_the_same_number_is_another_message(store: Store) -> None:
    """And what waited to be sent keeps its name: whoever has had it is not told again."""
    send(store, store.new_task(), "a")
    with store.database.write() as tx:
        restored.name_messages_anew(tx, "token")
        assert not mail.known(tx, "a")
    send(store, None, "a", "a")
    assert [message.stable_id for message in due(store)] == ["a", "a@token"]
    with store.database.read() as tx:
        assert mail.known(tx, "a")


def test_an_alert_is_copied_to_each_further_channel_and_nothing_else_is(store: Store) -> None:
    """Under the name that it has after an accepted restore, too."""

    def lying(channel: str | None) -> list[tuple[str, str, object]]:
        with store.database.read() as tx:
            found = mail.due(tx, channel=channel)
        return [(message.stable_id, message.channel, message.task_id) for message in found]

    task = store.new_task()
    with store.database.write() as tx:
        alerts.call(tx, "before", "before")
        for channels in (["x"], ["far", "near"], ["near", "far"]):
            mail.set_channels(tx, channels)
    with store.database.write() as tx:
        alerts.call(tx, "ill", "health", task_id=task.id, work_item=task.work_item)
        alerts.call(tx, "ill, said otherwise", "health")
        restored.name_messages_anew(tx, "token")
        alerts.call(tx, "ill again", "health")
        mail.send(tx, "tracker.comment", "words", {"text": "x"}, task_id=None)
    assert lying(None) == [
        ("alert:before", "alert", None),
        ("alert:health", "alert", task.id),
        ("alert:health@token", "alert", None),
        ("words@token", "tracker", None),
    ]
    for channel in ("far", "near"):
        assert lying(channel) == [
            (f"alert:health#{channel}", channel, None),
            (f"alert:health@token#{channel}", channel, None),
        ]
    assert lying("x") == []


def test_only_an_alert_can_be_for_a_channel(store: Store) -> None:
    """The schema's own guard."""
    send(store, None, "a")
    with pytest.raises(REFUSED):
        store.raw("UPDATE outbox SET kind = 'tracker.comment', channel = 'far'")


def test_what_is_given_up_for_good_is_parked_at_once(store: Store) -> None:
    send(store, None, "a")
    [message] = due(store)
    with store.database.write() as tx:
        assert mail.failed(tx, message, "no", 5.0, for_good=True).parked
    assert due(store) == []
