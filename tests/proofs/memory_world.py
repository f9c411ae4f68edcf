"""A whole outside world in memory, and installations of the real product in front of it.

Real: engine, ledger, effects, ownership, moves, operations, reaper, checks of health, and the database (a file, in a
folder that should lie in memory). In memory: git, forge, environments, artefact store.
"""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from orchestrator.check_runner import CheckRunner
from orchestrator.daemons.job_reaper import JobReaper
from orchestrator.daemons.lost_jobs import LostJobs
from orchestrator.db import evidence, jobs, leases, repositories, tasks
from orchestrator.db.database import Database
from orchestrator.db.evidence import CheckResult
from orchestrator.domain.effect import Effect, EffectName
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import BootId, Digest, RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.installation import InstallationMark
from orchestrator.domain.job import Job, JobKind, JobStatus
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Task, Ticket
from orchestrator.effects.deploy import DeployEffect
from orchestrator.effects.image import ImageEffect
from orchestrator.effects.ledger import Ledger
from orchestrator.effects.merge import MergeEffect
from orchestrator.effects.pull_request import OpenPrEffect
from orchestrator.effects.push import PushEffect
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.observability.telemetry import Telemetry
from orchestrator.operations.desk import Operations
from orchestrator.ownership.term import Term
from orchestrator.places import Folders, Place
from orchestrator.repo_config.records import RepoConfig
from orchestrator.rules.transitions import STAGE_STEPS
from orchestrator.runtime.entropy import Entropy, SeededEntropy
from orchestrator.runtime.process import Liveness, ProcessIdentity
from orchestrator.runtime.wakeups import Wakeups
from orchestrator.runtime.waypoints import NoWaypoints, Waypoints
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.situation import Configs, Outcome, Tools
from orchestrator.transition_lease import Ownership
from orchestrator.work_items.documents import folder
from tests.clock import FakeClock
from tests.proofs.memory_deployer import (
    AtOnce,
    Commands,
    Environments,
    MemoryDeployer,
    MemoryStore,
    memory_health,
)
from tests.proofs.memory_forge import ForgeState, MemoryForge
from tests.proofs.memory_git import MemoryClone, MemoryWorkspaces, Objects
from tests.proofs.memory_ledgers import MemoryLedger
from tests.proofs.wire import DirectWire, Wire

REPO = RepoName("sample")
CONFIG = """default_branch = "main"
[ci]
command = ["checks"]
[agent]
kind = "command"
command = ["agent"]
[image]
command = ["build"]
artifact = "dist"
[production]
name = "production"
deploy = ["deploy"]
undo = ["undo"]
healthy_times = 1
[production.probe]
command = ["probe", "production"]
"""
STAGING = """[staging]
name = "staging"
deploy = ["deploy"]
healthy_times = 1
[staging.probe]
command = ["probe", "staging"]
"""
ALWAYS_SILENT_S = -1.0  # nobody's heartbeat is younger than this


@dataclass
class Outside:
    """Everything outside the database. ``sick`` names tasks whose version does not keep well in an environment."""

    objects: Objects = field(default_factory=Objects)
    forge: ForgeState = field(init=False)
    fetched: dict[str, Sha] = field(default_factory=dict)
    left: dict[tuple[WorkItem, str], bytes] = field(default_factory=dict)
    environments: Environments = field(default_factory=Environments)
    tags: dict[str, Digest] = field(default_factory=dict)
    sick: set[tuple[str, WorkItem]] = field(default_factory=set)
    parsed: dict[tuple[str, Sha], RepoConfig] = field(default_factory=dict)  # as immutable as the commits

    def __post_init__(self) -> None:
        self.forge = ForgeState(self.objects)

    def twin(self) -> "Outside":
        """Another world in the same state. What never changes is shared."""
        twin = copy.copy(self)
        twin.fetched, twin.left, twin.tags = dict(self.fetched), dict(self.left), dict(self.tags)
        twin.sick = set(self.sick)
        forge, kept = copy.copy(self.forge), self.forge
        forge.heads, forge.fences, forge.kept = dict(kept.heads), dict(kept.fences), dict(kept.kept)
        forge.pulls, forge.merges = list(kept.pulls), list(kept.merges)
        there = self.environments
        places = copy.copy(there)
        places.starts, places.runs, places.journal = dict(there.starts), dict(there.runs), list(there.journal)
        places.refused = list(there.refused)
        twin.forge, twin.environments = forge, places
        return twin

    def state(self) -> object:
        """What tells one state of the world from another."""
        forge, places = self.forge, self.environments
        return (
            sorted(forge.heads.items()), sorted((int(t), str(f)) for t, f in forge.fences.items()),
            sorted(forge.kept.items()), forge.pulls, forge.merges, sorted(self.left), sorted(self.fetched.items()),
            sorted(self.tags.items()), sorted((k, str(r)) for k, r in places.starts.items()),
            sorted(places.runs.items()), len(places.journal), sorted(self.sick), forge.unreachable, places.unreachable,
        )  # fmt: skip

    def commit_on(self, parent: Sha, files: dict[str, bytes], message: str) -> Sha:
        after = {**self.objects.files(parent), **files}
        return self.objects.commit(self.objects.write_tree(after), [parent], message)

    def push_to_main(self, name: str) -> Sha:
        """A person pushes past the orchestrator."""
        sha = self.commit_on(self.forge.heads["main"], {f"{name}.txt": name.encode()}, f"By {name}")
        self.forge.heads["main"] = sha
        return sha

    def push_to_branch(self, branch: str, name: str) -> Sha:
        sha = self.commit_on(self.forge.heads[branch], {f"{name}.txt": name.encode()}, f"By {name}")
        self.forge.heads[branch] = sha
        return sha


