"""The postman: what cannot be understood fails like what cannot be sent, and holds up nobody for ever."""

import json
import re
from pathlib import Path

import pytest

from orchestrator.daemons.outbox import CLAIM_S, Outbox
from orchestrator.db import alerts, mail
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.task import Task
from orchestrator.notifications.log import LogNotifier
from orchestrator.notifications.notifier import Notifier, NotNow, Undeliverable
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


class Further:
    """A further channel; each next message meets an error, or none."""

    name = "further"

    def __init__(self, *errors: OutsideError | None) -> None:
        self.errors, self.sent = list(errors), list[str]()

    def send(self, text: str, *, work_item: str | None, url: str | None, message_id: str) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.sent.append(text)


def further(store: Store, home: Path, channel: Further, telemetry: Telemetry) -> Outbox:
    """Its own outbox; from now on alerts are queued for it."""
    with store.database.write() as tx:
        mail.set_channels(tx, ["further"])
    return Outbox(
        store.database,
        LocalTracker(home, SystemClock(), Redactor()),
        channel,
        base_url="",
        interval_s=1.0,
        entropy=SystemEntropy(),
        telemetry=telemetry,
        channel="further",
    )


def called(store: Store, text: str, task: Task | None = None) -> None:
    with store.database.write() as tx:
        alerts.call(
            tx, text, text, task_id=task.id if task else None, work_item=task.work_item if task else None
        )


class TestFurtherChannels:
    def test_each_channel_gets_each_alert_once(self, store: Store, tmp_path: Path) -> None:
        called(store, "before there was one")
        first = postman(store, tmp_path, Mute("$^"), telemetry := Telemetry())
        second = further(store, tmp_path, channel := Further(), telemetry)
        for _ in range(2):
            called(store, "production is ill")
        for outbox in (second, first, second, first):
            outbox.run_once()
        assert first._notifier.sent == ["before there was one", "production is ill"]  # type: ignore[attr-defined]
        assert channel.sent == ["production is ill"]
        assert telemetry.snapshot()[Metric.MESSAGES_SENT] == {"alert": 2, "further": 1}

    def test_an_alert_that_is_not_stored_is_copied_to_nobody(self, store: Store, tmp_path: Path) -> None:
        second = further(store, tmp_path, Further(), Telemetry())
        with pytest.raises(LookupError), store.database.write() as tx:
            alerts.call(tx, "ill", "health")
            raise LookupError
        assert second.run_once() == {"sent": 0, "failed": 0}
        assert store.rows("SELECT * FROM outbox") == []

    @pytest.mark.parametrize("down", ["first", "second"])
    def test_one_that_is_down_neither_holds_nor_repeats_the_other(
        self, store: Store, tmp_path: Path, down: str
    ) -> None:
        log = Mute("." if down == "first" else "$^")
        first = postman(store, tmp_path, log, Telemetry())
        errors = [OutsideError("It is down.")] * 5 if down == "second" else []
        second = further(store, tmp_path, channel := Further(*errors), Telemetry())
        called(store, "ill")
        for _ in range(5):
            store.clock.advance(3600)
            first.run_once()
            second.run_once()
        assert (log.sent, channel.sent) == (([], ["ill"]) if down == "first" else (["ill"], []))

    def test_a_copy_waits_for_nothing_else_of_its_task(self, store: Store, tmp_path: Path) -> None:
        """A tracker that is down must not keep people from hearing of it."""
        second = further(store, tmp_path, channel := Further(), Telemetry())
        task = store.new_task()
        with store.database.write() as tx:
            mail.send(tx, "tracker.comment", "stuck", {"text": "x"}, task_id=task.id)
        called(store, "ill", task)
        second.run_once()
        assert channel.sent == ["ill"]

    def test_not_now_ends_the_pass_and_costs_no_attempt(self, store: Store, tmp_path: Path) -> None:
        second = further(
            store, tmp_path, channel := Further(None, NotNow("later", after_s=37.0)), Telemetry()
        )
        for text in ("one", "two", "three"):
            called(store, text)
        assert second.run_once() == {"sent": 1, "failed": 0}
        assert second.interval_s == 37.0
        assert [row["attempts"] for row in store.rows("SELECT attempts FROM outbox")] == [0] * 6
        store.clock.advance(37)
        second.run_once()
        assert (channel.sent, second.interval_s) == (["one", "two", "three"], 1.0)

    def test_what_will_never_be_taken_is_parked_at_once_and_told_by_the_others(
        self, store: Store, tmp_path: Path
    ) -> None:
        first = postman(store, tmp_path, log := Mute("$^"), telemetry := Telemetry())
        refused = Undeliverable("The bot was kicked.")
        second = further(store, tmp_path, Further(*[refused] * 9), telemetry)
        called(store, "ill", task := store.new_task())
        for _ in range(3):
            store.clock.advance(3600)
            second.run_once()
            first.run_once()
        ill, told = log.sent
        assert ill == "ill"
        assert re.match(r"A message \(alert for further, outbox \d+\) was tried once and is parked: ", told)
        assert told.endswith("The bot was kicked. It said: ill")
        rows = store.rows(
            "SELECT payload FROM outbox WHERE stable_id LIKE 'alert:parked%' AND channel IS NULL"
        )
        assert [json.loads(row["payload"])["work_item"] for row in rows] == [task.work_item]
        assert telemetry.snapshot()[Metric.MESSAGES_PARKED] == {"further": 2}

    def test_two_services_do_not_send_the_same(self, store: Store, tmp_path: Path) -> None:
        other = further(store, tmp_path, sent_by_other := Further(), Telemetry())

        class Meanwhile(Further):
            """The other service makes its pass while this one sends."""

            def send(self, text: str, *, work_item: str | None, url: str | None, message_id: str) -> None:
                other.run_once()
                super().send(text, work_item=work_item, url=url, message_id=message_id)

        one = further(store, tmp_path, channel := Meanwhile(), Telemetry())
        for text in ("one", "two", "three"):
            called(store, text)
        one.run_once()
        assert sorted(channel.sent + sent_by_other.sent) == ["one", "three", "two"]
        assert channel.sent == ["one"]

    def test_what_a_service_had_in_hand_when_it_died_is_sent_later(
        self, store: Store, tmp_path: Path
    ) -> None:
        class Killed(BaseException):
            """Nothing of the service's own catches it."""

        dying = further(store, tmp_path, Further(Killed()), Telemetry())  # type: ignore[arg-type]
        called(store, "ill")
        with pytest.raises(Killed):
            dying.run_once()
        next_life = further(store, tmp_path, channel := Further(), Telemetry())
        next_life.run_once()
        assert channel.sent == []
        store.clock.advance(CLAIM_S)
        next_life.run_once()
        assert channel.sent == ["ill"]

    def test_a_channel_that_is_taken_out_gets_no_more(self, store: Store, tmp_path: Path) -> None:
        second = further(store, tmp_path, channel := Further(), Telemetry())
        with store.database.write() as tx:
            mail.set_channels(tx, [])
        called(store, "ill")
        second.run_once()
        assert channel.sent == []


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
