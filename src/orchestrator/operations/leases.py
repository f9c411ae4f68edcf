"""Leases at the desk: a person takes a task from its owner (FR-6)."""

from collections.abc import Callable, Iterable

from orchestrator.db import tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.ids import TaskId
from orchestrator.ownership.reclaims import Reclaimed
from orchestrator.transition_lease import Ownership


class LeaseDesk:
    """Takes a person's word on who shall own what."""

    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        *,
        wake: Callable[[Iterable[TaskId]], None],
        give_up: Callable[[Iterable[TaskId]], None],
    ) -> None:
        """``give_up``: threads of this process that are at these tasks are not to be waited for."""
        self._database = database
        self._ownership = ownership
        self._wake = wake
        self._give_up = give_up

    def release_lease(self, work_item: str, *, person: str, reason: str = "") -> Reclaimed:
        """Take a task from whoever owns its transition, alive or not; what that one still does is refused.

        :raises NotFound: there is no such task.
        :raises RequestRefused: nobody owns it, or it could not be stored.
        """
        with self._database.read() as tx:
            task = tasks.by_work_item(tx, work_item)
        if self._ownership.owner_of(task) is None:
            outside = (
                "" if self._ownership.covers(task.repo) else " (its repository is out of the leases' scope)"
            )
            raise RequestRefused(
                f"Nobody owns {task.work_item}{outside}; there is nothing to release.",
                hint=f"`orch why {task.work_item}` says what it waits for.",
            )
        taken = self._ownership.release_by_person(task.id, person=person[:200], reason=reason[:2000])
        if taken is None:
            raise RequestRefused(
                f"The lease of {task.work_item} changed meanwhile, or could not be taken away; nothing was changed.",
                hint="`orch lease list` shows who holds it now; the service's log says more.",
            )
        if taken.own:
            self._give_up([task.id])
        self._wake([task.id])
        return taken
