"""The only place that names concrete classes. Everything of one state folder is built here, once, when asked for."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.agents.adapters import AGENTS
from orchestrator.agents.runs import Runs
from orchestrator.check_runner import CheckRunner
from orchestrator.config.secret import Secrets
from orchestrator.config.settings import Settings
from orchestrator.daemons.cleaner import Cleaner
from orchestrator.daemons.drift_watch import DriftWatch
from orchestrator.daemons.guard_watch import GuardWatch
from orchestrator.daemons.heartbeat import Heartbeat
from orchestrator.daemons.home_cleaner import HomeCleaner
from orchestrator.daemons.home_tasks import HomeTasks
from orchestrator.daemons.housekeeper import Housekeeper
from orchestrator.daemons.inbox import Inbox
from orchestrator.daemons.job_reaper import JobReaper
from orchestrator.daemons.lease_reaper import LeaseReaper
from orchestrator.daemons.lost_jobs import LostJobs
from orchestrator.daemons.outbox import Outbox
from orchestrator.daemons.queue_worker import QueueWorker
from orchestrator.daemons.reconciler import Reconciler
from orchestrator.daemons.recovery import Recovery
from orchestrator.daemons.schema_watch import SchemaWatch
from orchestrator.daemons.self_deploys import SelfDeploys
from orchestrator.daemons.silent_authorities import SilentAuthorities
from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.daemons.ticket_watch import TicketWatch
from orchestrator.db import evidence, homes, leases, mail
from orchestrator.db.counted import CountedDatabase
from orchestrator.db.database import Database
from orchestrator.db.file_lock import own_file
from orchestrator.db.migrate import newest
from orchestrator.db.opening import open_migrated, open_to_look
from orchestrator.db.tickets import TrackerProject
from orchestrator.deploy.command import CommandDeployer
from orchestrator.deploy.health import HealthWatch
from orchestrator.domain.effect import Effect, EffectName
from orchestrator.domain.ids import SHARED_HOME, BootId, Home, RepoName, Sha, TaskId
from orchestrator.domain.lease import Actor, switches
from orchestrator.domain.task import Candidate
from orchestrator.effects.deploy import DeployEffect
from orchestrator.effects.image import ImageEffect
from orchestrator.effects.ledger import Ledger
from orchestrator.effects.merge import MergeEffect
from orchestrator.effects.pull_request import OpenPrEffect
from orchestrator.effects.push import PushEffect
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.forges.gitea_open import GiteaForges
from orchestrator.forges.github_open import GitHubForges
from orchestrator.forges.servers import servers
from orchestrator.images.builder import ImageBuilder
from orchestrator.images.store import LocalImageStore
from orchestrator.installation.acceptance import Acceptance
from orchestrator.installation.claims import Claims
from orchestrator.installation.closings import Closings
from orchestrator.installation.comparison import Comparison
from orchestrator.installation.guard import InstallationGuard
from orchestrator.installation.survey import Surveyor
from orchestrator.installation.within_reach import WithinReach, refuse_a_strange_home
from orchestrator.launcher import Launcher
from orchestrator.monitor import Monitor
from orchestrator.notifications.log import LogNotifier
from orchestrator.notifications.telegram import NAME as TELEGRAM
from orchestrator.notifications.telegram import TelegramNotifier, TelegramSettings
from orchestrator.observability.log import configure_logging, get_logger
from orchestrator.observability.redactor import Redactor
from orchestrator.observability.telemetry import Telemetry
from orchestrator.operations.desk import Operations
from orchestrator.ownership.registration import WORKER, OwnHome, Registration
from orchestrator.ownership.term import Term
from orchestrator.places import Folders, state_id_of
from orchestrator.repositories import Repositories
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.entropy import Entropy, SystemEntropy
from orchestrator.runtime.files import make_private_folder
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import SystemHttp
from orchestrator.runtime.process import Processes, SystemProcesses
from orchestrator.runtime.sessions import SystemSessions
from orchestrator.runtime.wakeups import Wakeups
from orchestrator.runtime.waypoints import NoWaypoints, Waypoints
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.situation import Configs, OwnDelivery, Reach, Tools
from orchestrator.trackers.local import LocalTracker
from orchestrator.trackers.plane import NAME as PLANE
from orchestrator.trackers.plane import PlaneTracker
from orchestrator.trackers.plane_open import plane_projects, shown_as
from orchestrator.transition_lease import Ownership
from orchestrator.webhooks.gitea import GiteaHandler
from orchestrator.webhooks.github import GitHubHandler
from orchestrator.webhooks.handler import WebhookHandler
from orchestrator.webhooks.plane import READ, PlaneHandler, PlaneStates
from orchestrator.webhooks.receiving import Receiver

DRIVER_THREADS = 2
LOST_AFTER_TTLS = (
    2  # beyond run_orphan_ttl: until a worker that is cut off adopts nothing, and until an agent ends
)


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything that comes from outside the process; tests hand in their own."""

    environ: Mapping[str, str]
    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    processes: Processes = field(default_factory=SystemProcesses)
    waypoints: Waypoints = field(default_factory=NoWaypoints)
    host: str = field(default_factory=lambda: os.uname().nodename)


