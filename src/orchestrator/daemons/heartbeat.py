"""Says that this process lives: one write per process, not per lease (DESIGN §5)."""

from orchestrator.db import leases
from orchestrator.db.database import Database
from orchestrator.domain.ids import BootId


class Heartbeat:
    """The pulse of one process."""

    name = "heartbeat"

    def __init__(self, database: Database, *, boot_id: BootId, interval_s: float) -> None:
        self.interval_s = interval_s
        self._database = database
        self._boot_id = boot_id

    def run_once(self) -> dict[str, int]:
        """One beat."""
        with self._database.write() as tx:
            return {"beats": int(leases.heartbeat(tx, self._boot_id))}