@dataclass
class MemoryProcess:
    """One process that runs the product. ``fate`` is what others can prove about it."""

    number: int
    fate: Liveness = Liveness.UNKNOWN
    liveness: FinalizerLiveness = field(default_factory=FinalizerLiveness)

    @property
    def boot_id(self) -> BootId:
        return BootId(f"process-{self.number}")

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity("memory", "memory", 1000 + self.number, 1)


class MemoryProcesses:
    """The process table of the world."""

    def __init__(self, all_of_them: list[MemoryProcess], me: MemoryProcess) -> None:
        self._all = all_of_them
        self._me = me

    def own(self) -> ProcessIdentity:
        return self._me.identity

    def liveness(self, identity: ProcessIdentity) -> Liveness:
        known = [one for one in self._all if one.identity == identity]
        return known[0].fate if known else Liveness.DEAD


class MemoryPlaces:
    """The one repository."""

    def __init__(self, outside: Outside, wire: Wire) -> None:
        clone = MemoryClone(outside.objects, outside.fetched, outside.forge.heads)
        forge = MemoryForge(REPO, outside.forge, wire)
        spaces = MemoryWorkspaces(outside.left)
        self._place = Place(REPO, forge, cast(Any, clone), cast(Any, spaces))

    def of(self, repo: str) -> Place:
        return self._place


class MemoryBuilder:
    """A build whose artefact is its commit."""

    def build(self, checkout: Path, *args: object, **named: object) -> Path:
        return checkout


class Checks(CheckRunner):
    """The real watch over environments; the checks on a commit are a coin."""

    coin: Callable[[str], bool]

    def _checks(
        self, job: Job, task: Task, config: RepoConfig, place: Place, stop: threading.Event
    ) -> CheckResult:
        passed = self.coin(f"{job.kind} of {task.work_item}")
        return CheckResult(
            job.kind, Sha(job.subject or ""), passed, {"percent": 80.0 + task.id, "reason": "coin"}
        )


@dataclass(frozen=True)
class Surroundings:
    """What an installation in memory gets from outside."""

    outside: Outside
    processes: list[MemoryProcess]
    clock: FakeClock
    wire: Wire = field(default_factory=DirectWire)
    commands: Commands = field(default_factory=AtOnce)
    waypoints: Waypoints = field(default_factory=NoWaypoints)
    entropy: Entropy = field(default_factory=SeededEntropy)
    coin: Callable[[str], bool] = lambda _: True


class OurMark:
    """The forge is ours, and nobody restores anything."""

    def __init__(self, forge: ForgeState) -> None:
        self._forge = forge

    def held(self, repo: str) -> InstallationMark:
        if self._forge.mark is None:
            self._forge.mark = InstallationMark("memory", 1, "start")
        return self._forge.mark

    def changed(self, repo: str) -> None:
        raise AssertionError(f"nobody else has claimed {repo}")


class Trustful(Term):
    """Of a process that does not notice when it is taken for dead: what then refuses it are epoch and authorities."""

    def number(self) -> int:
        return 0


