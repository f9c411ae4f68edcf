"""The postman: what cannot be understood fails like what cannot be sent, and holds up nobody for ever."""

import re
from pathlib import Path

import pytest

from orchestrator.daemons.outbox import Outbox
from orchestrator.db import alerts, mail
from orchestrator.domain.errors import OutsideError
from orchestrator.notifications.log import LogNotifier
from orchestrator.notifications.notifier import Notifier
from orchestrator.observability.log import get_logger
from orchestrator.observability.redactor import Redactor
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.trackers.local import LocalTracker
from tests.fixtures_db import Store

MALFORMED = [
    ("alert", "{}"),
    ("alert", "[1]"),
    ("alert", "null"),
    ("tracker.stage", "{}"),
    ("tracker.stage", '{"stage": "lunch"}'),
    ("tracker.comment", '"words"'),
]


class Mute:
    """A channel of alerts that is down."""

    def __init__(self, refuses: str) -> None:
        self.refuses, self.sent = refuses, list[str]()

    def send(self, text: str, *, work_item: str | None, url: str | None, message_id: str) -> None:
        if re.search(self.refuses, text):
            raise OutsideError("The channel is down.")
        self.sent.append(text)


def postman(store: Store, home: Path, notifier: Notifier, telemetry: Telemetry) -> Outbox:
    return Outbox(
        store.database,
        LocalTracker(home, SystemClock(), Redactor()),
        notifier,
        base_url="",
        interval_s=1.0,
        entropy=SystemEntropy(),
        telemetry=telemetry,
    )


def lying_there(store: Store) -> mail.Lying:
    with store.database.read() as tx:
        return mail.lying(tx)


def test_an_alert_about_the_channel_of_alerts_does_not_loop(store: Store, tmp_path: Path) -> None:
    """One more is tried for each, for it may be the alert itself that cannot be sent; and no more after that."""
    outbox = postman(store, tmp_path, Mute("."), Telemetry())
    task = store.new_task()
    with store.database.write() as tx:
        alerts.call(tx, "production is ill", "health", task_id=task.id, work_item=task.work_item)
    for _ in range(4 * mail.MAX_ATTEMPTS):
        store.clock.advance(3600)
        outbox.run_once()
    assert (lying_there(store).waiting, lying_there(store).parked) == (0, 2)


def test_a_parked_alert_is_told_with_what_it_said(store: Store, tmp_path: Path) -> None:
    outbox = postman(store, tmp_path, channel := Mute("^production is ill"), Telemetry())
    with store.database.write() as tx:
        alerts.call(tx, "production is ill", "health")
    for _ in range(2 * mail.MAX_ATTEMPTS):
        store.clock.advance(3600)
        outbox.run_once()
    [told] = channel.sent
    assert "production is ill" in told
    assert "The channel is down." in told


def test_a_parked_message_is_told_although_later_ones_of_its_task_wait(store: Store, tmp_path: Path) -> None:
    outbox = postman(store, tmp_path, channel := Mute("^ill"), Telemetry())
    task = store.new_task()
    with store.database.write() as tx:
        mail.send(tx, "alert", "first", {"text": "ill"}, task_id=task.id)
    for _ in range(mail.MAX_ATTEMPTS - 1):
        store.clock.advance(3600)
        outbox.run_once()
    with store.database.write() as tx:
        mail.send(tx, "alert", "second", {"text": "ill, too"}, task_id=task.id)
    store.clock.advance(3600)
    outbox.run_once()
    outbox.run_once()
    assert len(channel.sent) == 1


def test_what_lies_there_is_counted(store: Store, tmp_path: Path) -> None:
    assert lying_there(store) == mail.Lying(0, 0, None)
    outbox = postman(store, tmp_path, Mute("^ill"), Telemetry())
    with store.database.write() as tx:
        mail.send(tx, "alert", "first", {"text": "ill"}, task_id=None)
        mail.send(tx, "alert", "second", {"text": "well"}, task_id=None)
    [(first,)] = store.rows("SELECT created_at FROM outbox WHERE stable_id = 'first'")
    assert lying_there(store) == mail.Lying(2, 0, first)
    outbox.run_once()
    assert lying_there(store) == mail.Lying(1, 0, first)
    for _ in range(2 * mail.MAX_ATTEMPTS):
        store.clock.advance(3600)
        outbox.run_once()
    assert lying_there(store) == mail.Lying(0, 1, None)


@pytest.mark.parametrize(("kind", "payload"), MALFORMED)
def test_malformed_message_parks_and_lets_the_others_pass(
    store: Store, tmp_path: Path, kind: str, payload: str
) -> None:
    notifier = LogNotifier(tmp_path, SystemClock(), Redactor(), get_logger("test"))
    outbox = postman(store, tmp_path, notifier, telemetry := Telemetry())
    task = store.new_task()
    with store.database.write() as tx:
        mail.send(tx, kind, "poison", {}, task_id=task.id)
        mail.send(tx, "alert", "same task", {"text": "later"}, task_id=task.id)
        mail.send(tx, "alert", "no task", {"text": "at once"}, task_id=None)
    store.raw("UPDATE outbox SET payload = :payload WHERE stable_id = 'poison'", {"payload": payload})
    assert outbox.run_once() == {"sent": 1, "failed": 1}
    assert [alert["text"] for alert in notifier.alerts()] == ["at once"]
    for _ in range(2 * mail.MAX_ATTEMPTS):
        store.clock.advance(3600)
        outbox.run_once()
    first, *others = notifier.alerts()
    assert first["text"] == "at once"
    [told] = [alert for alert in others if alert["text"] != "later"]  # once, whatever the attempts
    assert len(others) == 2
    assert kind in told["text"]
    assert told["work_item"] == task.work_item
    counted = telemetry.snapshot()
    channel = kind.partition(".")[0]
    assert counted[Metric.MESSAGES_SENT] == {"alert": 3}
    assert counted[Metric.MESSAGES_FAILED] == {channel: mail.MAX_ATTEMPTS - 1}
    assert counted[Metric.MESSAGES_PARKED] == {channel: 1}
