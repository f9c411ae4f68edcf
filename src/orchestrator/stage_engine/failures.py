"""Remembers what failed outside last, so that people can be told why a task does not go on.

One row a task with a bounded, redacted text; an event for each attempt would fill the task's story. Nothing is decided
by it, so neither writing nor losing it may fail a step.
"""

import structlog

from orchestrator.db import failures
from orchestrator.db.database import Database
from orchestrator.domain.errors import OrchestratorError
from orchestrator.domain.ids import TaskId
from orchestrator.observability.redactor import Redactor

log = structlog.get_logger(__name__)

REASON_LIMIT = 1000  # characters


class Failures:
    """What keeps failing, for each task."""

    def __init__(self, database: Database, secrets: tuple[str, ...]) -> None:
        self._database = database
        self._redactor = Redactor(secrets)

    def note(self, task_id: TaskId, reason: str) -> None:
        """An attempt has failed outside."""
        said = " ".join(self._redactor.text(reason).split())[:REASON_LIMIT]
        try:
            with self._database.write() as tx:
                failures.note(tx, task_id, said)
        except OrchestratorError as error:
            log.warning("failure not kept", task_id=task_id, reason=str(error))

    def forget(self, task_id: TaskId) -> None:
        """The task has gone on."""
        try:
            with self._database.write() as tx:
                failures.forget(tx, task_id)
        except OrchestratorError as error:
            log.warning("failure not forgotten", task_id=task_id, reason=str(error))
