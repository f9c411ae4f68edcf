"""What looks after what nobody else does: recovery, reapers, the net, drift, tidying up."""

from functools import cached_property

from orchestrator.daemons.cleaner import Cleaner
from orchestrator.daemons.drift_watch import DriftWatch
from orchestrator.daemons.guard_watch import GuardWatch
from orchestrator.daemons.home_cleaner import HomeCleaner
from orchestrator.daemons.home_tasks import HomeTasks
from orchestrator.daemons.housekeeper import Housekeeper
from orchestrator.daemons.job_reaper import JobReaper
from orchestrator.daemons.lease_reaper import LeaseReaper
from orchestrator.daemons.lost_jobs import LostJobs
from orchestrator.daemons.reconciler import Reconciler
from orchestrator.daemons.recovery import Recovery
from orchestrator.daemons.repository_watch import RepositoryWatch
from orchestrator.daemons.self_deploys import SelfDeploys
from orchestrator.daemons.silent_authorities import SilentAuthorities
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.wiring.post import Post


class Watch(Post):
    """Daemons that look after what others have left."""

    @cached_property
    def lost_jobs(self) -> LostJobs:
        """Jobs whose owner has ended."""
        return LostJobs(
            self.database,
            self.launcher,
            self.worker,
            boot_id=self.boot_id,
            judge=self.ownership.judge,
            process_ttl_s=self.settings.process_ttl_s,
            max_running_s=self.settings.reaper_max_running_s,
            clock=self.clock,
            telemetry=self.telemetry,
            home=self.home,
        )

    @cached_property
    def recovery(self) -> Recovery:
        """What an earlier life left behind."""
        return Recovery(
            self.database,
            self.lost_jobs,
            self.driver,
            self.folders,
            self.ownership,
            boot_id=self.boot_id,
            judge=self.ownership.judge,
            process_ttl_s=self.settings.process_ttl_s,
            max_held_s=self.settings.reaper_max_running_s,
            clock=self.clock,
        )

    @cached_property
    def self_deploys(self) -> SelfDeploys:
        """Deploys of ourselves."""
        return SelfDeploys(
            self.database, self.driver, self.deployer, build_sha=self.settings.build_sha, clock=self.clock
        )

    @cached_property
    def reaper(self) -> JobReaper:
        """Ends what is dead, unfinished or hung."""
        return JobReaper(
            self.database,
            self.launcher,
            self.worker,
            self.lost_jobs,
            boot_id=self.boot_id,
            clock=self.clock,
            interval_s=self.settings.reaper_interval_s,
            finalize_grace_s=self.settings.reaper_finalize_grace_s,
            max_running_s=self.settings.reaper_max_running_s,
            wakeups=self.wakeups,
            scope=self.settings.reaper_scope,
        )

    @cached_property
    def lease_reaper(self) -> LeaseReaper:
        """Takes leases from the dead and the hung."""
        return LeaseReaper(
            self.ownership,
            self.driver,
            interval_s=self.settings.reaper_interval_s,
            max_held_s=self.settings.reaper_max_running_s,
            wakeups=self.wakeups,
            scope=self.settings.reaper_scope,
        )

    @cached_property
    def reconciler(self) -> Reconciler:
        """The net under lost wake-ups."""
        silent = SilentAuthorities(self.database, clock=self.clock, alert_s=self.settings.in_doubt_alert_s)
        return Reconciler(
            self.database,
            self.driver,
            self.ownership,
            silent,
            main_of=self._main_of,
            hasten=self.inbox.hasten,
            interval_s=self.settings.reconciler_interval_s,
            scope=self.settings.reconciler_scope,
        )

    @cached_property
    def guard_watch(self) -> GuardWatch:
        """Watches the marks on the forges."""
        interval_s = self.settings.reconciler_interval_s
        if not self.home:
            return GuardWatch(self.guard, self.places.let_go, interval_s=interval_s)
        return GuardWatch(
            self.guard, self.places.let_go, interval_s=interval_s, looked=self.wakeups.queue.set
        )

    @cached_property
    def repository_watch(self) -> RepositoryWatch:
        """Notices what was renamed at its server."""
        return RepositoryWatch(self.database, self.places, scope=self.settings.reconciler_scope)

    @cached_property
    def drift_watch(self) -> DriftWatch:
        """Watches what environments run."""
        return DriftWatch(
            self.database,
            self.configs,
            self.deployer,
            self.health,
            self.guard.open_repositories,
            clock=self.clock,
            interval_s=self.settings.drift_interval_s,
            scope=self.settings.drift_watch_scope,
        )

    @cached_property
    def cleaner(self) -> Cleaner:
        """Tidies up after ended tasks."""
        return Cleaner(
            self.database,
            self.places,
            self.launcher,
            self.guard.open_repositories,
            interval_s=self.settings.reconciler_interval_s,
        )

    @cached_property
    def housekeeper(self) -> Housekeeper:
        """Keeps git fast."""
        only = self.guard.open_repositories if self.home else None
        return Housekeeper(self.database, self.places, self.folders, self.git, self.clock, only=only)

    @cached_property
    def home_tasks(self) -> HomeTasks:
        """A worker's net."""
        interval_s = self.settings.reconciler_interval_s
        return HomeTasks(self.database, self.driver, self.launcher, self.home, interval_s=interval_s)

    @cached_property
    def home_cleaner(self) -> HomeCleaner:
        """Tidies up at a worker's."""
        interval_s = self.settings.reconciler_interval_s
        return HomeCleaner(self.database, self.places, self.launcher, self.home, interval_s=interval_s)

    def _main_of(self, repo: RepoName) -> Sha | None:
        forge = self.places.of(repo).forge
        return forge.tip(forge.default_branch)