class App:
    """One installation, put together. Nothing runs until :class:`orchestrator.main.Service` starts it."""

    def __init__(
        self,
        settings: Settings,
        outside: Outside,
        database: Database,
        redactor: Redactor,
        *,
        role: str = "reader",
        state_id: str = "",
    ) -> None:
        """``state_id``: of the state folder, where processes of several machines have to have the same."""
        self.home = Home(state_id) if role == WORKER else SHARED_HOME
        self._state_id = "" if self.home else state_id
        self.settings = settings
        self.role = role
        self.outside = outside
        self.environ = outside.environ
        self.clock, self.entropy, self.processes = outside.clock, outside.entropy, outside.processes
        self.telemetry = Telemetry()
        self.database = database = CountedDatabase(database, self.telemetry)
        self.redactor = redactor
        self.wakeups = Wakeups()
        self.listen: Callable[[], None] = lambda: (
            None
        )  # to other processes of the database, where there are any
        self.boot_id = BootId(outside.entropy.uuid())
        self.folders = Folders(settings.home, self.boot_id)
        self.git = Git(outside.processes)
        self.http = SystemHttp()
        at = servers(settings)
        self.places = Repositories(
            database,
            self.folders,
            self.git,
            servers=[
                kind(at[kind.kind], self.git, self.http, clock=self.clock, entropy=self.entropy)
                for kind in (GiteaForges, GitHubForges)
            ],
            clock=self.clock,
            entropy=self.entropy,
        )
        self.register_repository = self.places.register
        self.register_elsewhere = self.places.register_elsewhere
        self.configs = Configs(self.places)
        self.store = LocalImageStore(self.folders.images)
        self.deployer = CommandDeployer(
            self.folders.deploys,
            processes=self.processes,
            sessions=SystemSessions(),
            clock=self.clock,
            environ=self.environ,
        )
        self.health = HealthWatch(
            http=self.http,
            processes=self.processes,
            clock=self.clock,
            environ=self.folders.environ(self.environ),
        )
        self.term = Term(self.clock, settings.process_ttl_s)
        self.ownership = Ownership(
            database,
            boot_id=self.boot_id,
            processes=self.processes,
            clock=self.clock,
            liveness=FinalizerLiveness(),
            term=self.term,
            scope=settings.lease_scope,
            telemetry=self.telemetry,
        )
        self.comparison = Comparison(
            database,
            self.places,
            self.folders,
            within=WithinReach(database, self.places) if self.home else list,
        )
        self.guard = InstallationGuard(
            self.comparison,
            Claims(
                database,
                self.comparison,
                entropy=self.entropy,
                waypoints=outside.waypoints,
                joins=bool(self.home),
            ),
            Closings(database),
        )
        self.tracker = LocalTracker(settings.home, self.clock, redactor)
        self.plane = plane_projects(settings, database, self.http, self.clock)
        self.notifier = LogNotifier(settings.home, self.clock, redactor, get_logger("orchestrator.alerts"))

    # --- this process ---------------------------------------------------------------------------------------------

    @cached_property
    def registration(self) -> Registration:
        """This life of this process, which is entered before it acquires anything."""
        return Registration(
            self.database,
            self.boot_id,
            self.processes,
            self.clock,
            self.term,
            self.ownership.judge,
            self.role,
            switches(self.settings.lease_scope) + (f" state={self._state_id}" if self._state_id else ""),
            self.outside.host,
            OwnHome(
                self.home,
                str(self.settings.home),
                self.settings.run_orphan_ttl_s + LOST_AFTER_TTLS * self.settings.process_ttl_s,
            )
            if self.home
            else None,
        )

    @cached_property
    def heartbeat(self) -> Heartbeat:
        """The pulse."""
        return Heartbeat(self.registration, interval_s=self.settings.heartbeat_interval_s)

    @cached_property
    def schema_watch(self) -> SchemaWatch:
        """Notices a newer version."""
        return SchemaWatch(
            self.database,
            newest(),
            superseded=self.wakeups.superseded,
            interval_s=self.settings.heartbeat_interval_s,
        )

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Tell other processes of the database for the length of the block; on SQLite there are none."""
        if not self.settings.on_postgres:
            yield
            return
        from orchestrator.db.postgres_signals import PostgresSignals

        with closing(
            PostgresSignals(self.settings.database_url, self.boot_id, self.wakeups.hear, clock=self.clock)
        ) as signals:
            self.wakeups.relay(signals.tell)
            self.listen = signals.listen
            yield

    # --- what moves tasks -----------------------------------------------------------------------------------------

    @cached_property
    def engine(self) -> StageEngine:
        """The stage engine over the ledger of effects."""
        tools = Tools(
            database=self.database,
            ownership=self.ownership,
            ledger=Ledger(
                self.database,
                self._effects(),
                term=self.term,
                waypoints=self.outside.waypoints,
                redactor=self.redactor,
                telemetry=self.telemetry,
            ),
            places=self.places,
            configs=self.configs,
            clock=self.clock,
            entropy=self.entropy,
            waypoints=self.outside.waypoints,
            why_closed=self.guard.why_closed,
            secrets=tuple(secret.reveal() for secret in self.settings.secrets()),
            ours=OwnDelivery(self.settings.self_repo, self.settings.self_deploy_timeout_s),
            telemetry=self.telemetry,
            wake=self.wakeups.tasks,
            stop_job=self.wakeups.stop,
            reach=Reach(self.home, self._home_is_lost, agents=self.settings.max_agents > 0),
        )
        return StageEngine(tools, self.deployer, self.store)

    @cached_property
    def driver(self) -> TaskDriver:
        """Looks at tasks."""
        return TaskDriver(
            self.engine,
            threads=DRIVER_THREADS,
            clock=self.clock,
            entropy=self.entropy,
            wakeups=self.wakeups,
        )

    @cached_property
    def monitor(self) -> Monitor:
        """Finalises runs."""
        return Monitor(self.engine)

    @cached_property
    def launcher(self) -> Launcher:
        """Agents."""
        return Launcher(
            self.database,
            self.places,
            Runs(
                self.processes,
                self.clock,
                self.entropy,
                may_adopt=(lambda: self.term.number() is not None) if self.home else (lambda: True),
            ),
            AGENTS,
            self.folders,
            clock=self.clock,
            entropy=self.entropy,
            environ=self.environ,
            language=self.settings.language,
            run_orphan_ttl_s=self.settings.run_orphan_ttl_s,
            home=self.home,
        )

    @cached_property
    def worker(self) -> QueueWorker:
        """Runs jobs."""
        checks = CheckRunner(
            self.database,
            self.places,
            self.folders,
            self.deployer,
            self.health,
            processes=self.processes,
            clock=self.clock,
            entropy=self.entropy,
            environ=self.environ,
        )
        return QueueWorker(
            self.database,
            self.engine,
            self.launcher,
            self.monitor,
            checks,
            self.configs,
            open_repositories=self.guard.open_repositories,
            boot_id=self.boot_id,
            max_agents=self.settings.max_agents,
            max_checks=0 if self.home else self.settings.max_checks,
            interval_s=self.settings.queue_interval_s,
            clock=self.clock,
            wakeups=self.wakeups,
            telemetry=self.telemetry,
            shares=self.settings.shares,
            priority_step_s=self.settings.priority_step_s,
            home=self.home,
        )

    # --- messages in and out --------------------------------------------------------------------------------------

    @cached_property
    def webhooks(self) -> tuple[WebhookHandler, ...]:
        """What understands trackers and forges."""
        return self._plane_handler(PLANE), GiteaHandler(), GitHubHandler()

    def _plane_handler(self, source: str) -> PlaneHandler:
        states = PlaneStates(self.settings.plane_approved, self.settings.plane_confirm_deploy)
        return PlaneHandler(user=self.settings.plane_user, states=states, source=source)

    @cached_property
    def handlers(self) -> tuple[WebhookHandler, ...]:
        """What understands all that the inbox holds: webhooks, and what was read elsewhere."""
        return *self.webhooks, self._plane_handler(READ)

    @cached_property
    def webhook_secrets(self) -> Mapping[str, Secrets]:
        """What each of them signs with."""
        return {
            PLANE: self.settings.plane_webhook_secret,
            GiteaHandler.source: self.settings.gitea_webhook_secret,
            GitHubHandler.source: self.settings.github_webhook_secret,
        }

    @cached_property
    def receiver(self) -> Receiver:
        """Stores what trackers and forges send."""
        return Receiver(
            self.database,
            self.handlers,
            arrived=self.wakeups.inbox.set,
            wake=self._wake(Actor.WEBHOOK),
            telemetry=self.telemetry,
        )

    @cached_property
    def inbox(self) -> Inbox:
        """Deals with what they have sent."""
        return Inbox(
            self.database,
            self.ownership,
            self.handlers,
            interval_s=self.settings.inbox_interval_s,
            wake=self._wake(Actor.WEBHOOK),
            entropy=self.entropy,
            waypoints=self.outside.waypoints,
        )

    @cached_property
    def outbox(self) -> Outbox:
        """Sends messages."""
        return Outbox(
            self.database,
            self.tracker,
            self.notifier,
            base_url=self.settings.base_url,
            interval_s=self.settings.outbox_interval_s,
            entropy=self.entropy,
            telemetry=self.telemetry,
        )

    @cached_property
    def telegram_outbox(self) -> Outbox | None:
        """Sends alerts to Telegram, beside the log; None where no bot is configured."""
        settings = self.settings
        if not settings.telegram_token or settings.telegram_chat is None:
            return None
        bot = TelegramSettings(
            settings.telegram_url, settings.telegram_token, settings.telegram_chat, settings.telegram_topic
        )
        return Outbox(
            self.database,
            self.tracker,
            TelegramNotifier(self.http, bot, self.clock, self.redactor),
            base_url=settings.base_url,
            interval_s=settings.outbox_interval_s,
            entropy=self.entropy,
            telemetry=self.telemetry,
            channel=TELEGRAM,
        )

    @cached_property
    def plane_outbox(self) -> Outbox | None:
        """Tells tickets at Plane; None where none is configured."""
        if not self.plane.access.configured:
            return None
        tracker = PlaneTracker(
            self.plane.of_task,
            shown_as(self.settings),
            self.tracker,
            self.redactor,
            pull_request=self.places.pull_request,
        )
        return Outbox(
            self.database,
            tracker,
            self.notifier,
            base_url=self.settings.base_url,
            interval_s=self.settings.outbox_interval_s,
            entropy=self.entropy,
            telemetry=self.telemetry,
            of=PLANE,
        )

    @cached_property
    def ticket_watch(self) -> TicketWatch | None:
        """Reads tickets at Plane; None where none is configured."""
        if not self.plane.access.configured:
            return None
        settings = self.settings
        return TicketWatch(
            self.database,
            self.plane,
            self.receiver,
            self.operations.add_task,
            interval_s=settings.plane_poll_interval_s,
            silence_s=settings.plane_silence_s if settings.plane_webhook_secret else None,
            alert_s=settings.in_doubt_alert_s,
            clock=self.clock,
        )

    def announce_channels(self) -> None:
        """From now on alerts are queued for what is configured."""
        with self.database.write() as tx:
            mail.set_channels(tx, [TELEGRAM] if self.telegram_outbox is not None else [])

    def connect_plane(self, repo: str, name: str) -> TrackerProject:
        """Let a repository's tickets come from a project at Plane, from now on."""
        known = self.plane.connect(RepoName(repo), name)
        self.wakeups.everything()
        return known

    # --- daemons --------------------------------------------------------------------------------------------------

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
            return GuardWatch(self.guard, interval_s=interval_s)
        return GuardWatch(self.guard, interval_s=interval_s, looked=self.wakeups.queue.set)

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

    # --- what people ask ------------------------------------------------------------------------------------------

    @cached_property
    def restore(self) -> Acceptance:
        """What a person does about a restored database or forge."""
        return Acceptance(
            self.database,
            Surveyor(self.database, self.folders, self.comparison),
            self.guard,
            self.deployer,
            boot_id=self.boot_id,
            entropy=self.entropy,
            wake=self._wake(Actor.OPERATOR),
        )

    @cached_property
    def operations(self) -> Operations:
        """The operator's desk."""
        return Operations(
            self.database,
            self.ownership,
            self.configs,
            self.deployer,
            clock=self.clock,
            entropy=self.entropy,
            wake=self._wake(Actor.OPERATOR),
            extra=self._daemon_blocks,
            shares=self.settings.shares,
            why_restored=self.guard.why_restored,
            give_up=lambda ids: self.driver.give_up(ids),
        )

    # --- pieces ---------------------------------------------------------------------------------------------------

    def _effects(self) -> dict[EffectName, Effect]:
        kinds: tuple[Effect, ...] = (
            PushEffect(self.places, self.guard),
            OpenPrEffect(self.places),
            MergeEffect(self.places, self._candidates, self.guard),
            ImageEffect(
                self.places,
                self.store,
                ImageBuilder(processes=self.processes, entropy=self.entropy),
                self.folders,
                self.environ,
                entropy=self.entropy,
            ),
            DeployEffect(EffectName.DEPLOY_INIT, self.deployer, self.wakeups.stopping),
            DeployEffect(EffectName.DEPLOY_UNDO, self.deployer, self.wakeups.stopping),
        )
        return {kind.name: kind for kind in kinds}

    def _home_is_lost(self, home: Home) -> bool:
        read_at = self.clock.boottime()
        with self.database.read() as tx:
            found, now = homes.get(tx, home), leases.now(tx)
        return self.ownership.judge.home_is_lost(found, now, read_at)

    def _candidates(self, task_id: TaskId) -> list[Candidate]:
        with self.database.read() as tx:
            return evidence.candidates(tx, task_id)

    def _main_of(self, repo: RepoName) -> Sha | None:
        forge = self.places.of(repo).forge
        return forge.tip(forge.default_branch)

    def _wake(self, owner: Actor) -> Callable[[Iterable[TaskId]], None]:
        """Has tasks looked at on somebody's behalf."""

        def wake(ids: Iterable[TaskId]) -> None:
            self.wakeups.tasks(ids, owner)
            self.wakeups.everything()

        return wake

    def _daemon_blocks(self) -> dict[str, object]:
        return {
            "queue_worker": self.worker.snapshot(),
            "driver": self.driver.snapshot(),
            "drift": {
                **self.settings.drift_watch_scope.shown(),
                "environments": self.drift_watch.snapshot(),
            },
            "reaper": {**self.settings.reaper_scope.shown(), **self.reaper.snapshot()},
            "reconciler": {**self.settings.reconciler_scope.shown(), **self.reconciler.snapshot()},
        }


