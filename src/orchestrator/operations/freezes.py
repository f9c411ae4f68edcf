"""The desk of frozen repositories: lift a freeze, or lend its merge slot to the task that mends what is broken."""

from collections.abc import Callable, Iterable

from orchestrator.db import repositories, tasks
from orchestrator.db.database import Database
from orchestrator.domain.ids import TaskId
from orchestrator.stage_engine import serial_gate


class FreezeDesk:
    """What people decide about a freeze."""

    def __init__(self, database: Database, *, wake: Callable[[Iterable[TaskId]], None]) -> None:
        self._database = database
        self._wake = wake

    def unfreeze(self, repo: str, *, person: str, reason: str = "") -> bool:
        """Lift a repository's freeze; False where there is none.

        :raises NotFound: the repository is not registered.
        :raises RequestRefused: an undo in the repository is not settled yet.
        """
        with self._database.write() as tx:
            known = repositories.get(tx, repo)
            lifted = serial_gate.lift(tx, known.name, person=person[:200], reason=reason[:2000])
            waiting = tasks.held_up(tx, known.name)
        self._wake(waiting)
        return lifted

    def lend(self, repo: str, work_item: str, *, person: str, reason: str = "") -> bool:
        """Lend a frozen repository's merge slot to the task that mends it; the freeze stays. False: so it was already.

        :raises NotFound: the repository or the task does not exist.
        :raises RequestRefused: it cannot be lent, or not to this task.
        """
        with self._database.write() as tx:
            known = repositories.get(tx, repo)
            task = tasks.held_still(tx, tasks.by_work_item(tx, work_item).id)
            lent = serial_gate.lend(tx, known.name, task, person=person[:200], reason=reason[:2000])
        self._wake([task.id])
        return lent
