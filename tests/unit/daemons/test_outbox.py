"""The postman: what cannot be understood fails like what cannot be sent, and holds up nobody for ever."""

from pathlib import Path

import pytest

from orchestrator.daemons.outbox import Outbox
from orchestrator.db import mail
from orchestrator.notifications.log import LogNotifier
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


@pytest.mark.parametrize(("kind", "payload"), MALFORMED)
def test_malformed_message_parks_and_lets_the_others_pass(
    store: Store, tmp_path: Path, kind: str, payload: str
) -> None:
    clock = SystemClock()
    notifier = LogNotifier(tmp_path, clock, Redactor(), get_logger("test"))
    outbox = Outbox(
        store.database,
        LocalTracker(tmp_path, clock, Redactor()),
        notifier,
        base_url="",
        interval_s=1.0,
        entropy=SystemEntropy(),
        telemetry=(telemetry := Telemetry()),
    )
    task = store.new_task()
    with store.database.write() as tx:
        mail.send(tx, kind, "poison", {}, task_id=task.id)
        mail.send(tx, "alert", "same task", {"text": "later"}, task_id=task.id)
        mail.send(tx, "alert", "no task", {"text": "at once"}, task_id=None)
    store.raw("UPDATE outbox SET payload = :payload WHERE stable_id = 'poison'", {"payload": payload})
    assert outbox.run_once() == {"sent": 1, "failed": 1}
    assert [alert["text"] for alert in notifier.alerts()] == ["at once"]
    for _ in range(mail.MAX_ATTEMPTS):
        store.clock.advance(3600)
        outbox.run_once()
    assert [alert["text"] for alert in notifier.alerts()] == ["at once", "later"]
    counted = telemetry.snapshot()
    channel = kind.partition(".")[0]
    assert counted[Metric.MESSAGES_SENT] == {"alert": 2}
    assert counted[Metric.MESSAGES_FAILED] == {channel: mail.MAX_ATTEMPTS - 1}
    assert counted[Metric.MESSAGES_PARKED] == {channel: 1}
