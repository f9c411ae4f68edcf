"""What an installation stands on: settings, the outside, the database, repositories, ownership, this process."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from orchestrator.config.settings import Settings
from orchestrator.daemons.heartbeat import Heartbeat
from orchestrator.daemons.schema_watch import SchemaWatch
from orchestrator.db.counted import CountedDatabase
from orchestrator.db.database import Database
from orchestrator.db.migrate import newest
from orchestrator.deploy.command import CommandDeployer
from orchestrator.deploy.health import HealthWatch
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.ids import SHARED_HOME, BootId, Home, TaskId
from orchestrator.domain.lease import Actor, switches
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.forges.gitea_open import GiteaForges
from orchestrator.forges.github_open import GitHubForges
from orchestrator.forges.servers import servers
from orchestrator.images.store import LocalImageStore
from orchestrator.installation.claims import Claims
from orchestrator.installation.closings import Closings
from orchestrator.installation.comparison import Comparison
from orchestrator.installation.guard import InstallationGuard
from orchestrator.installation.within_reach import WithinReach
from orchestrator.notifications.log import LogNotifier
from orchestrator.observability.log import get_logger
from orchestrator.observability.redactor import Redactor
from orchestrator.observability.telemetry import Telemetry
from orchestrator.ownership.registration import WORKER, OwnHome, Registration
from orchestrator.ownership.term import Term
from orchestrator.places import Folders, known_state_id
from orchestrator.repositories import Repositories
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.entropy import Entropy, SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import Http, SystemHttp
from orchestrator.runtime.process import Processes, SystemProcesses
from orchestrator.runtime.sessions import SystemSessions
from orchestrator.runtime.wakeups import Wakeups
from orchestrator.runtime.waypoints import NoWaypoints, Waypoints
from orchestrator.stage_engine.situation import Configs
from orchestrator.trackers.github_open import GitHubProjects
from orchestrator.trackers.local import LocalTracker
from orchestrator.trackers.plane_open import plane_projects
from orchestrator.transition_lease import Ownership

if TYPE_CHECKING:
    from orchestrator.db.postgres_signals import PostgresSignals

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
    http: Http = field(default_factory=SystemHttp)
    waypoints: Waypoints = field(default_factory=NoWaypoints)
    host: str = field(default_factory=lambda: os.uname().nodename)


class Ground:
    """What every part of one installation stands on."""

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
        self.state_id = "" if self.home else state_id
        self.one_machine = bool(self.home) or not settings.on_postgres  # has this state folder at a time
        self.settings = settings
        self.role = role
        self.outside = outside
        self.environ = outside.environ
        self.clock, self.entropy, self.processes = outside.clock, outside.entropy, outside.processes
        self.telemetry = Telemetry()
        self.database = database = CountedDatabase(database, self.telemetry)
        self.redactor = redactor
        self.wakeups = Wakeups()
        self._relay: PostgresSignals | None = None  # to other processes of the database, where there are any
        self.boot_id = BootId(outside.entropy.uuid())
        self.folders = Folders(settings.home, self.boot_id)
        self.git = Git(outside.processes)
        self.http = outside.http
        at = servers(settings)
        self.github_limits = Limits(self.clock)  # of the token, whatever it is used for
        self.places = Repositories(
            database,
            self.folders,
            self.git,
            servers=[
                GiteaForges(
                    at[GiteaForges.kind], self.git, self.http, clock=self.clock, entropy=self.entropy
                ),
                GitHubForges(
                    at[GitHubForges.kind],
                    self.git,
                    self.http,
                    clock=self.clock,
                    entropy=self.entropy,
                    limits=self.github_limits,
                ),
            ],
            clock=self.clock,
            entropy=self.entropy,
        )
        self.register_repository = self.places.register
        self.register_elsewhere = self.places.register_elsewhere
        self.configs = Configs(self.places)
        self.store = LocalImageStore(self.folders.images, there=self._is_there)
        self.deployer = CommandDeployer(
            self.folders.deploys,
            processes=self.processes,
            sessions=SystemSessions(),
            clock=self.clock,
            environ=self.environ,
            one_machine=self.one_machine,
            there=self._is_there,
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
            own_folder=bool(self.home),
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
        self.issues = GitHubProjects(
            database,
            settings.github_url,
            settings.github_token,
            settings.github_labels,
            self.http,
            self.clock,
            self.github_limits,
        )
        self.notifier = LogNotifier(settings.home, self.clock, redactor, get_logger("orchestrator.alerts"))

    def _is_there(self) -> None:
        """A folder that was unmounted while we run says nothing."""
        home = self.settings.home
        if self.state_id and known_state_id(home) != self.state_id:
            raise AuthorityUnreachable(
                f"{home} is not the state folder that this process began with; what lies in it cannot be looked up.",
                hint="Is it mounted? The work goes on by itself once it is there again.",
            )

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
            switches(self.settings.lease_scope) + (f" state={self.state_id}" if self.state_id else ""),
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
        return Heartbeat(
            self.registration, ends=self.wakeups.end, interval_s=self.settings.heartbeat_interval_s
        )

    @cached_property
    def schema_watch(self) -> SchemaWatch:
        """Notices a newer version."""
        return SchemaWatch(
            self.database,
            newest(),
            ends=self.wakeups.end,
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
            self._relay = signals
            yield

    def listen(self) -> None:
        """Hear other processes of the database from now on."""
        if self._relay is not None:
            self._relay.listen()

    def wake_for(self, owner: Actor) -> Callable[[Iterable[TaskId]], None]:
        """Has tasks looked at on somebody's behalf."""

        def wake(ids: Iterable[TaskId]) -> None:
            self.wakeups.tasks(ids, owner)
            self.wakeups.everything()

        return wake