@contextmanager
def open_app(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    role: str,
    outside: Outside | None = None,
    shared: bool = False,
) -> Iterator[App]:
    """Own the state folder for the length of the block: lock, migrate, register this process.

    On PostgreSQL it is owned together with others, but for a worker's. ``shared``: so on SQLite, too, for proofs; no
    command offers it (DESIGN §8).

    :raises StateInUse: another process owns it.
    :raises SchemaError: it belongs to a newer version.
    :raises DatabaseError: it cannot be read or written.
    """
    outside = outside or Outside(environ)
    redactor = configure_logging(settings, settings.secrets(), utc=outside.clock.utc)
    make_private_folder(settings.home)
    together = shared or (settings.on_postgres and role != WORKER)
    with own_file(settings.database_path, role=role, shared=together):
        database = open_migrated(
            settings.database_url, clock=outside.clock, entropy=outside.entropy, waypoints=outside.waypoints
        )
        try:
            state_id = state_id_of(settings.home, outside.entropy) if settings.on_postgres else ""
            app = App(settings, outside, database, redactor, role=role, state_id=state_id)
            if app.home:
                refuse_a_strange_home(database, app.home, app.comparison.traces().finding)
            app.registration.enter()
            try:
                with app.signals():
                    yield app
            finally:
                app.registration.leave()
        finally:
            database.close()


@contextmanager
def open_readonly(settings: Settings, environ: Mapping[str, str]) -> Iterator[App]:
    """Look at a state folder that somebody else may own; writing is refused.

    :raises DatabaseError: there is no database yet, or it cannot be read.
    """
    outside = Outside(environ)
    redactor = configure_logging(settings, settings.secrets(), utc=outside.clock.utc)
    database = open_to_look(settings.database_url, clock=outside.clock)
    try:
        yield App(settings, outside, database, redactor)
    finally:
        database.close()
