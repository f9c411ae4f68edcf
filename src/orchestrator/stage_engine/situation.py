"""What the engine works with, and what it sees of one task under one lease."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.db.database import Database
from orchestrator.domain.effect import Intent
from orchestrator.domain.errors import ConfigError, InvariantError
from orchestrator.domain.ids import SHARED_HOME, Home, JobId, RepoName, Sha, TaskId
from orchestrator.domain.job import UNKNOWN_PROGRAM, Job, JobKind
from orchestrator.domain.lease import Lease
from orchestrator.domain.stage import Role, Stage
from orchestrator.domain.task import Candidate, Task
from orchestrator.effects.ledger import Ledger
from orchestrator.observability.telemetry import Telemetry
from orchestrator.places import Place, Places
from orchestrator.repo_config.loader import parse_repo_config
from orchestrator.repo_config.records import RepoConfig
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.waypoints import Waypoints
from orchestrator.transition_lease import Ownership

CONFIG_FILE = ".orchestrator.toml"
MAX_CONFIG_BYTES = 256 * 1024


class Outcome(StrEnum):
    """Where a look at a task ended."""

    MOVED = "moved"  # something was passed; there may be more to do at once
    WORKING = "working"  # a job is queued or running
    HELD = "held"  # waits for a person, a slot, another task
    RETRY = "retry"  # an effect is open; look again later
    ASKED = "asked"  # waits for others at the forge; look there again later
    DEFERRED = "deferred"  # somebody else owns the task
    ENDED = "ended"
    ELSEWHERE = "elsewhere"  # what comes next is another process's, which sees the work or may do the step


@dataclass(frozen=True, slots=True)
class OwnDelivery:
    """How this installation delivers itself (S-15); ``repo`` is empty where it does not."""

    repo: str = ""
    report_within_s: float = 0.0  # so long a new version has to come up; then its deploy is undone without it


@dataclass(frozen=True, slots=True)
class Reach:
    """What of tasks this process can see: the work in its own state folder, and what the forges have."""

    home: Home = SHARED_HOME
    lost: Callable[[Home], bool] = lambda home: False  # whether nothing in a worker's home runs any more
    agents: bool = True  # whether agents run here at all

    @property
    def worker(self) -> bool:
        """Whether this process does nothing but agents' work."""
        return self.home != SHARED_HOME


@dataclass(frozen=True, slots=True)
class Tools:
    """The engine's collaborators."""

    database: Database
    ownership: Ownership
    ledger: Ledger
    places: Places
    configs: "Configs"
    clock: Clock
    entropy: Entropy
    waypoints: Waypoints
    secrets: tuple[str, ...]
    why_closed: Callable[[RepoName], str | None]  # why nothing may be done for a repository now
    wake: Callable[[Iterable[TaskId]], None]  # look at these tasks soon
    stop_job: Callable[[JobId], None]  # end what runs for a job that was cancelled
    queued: Callable[[], None]  # a job waits: it can be started while its task is looked at once more
    ours: OwnDelivery = OwnDelivery()
    telemetry: Telemetry = field(default_factory=Telemetry)
    reach: Reach = Reach()

    def hand_on(self, task_id: TaskId) -> None:
        """The forge or the database has what a worker has made of a task: others go on with it."""
        if self.reach.worker:
            self.wake([task_id])


@dataclass(frozen=True, slots=True)
class Situation:
    """One task under one lease, as it was read."""

    lease: Lease
    task: Task
    place: Place
    config: RepoConfig | None  # None until the branch has a base
    passed: Mapping[str, Mapping[str, object]]
    unsettled: tuple[Intent, ...] = ()  # read in the same snapshot as what has passed
    active: Job | None = None
    failing: bool = False  # earlier looks have failed outside
    self_start: Intent | None = None  # its newest start of ourselves, by the ledger alone
    unusable: ConfigError | None = None  # why the configuration that counts is none, for this version of ours

    @property
    def has(self) -> frozenset[str]:
        """Parts of the repository's configuration that the pipeline asks for.

        :raises ConfigError: it is not usable.
        """
        if self.unusable is not None:
            raise self.unusable
        return configured(self.config, of_ourselves=self.self_start is not None)

    @property
    def settings(self) -> RepoConfig:
        """The configuration, which every stage after *created* has.

        :raises InvariantError: it is not there.
        :raises ConfigError: it is not usable.
        """
        if self.unusable is not None:
            raise self.unusable
        if self.config is None:
            raise InvariantError(f"{self.task.work_item} is in {self.task.stage} without a configuration")
        return self.config


class Configs:
    """``.orchestrator.toml`` of a base commit, parsed once. Never read from an agent's branch."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._parsed: dict[tuple[str, Sha], RepoConfig] = {}

    def of(self, repo: str, base: Sha) -> RepoConfig:
        """The configuration at a commit.

        :raises ConfigError: it is missing or not usable.
        """
        key = (repo, base)
        if key not in self._parsed:
            place = self._places.of(repo)
            clone = place.clone
            clone.want(base)
            data = clone.read(base, CONFIG_FILE, MAX_CONFIG_BYTES)
            if data is None:
                raise ConfigError(
                    f"{repo} has no {CONFIG_FILE} at {base[:12]}: how to check and deploy it is not known.",
                    hint="`orch init` writes one; commit it to the default branch.",
                )
            config = parse_repo_config(data, source=f"{repo}:{CONFIG_FILE}")
            if config.forge.asks and place.others is None:
                raise ConfigError(
                    f"{repo}:{CONFIG_FILE} asks for checks or reviews of others, and a local forge has none; no task "
                    "of this repository moves until it is corrected.",
                    hint="Take [forge] out: [ci] are the checks here, and [approvals] asks people.",
                )
            self._parsed[key] = config
        return self._parsed[key]


def judging_commit(task: Task, candidate: Candidate | None) -> Sha | None:
    """The commit whose configuration counts: the task's base, or main when a person last had it go on; from
    deploy-staging on, main as M was built on it. Never a commit of the task's own branch."""
    if task.stage in (Stage.DEPLOY_STAGING, Stage.DEPLOY) and candidate is not None:
        return candidate.base_sha
    return task.config_sha or task.base_sha


def configured(config: RepoConfig | None, *, of_ourselves: bool = False) -> frozenset[str]:
    """Which optional parts of the pipeline a configuration asks for; ``of_ourselves``: a start of this very
    installation has been intended, with its conditional undo."""
    if config is None:
        return frozenset()
    deployed = config.image is not None or config.staging is not None or config.production is not None
    parts = {
        "image": deployed,
        "staging": config.staging is not None,
        "production": config.production is not None,
        "self": of_ourselves,
        "approvals.analysis": config.approvals.analysis,
        "approvals.deploy": config.approvals.deploy,
        "forge.required_checks": bool(config.forge.required_checks),
        "forge.required_reviews": config.forge.required_reviews > 0,
    }
    return frozenset(name for name, there in parts.items() if there)


def program_of(kind: JobKind, config: RepoConfig | None) -> str:
    """Which program an agent's job will start, as far as is known; what it counts for while it runs."""
    if not kind.agent:
        return ""
    return config.agent_for(Role(kind.value)).kind if config is not None else UNKNOWN_PROGRAM