class Installation:
    """The product as one actor of one process runs it, in front of a world in memory."""

    def __init__(self, database: Database, process: MemoryProcess, around: Surroundings) -> None:
        self.database = database
        self.process = process
        self.around = around
        outside, wire = around.outside, around.wire
        places = MemoryPlaces(outside, wire)
        self.configs = Configs(places)
        self.configs._parsed = outside.parsed
        deployer = MemoryDeployer(outside.environments, wire, around.commands)
        store = MemoryStore(outside.tags, wire)
        self.processes = MemoryProcesses(around.processes, process)
        term = Trustful(around.clock, ALWAYS_SILENT_S)
        self.ownership = Ownership(
            database,
            boot_id=process.boot_id,
            processes=cast(Any, self.processes),
            clock=around.clock,
            liveness=process.liveness,
            term=term,
        )
        folders = Folders(Path("/nowhere"))
        image = ImageEffect(
            places, store, cast(Any, MemoryBuilder()), cast(Any, _NoMarks()), {}, entropy=around.entropy
        )
        marks, stopping = OurMark(outside.forge), threading.Event()
        kinds: tuple[Effect, ...] = (
            PushEffect(places, marks),
            OpenPrEffect(places),
            MergeEffect(places, self.candidates, marks),
            image,
            DeployEffect(EffectName.DEPLOY_INIT, deployer, stopping),
            DeployEffect(EffectName.DEPLOY_UNDO, deployer, stopping),
        )
        tools = Tools(
            database=database,
            ownership=self.ownership,
            ledger=Ledger(
                database, {kind.name: kind for kind in kinds}, term=term, waypoints=around.waypoints
            ),
            places=places,
            configs=self.configs,
            clock=around.clock,
            entropy=around.entropy,
            waypoints=around.waypoints,
            secrets=(),
            why_closed=lambda repo: None,
            wake=lambda ids: None,
            stop_job=lambda job_id: None,
            queued=lambda: None,
        )
        self.engine = StageEngine(tools, deployer, store)
        self.operations = Operations(
            database,
            self.ownership,
            self.configs,
            deployer,
            clock=around.clock,
            entropy=around.entropy,
            wake=lambda ids: None,
            extra=dict,
            why_restored=lambda repo: None,
        )
        health = memory_health(outside.environments, wire, self._sick)
        self.checks = Checks(
            database, places, folders, deployer, health,
            processes=cast(Any, self.processes), clock=around.clock, entropy=around.entropy, environ={},
        )  # fmt: skip
        self.checks.coin = around.coin
        nobody: Any = _NoRuns()
        lost = LostJobs(
            database, nobody, nobody, boot_id=process.boot_id, judge=self.ownership.judge,
            process_ttl_s=ALWAYS_SILENT_S, max_running_s=1e9, clock=around.clock, telemetry=Telemetry(),
        )  # fmt: skip
        self.reaper = JobReaper(
            database, nobody, nobody, lost, boot_id=process.boot_id, clock=around.clock, interval_s=1.0,
            finalize_grace_s=1e9, max_running_s=1e9, wakeups=Wakeups(),
        )  # fmt: skip

    def candidates(self, task_id: TaskId) -> list[Candidate]:
        with self.database.read() as tx:
            return evidence.candidates(tx, task_id)

    def drive(self, task_id: TaskId, owner: Actor, *, looks: int = 12) -> Outcome:
        """Look at the task, do the job it asks for, and so on, until it rests or somebody else has it."""
        outcome = Outcome.MOVED
        for _ in range(looks):
            outcome = self.engine.advance_stage(task_id, owner)
            if outcome is not Outcome.WORKING or not self.work(task_id):
                return outcome
        return outcome

    def work(self, task_id: TaskId) -> bool:
        """If the task waits for a job, do the next one in the queue, whosever it is; False where none is for us."""
        with self.database.read() as tx:
            active = jobs.active_of_task(tx, task_id)
        if active is None or active.status is not JobStatus.QUEUED or active.kind is JobKind.DEVELOPER:
            return False
        with self.database.write() as tx:
            job = jobs.claim_next_job(
                tx, self.process.boot_id, agents=active.kind.agent, checks=not active.kind.agent
            )
        if job is None:
            return False
        if job.kind is JobKind.DEVELOPER:  # nobody writes code here
            return not self.engine.requeue_job(job, error="not now", brief=job.brief, delay_s=1e9, free=True)
        with self.database.read() as tx:
            task = tasks.get(tx, job.task_id)
            newest = evidence.candidates(tx, job.task_id)[-1]
        check = None
        if job.kind is JobKind.DEPLOYER:
            self._deployer_writes(task, newest)
        else:
            config = self.configs.of(REPO, newest.base_sha)
            check = self.checks.run(job, task, config, threading.Event())
        self.engine.finish_job(job, JobStatus.DONE, check=check)
        return True

    def _deployer_writes(self, task: Task, candidate: Candidate) -> None:
        text = f"---\nverdict: healthy\ncandidate_sha: {candidate.sha}\n---\n# Staging\n\nAll good.\n"
        path = f"{folder(task.work_item)}/14-staging-log.md"
        self.around.outside.left[task.work_item, path] = text.encode()

    def _sick(self, environment: str, sha: Sha) -> bool:
        message = self.around.outside.objects.get(sha).message
        named = [item for place, item in self.around.outside.sick if place == environment]
        ill = any(message.startswith(f"{item}:") or f" {item}" in message.splitlines()[0] for item in named)
        return ill or not self.around.coin(f"health of {environment}")


