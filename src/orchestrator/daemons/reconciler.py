"""The net under every lost wake-up (S-09, F-1): finds tasks that could move and has them looked at.

It leaves alone what somebody owns, what a person has to decide and what cannot have changed, and counts why. A person's
word, an unsettled effect and work at a lost worker are looked at whatever holds the task; so is one that is broken
after its merge, for it may be closed by what was done since. Places that stay silent are told to a person. Its scope
says whose tasks it looks at; what it tells people of (silence, slots, epochs) it tells of all.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from orchestrator.daemons.epoch_audit import EpochAudit
from orchestrator.daemons.silent_authorities import SilentAuthorities
from orchestrator.daemons.skips import Around, Skip, why_skipped
from orchestrator.daemons.slot_audit import SlotAudit
from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.db import effects, jobs, mail, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import RepoName, Sha, TaskId
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.domain.task import Hold, Task
from orchestrator.runtime.process import Liveness
from orchestrator.transition_lease import Ownership

log = structlog.get_logger(__name__)

PAGE = 500


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one pass knows of all tasks."""

    owners: Mapping[int, Liveness] | None
    urgent: frozenset[TaskId]
    tips: dict[RepoName, Sha | None]  # of the default branches, read once where they are needed


class Reconciler:
    """Looks for work that nobody pointed to."""

    name = "reconciler"

    def __init__(
        self,
        database: Database,
        driver: TaskDriver,
        ownership: Ownership,
        silent: SilentAuthorities,
        *,
        main_of: Callable[[RepoName], Sha | None],
        hasten: Callable[[], int],
        interval_s: float,
        scope: Scope = EVERYTHING,
    ) -> None:
        """``main_of`` reads the tip of a repository's default branch: what blocks a task is mended there.
        ``hasten`` has what has lain in the inbox for too long looked at, and says how much that is."""
        self.interval_s = interval_s
        self._database = database
        self._driver = driver
        self._ownership = ownership
        self._silent = silent
        self._main_of = main_of
        self._hasten = hasten
        self._scope = scope
        self._audit = SlotAudit(database)
        self._epochs = EpochAudit(database)
        self._blocked_at: dict[TaskId, Sha | None] = {}  # the tip at which a blocked task was last looked at
        self._counting = threading.Lock()
        self._skipped: Counter[str] = Counter({skip.value: 0 for skip in Skip})
        self._passes = self._looked_at = 0

    def run_once(self) -> dict[str, int]:
        """One pass over open tasks, waiting signals and unsettled effects."""
        with self._database.read() as tx:
            urgent = {*mail.tasks_with_signals(tx), *effects.tasks_unsettled(tx)}
            urgent |= set(tasks.at_lost_homes(tx))
        now = _Pass(self._ownership.owners(), frozenset(urgent), {})
        due: list[TaskId] = []
        skipped: Counter[str] = Counter()
        blocked: dict[TaskId, Sha | None] = {}
        after = 0
        while page := self._page(after):
            after = page[-1][0].id
            for task, has_job, depends in page:
                skip = self._judge(now, task, has_job, depends, blocked)
                if skip is None:
                    due.append(task.id)
                else:
                    skipped[skip.value] += 1
        self._blocked_at = blocked
        with self._counting:
            self._passes += 1
            self._looked_at += len(due)
            self._skipped.update(skipped)
        contradictions, turns = self._audit.run_once()
        self._driver.wake(sorted({*due, *turns}))
        return {
            "looked_at": len(due),
            "skipped": skipped.total(),
            "alerts": self._silent.look(),
            "slot_contradictions": contradictions,
            "epochs_lifted": self._epochs.run_once(),
            "overdue": self._hasten(),
        }

    def snapshot(self) -> dict[str, object]:
        """What ``GET /queue`` shows, counted since the start: passes, looks, and why tasks were left alone."""
        with self._counting:
            return {
                "passes": self._passes,
                "looked_at": self._looked_at,
                "skipped": dict(self._skipped),
            }

    def _judge(
        self, now: _Pass, task: Task, has_job: bool, depends: bool, blocked: dict[TaskId, Sha | None]
    ) -> Skip | None:
        mended, covered = True, self._scope.covers(task.repo)
        # What a hold is about by name (a pull request, checks, reviews) is at the forge, and is looked for there.
        if covered and task.hold is Hold.BLOCKED and not depends and task.hold_cause is None:
            tip = self._tip(now, task.repo)
            mended = tip is not None and self._blocked_at.get(task.id) != tip
            blocked[task.id] = tip or self._blocked_at.get(task.id)
        around = Around(now.owners, has_job, depends, mended, covered, task.id in now.urgent)
        skip = why_skipped(task, around)
        if skip in (Skip.LEASED, Skip.LEASE_UNKNOWN):
            blocked.pop(task.id, None)  # it has not been looked at
        return skip

    def _page(self, after: int) -> list[tuple[Task, bool, bool]]:
        with self._database.read() as tx:
            found = tasks.list_open(tx, after=after, limit=PAGE)
            with_job = jobs.at_work_for(tx, [task.id for task in found])
            return [(task, task.id in with_job, _depends(tx, task)) for task in found]

    def _tip(self, now: _Pass, repo: RepoName) -> Sha | None:
        if repo not in now.tips:
            try:
                now.tips[repo] = self._main_of(repo)
            except OutsideError as error:
                log.warning("default branch not read", repo=repo, reason=str(error))
                now.tips[repo] = None
        return now.tips[repo]


def _depends(tx: Tx, task: Task) -> bool:
    return task.hold is Hold.BLOCKED and bool(tasks.unmet_dependencies(tx, task.id))
