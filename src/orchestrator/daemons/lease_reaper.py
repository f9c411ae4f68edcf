"""The reaper of leases: dead owners at once, hung ones at the backstop (S-07 tier 3, FR-3, law 6).

A loop of its own: whoever hangs may be the reaper of jobs itself. Its scope bounds this pass alone: a dead owner is
replaced by whoever wants the task, and at the next start, in any repository.
"""

from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.domain.lease import Actor
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.ownership.reclaims import Why
from orchestrator.runtime.wakeups import Wakeups
from orchestrator.transition_lease import Ownership


class LeaseReaper:
    """Looks at leases."""

    name = "lease_reaper"

    def __init__(
        self,
        ownership: Ownership,
        driver: TaskDriver,
        *,
        interval_s: float,
        max_held_s: float,
        wakeups: Wakeups,
        scope: Scope = EVERYTHING,
    ) -> None:
        self.interval_s = interval_s
        self._ownership = ownership
        self._driver = driver
        self._max_held_s = max_held_s
        self._wakeups = wakeups
        self._scope = scope

    def run_once(self) -> dict[str, int]:
        """One pass over all leases, and over what threads of this process are at."""
        taken = self._ownership.reclaim(Actor.REAPER, self._max_held_s, of=self._scope)
        self._driver.give_up(lease.task_id for lease in taken if lease.own)
        if taken:
            self._wakeups.tasks([lease.task_id for lease in taken], Actor.REAPER)
            self._wakeups.everything()
        return {why.value: sum(lease.why is why for lease in taken) for why in Why}
