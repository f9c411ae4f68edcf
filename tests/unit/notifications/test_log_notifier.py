"""The channel that is always there: an alert is kept and logged once."""

from pathlib import Path

from orchestrator.notifications.log import LogNotifier
from orchestrator.notifications.notifier import Notifier
from orchestrator.observability.redactor import Redactor
from orchestrator.runtime.clock import SystemClock


class Log:
    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.entries.append((event, fields))


def test_an_alert_is_kept_and_logged_once(tmp_path: Path) -> None:
    log = Log()
    channel = LogNotifier(tmp_path, SystemClock(), Redactor(["hunter2-hunter2"]), log)
    notifier: Notifier = channel
    for _ in range(3):
        notifier.send("lease of <b>hunter2-hunter2", work_item="ORCH-7", url="http://b/t/7", message_id="m1")
    ((event, fields),) = log.entries
    assert event == "alert" and fields["text"] == "lease of <b>***" and fields["work_item"] == "ORCH-7"
    (alert,) = channel.alerts()
    assert (alert["text"], alert["work_item"], alert["url"]) == ("lease of <b>***", "ORCH-7", "http://b/t/7")


def test_odd_texts_are_kept(tmp_path: Path) -> None:
    channel = LogNotifier(tmp_path, SystemClock(), Redactor(), Log())
    texts = ["", " ", "a<b && c", "\x1b[0m", "emoji 🎉", "lone \udc80", "x" * 100_000]
    for number, text in enumerate(texts):
        channel.send(text, work_item=None, url=None, message_id=str(number))
    kept = channel.alerts()
    assert [alert["text"] for alert in kept[:-1]] == texts[:-1]
    assert kept[-1]["text"].startswith("xxx")
