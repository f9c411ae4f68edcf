"""Notices that a newer version has brought the database to its own schema, while this one runs.

Steps of the schema only add, so that what is under way here is stored as before. But this version does not know what
the newer one keeps there: it takes nothing new, and ends.
"""

from collections.abc import Callable

import structlog

from orchestrator.db import installation
from orchestrator.db.database import Database
from orchestrator.domain.errors import OrchestratorError, SchemaError

log = structlog.get_logger(__name__)


class SchemaWatch:
    """Looks at the number of the schema."""

    name = "schema_watch"

    def __init__(
        self, database: Database, known: int, *, ends: Callable[[OrchestratorError], None], interval_s: float
    ) -> None:
        """``known`` is this version's schema; ``ends`` has the process end, because of what it is told."""
        self.interval_s = interval_s
        self._database = database
        self._known = known
        self._ends = ends

    def run_once(self) -> dict[str, int]:
        """One look."""
        with self._database.read() as tx:
            found = installation.schema(tx)
        if found <= self._known:
            return {"newer": 0}
        log.error(
            "a newer version has taken the database over; this one ends", schema=found, known=self._known
        )
        self._ends(
            SchemaError(
                f"A newer version has brought the database to schema {found}; this one knows {self._known}. It has "
                "stopped; agents at work keep running.",
                hint="Start the newer version here, too.",
            )
        )
        return {"newer": 1}
