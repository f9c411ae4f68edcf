"""A deploy of ourselves as the restarted service sees it (S-15): whom it reports to, who finalizes, what is odd.

What must hold: a process reports only the start that has brought the very SHA it was built from, found at its own start
and once it has stayed up for as long as its environment asks; so neither the process that was there before nor one that
crashes again and again is taken for the new version. A record that cannot be read is read again for as long as this
process lives; its time to stay up has begun all the same. A deploy that has started is the finalizer's; one that has
not is driven on by the ordinary door. The runner is left alone (NFR-5).
"""

import structlog

from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.db import effects, tasks
from orchestrator.db.database import Database
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.records import Claimant, DeployStart
from orchestrator.domain.effect import Intent
from orchestrator.domain.errors import OutsideError
from orchestrator.effects.deploy import start_of
from orchestrator.runtime.clock import Clock

log = structlog.get_logger(__name__)

REPORTING_S = 0.5  # between two looks while something is to be reported
REST_S = (
    3600.0  # nothing new comes while this process lives: the next start of ourselves is the next process's
)


class SelfDeploys:
    """Looks at undecided starts of ourselves when the service starts, and reports the one that has brought it."""

    name = "self_deploys"

    def __init__(
        self, database: Database, driver: TaskDriver, deployer: Deployer, *, build_sha: str, clock: Clock
    ) -> None:
        self.interval_s = REST_S
        self._database = database
        self._driver = driver
        self._deployer = deployer
        self._build_sha = build_sha
        self._clock = clock
        self._began = clock.boottime()
        self._reports: list[tuple[float, DeployStart]] = []  # when due, what
        self._unread: list[tuple[Intent, str]] = []  # undecided, and whose claim could not be read yet

    def begin(self) -> bool:
        """Sort what an earlier life has left undecided; True where something is to be reported or read later."""
        with self._database.read() as tx:
            undecided = effects.undecided_self_starts(tx)
            named = {start.effect_id: tasks.get(tx, start.task_id).work_item for start in undecided}
        self._began = self._clock.boottime()
        self._unread = [(intent, named[intent.effect_id]) for intent in undecided]
        self._sort(first=True)
        return bool(self._reports or self._unread)

    def run_once(self) -> dict[str, int]:
        """Report what is due, and read again what could not be read."""
        self._sort(first=False)
        now = self._clock.boottime()
        due = [start for at, start in self._reports if at <= now]
        reported = sum(self._deployer.report(start) for start in due)
        self._reports = [(at, start) for at, start in self._reports if start not in due]
        self.interval_s = REPORTING_S if self._reports or self._unread else REST_S
        return {"reported": reported, "to_report": len(self._reports), "unread": len(self._unread)}

    def _sort(self, *, first: bool) -> None:
        unread, self._unread = self._unread, []
        for intent, work_item in unread:
            started = self._has_started(intent, work_item, first=first)
            if started is None:
                self._unread.append((intent, work_item))
            elif started:
                self._driver.finalize(intent.task_id)
                self._expect(intent, work_item)
        if self._unread:
            self.interval_s = REPORTING_S

    def _has_started(self, intent: Intent, work_item: str, *, first: bool) -> bool | None:
        """Whether its child has claimed it; None where that cannot be read: there is a claim, and it is older than we.

        Odd records are named, once; what they mean is settled by the ledger alone.
        """
        start = start_of(intent)
        try:
            claim = self._deployer.started(start)
            prepared = self._deployer.prepared(start)
        except OutsideError as error:
            if first:
                log.warning("self-deploy in doubt", task=work_item, sha=start.sha, reason=str(error))
            return None
        child = claim is not None and claim.by is Claimant.CHILD
        if prepared and claim is None:
            log.warning(
                "self-deploy INITIATED, but never started: it is sent again", task=work_item, sha=start.sha
            )
        if child and not prepared:
            log.warning(
                "self-deploy started, but its INITIATED record is gone: its claim is believed",
                task=work_item,
                sha=start.sha,
            )
        return child

    def _expect(self, intent: Intent, work_item: str) -> None:
        start = start_of(intent)
        if start.sha == self._build_sha:
            stay = float(str(intent.judged.get("stable_for_s", 0.0)))
            self._reports.append((self._began + stay, start))
            self.interval_s = REPORTING_S
        elif self._build_sha:
            log.warning(
                "this is not the version of the self-deploy",
                task=work_item,
                sha=start.sha,
                runs=self._build_sha,
            )
        else:
            log.warning(
                "this version does not know its own SHA (ORCH_BUILD_SHA), so it reports nothing and is undone",
                task=work_item,
                sha=start.sha,
            )
