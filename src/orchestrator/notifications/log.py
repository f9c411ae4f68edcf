"""Alerts for whoever reads the log: the channel that is always there.

Each alert goes to ``<state>/alerts.jsonl`` once per ``message_id``, and to the log as a WARNING when it was written for
the first time; a crash between the two costs the log's line, not the alert.
"""

from pathlib import Path
from typing import Any

from orchestrator.observability.message_log import MessageLog
from orchestrator.observability.never_raise import WarningLog
from orchestrator.observability.redactor import Redactor
from orchestrator.runtime.clock import Clock, stamp

FILE_NAME = "alerts.jsonl"


class LogNotifier:
    """Implements ``notifications.notifier.Notifier`` on the log and one file of the state folder."""

    name = "log"

    def __init__(self, state: Path, clock: Clock, redactor: Redactor, log: WarningLog) -> None:
        self._file = MessageLog(state / FILE_NAME)
        self._clock = clock
        self._redactor = redactor
        self._log = log

    def send(self, text: str, *, work_item: str | None, url: str | None, message_id: str) -> None:
        """Keep the alert and log it.

        :raises OutsideError: it could not be written; may be repeated.
        """
        shown = self._redactor.text(text)
        message = {"text": shown, "work_item": work_item, "url": url, "at": stamp(self._clock.utc())}
        if self._file.append(message_id, message):
            self._log.warning("alert", text=shown, work_item=work_item, url=url, message_id=message_id)

    def alerts(self) -> list[dict[str, Any]]:
        """All alerts kept, the oldest first.

        :raises OutsideError: they cannot be read.
        """
        return self._file.read()
