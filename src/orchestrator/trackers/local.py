"""The tracker for tickets that live in our own database.

Nobody outside has to be told where such a task stands, so what a tracker would show is kept beside the database:
``<state>/tickets/<work item>.jsonl``, read by ``orch task show``. Texts are redacted before they are stored.
"""

from pathlib import Path
from typing import Any

from orchestrator.domain.ids import WorkItem
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.observability.message_log import MessageLog
from orchestrator.observability.redactor import Redactor
from orchestrator.rules.names import work_item_ref
from orchestrator.runtime.clock import Clock, stamp

FOLDER = "tickets"


class LocalTracker:
    """Implements ``trackers.tracker.Tracker`` on files of the state folder."""

    name = "local"

    def __init__(self, state: Path, clock: Clock, redactor: Redactor) -> None:
        self._folder = state / FOLDER
        self._clock = clock
        self._redactor = redactor

    def show_stage(
        self, task: Task, stage: Stage, message_id: str, *, reason: str = "", said_at: str = ""
    ) -> None:
        """Note the stage, once per ``message_id``.

        :raises OutsideError: it could not be written; may be repeated.
        """
        self._append(task, message_id, {"kind": "stage", "stage": str(stage)})

    def comment(self, task: Task, text: str, message_id: str) -> None:
        """Keep the comment, once per ``message_id``.

        :raises OutsideError: it could not be written; may be repeated.
        """
        self._append(task, message_id, {"kind": "comment", "text": self._redactor.text(text)})

    def history(self, work_item: WorkItem) -> list[dict[str, Any]]:
        """Everything kept of a ticket, the oldest first: ``kind``, ``stage`` or ``text``, ``at``, ``message_id``.

        :raises OutsideError: it cannot be read.
        :raises InvariantError: the work item is none that the product would mint.
        """
        return self._log(work_item).read()

    def _append(self, task: Task, message_id: str, message: dict[str, Any]) -> None:
        self._log(task.work_item).append(message_id, message | {"at": stamp(self._clock.utc())})

    def _log(self, work_item: WorkItem) -> MessageLog:
        return MessageLog(self._folder / f"{work_item_ref(work_item)}.jsonl")