class _NoRuns:
    """The agents and the worker of a process: nothing runs in a thread of its own here."""

    def result(self, run: object) -> None:
        return None

    def running_for(self, job_id: int) -> None:
        return None

    def at_work(self) -> dict[int, int]:
        return {}


class StopAt:
    """Stops an installation before a step of the pipeline, as if something outside had failed there."""

    def __init__(self, step: str, behind: Waypoints | None = None) -> None:
        self._step = step
        self._behind = behind or NoWaypoints()

    def reach(self, name: str, **data: object) -> None:
        self._behind.reach(name, **data)
        if name == "step.begin" and data.get("step") == self._step:
            raise OutsideError(f"whoever comes next begins before {self._step}")


class _NoMarks(Folders):
    """Folders that exist nowhere; builds in memory carry no marks."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))

    def marks(self) -> dict[str, str]:
        return {}


@dataclass
class Template:
    """A world to begin with: a database and the outside."""

    ledger: MemoryLedger
    outside: Outside
    tasks: list[TaskId] = field(default_factory=list)

    @property
    def clock(self) -> FakeClock:
        return self.ledger.clock

    def begin(self) -> Outside:
        """A run: the database is what was kept of it, the outside is a copy."""
        self.ledger.begin()
        return self.outside.twin()


def new_template(ledger: MemoryLedger, *, config: str = CONFIG, count: int = 1) -> Template:
    """``count`` tasks, tested and about to leave *testing*, with their branches and pull requests."""
    outside = Outside()
    objects = outside.objects
    first = objects.commit(
        objects.write_tree({".orchestrator.toml": config.encode(), "app.py": b"1\n"}), [], "First"
    )
    outside.forge.heads["main"] = first
    template = Template(ledger, outside)
    database = ledger.open()
    try:
        with database.write() as tx:
            repositories.add(tx, repositories.Repository(REPO, "local", "/nowhere", "SMP"))
        for number in range(1, count + 1):
            template.tasks.append(_tested_task(database, outside, number, first))
    finally:
        database.close()
    return template


def _tested_task(database: Database, outside: Outside, number: int, base: Sha) -> TaskId:
    with database.write() as tx:
        item = repositories.next_work_item(tx, REPO)
        task = tasks.add(tx, REPO, item, Ticket(f"Change {number}"))
        assert task is not None
        head = outside.commit_on(base, {f"src/{number}.py": b"new\n"}, f"Work of {item}")
        branch = f"orch/{item}"
        tasks.set_branch(tx, task.id, branch, base)
        tasks.set_head(tx, task.id, head)
        tasks.set_gated(tx, task.id, head)
        tasks.set_pr(tx, task.id, number)
        assert tasks.update_task_stage_cas(tx, task.id, Stage.CREATED, Stage.TESTING, epoch=0)
        there = tasks.get(tx, task.id)
        for step in STAGE_STEPS[Stage.TESTING]:
            evidence.mark_step(tx, there, step.name)
    outside.forge.heads[branch] = head
    MemoryForge(REPO, outside.forge).open_pr(branch, f"Change {number}", "")
    return task.id


@contextmanager
def installed(
    template: Template, number: int = 99, waypoints: Waypoints | None = None
) -> Iterator[Installation]:
    """The product in front of a template itself, alone: what it does is what everybody begins with."""
    process = MemoryProcess(number)
    database = template.ledger.open()
    try:
        register(database, process)
        around = Surroundings(
            template.outside,
            [process],
            template.clock,
            waypoints=waypoints or NoWaypoints(),
            entropy=SeededEntropy(number),
        )
        yield Installation(database, process, around)
        with database.write() as tx:
            leases.forget_process(tx, process.boot_id)
    finally:
        database.close()


def register(database: Database, process: MemoryProcess) -> None:
    """Enter a process, as every life of one does before it acquires anything."""
    with database.write() as tx:
        leases.register_process(tx, process.boot_id, "memory", process.identity, "serve", "")
