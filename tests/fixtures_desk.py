"""The operator's desk over a real database, and the HTTP service in front of it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.db import effects, events, jobs, repositories, slots, tasks
from orchestrator.db.database import Database
from orchestrator.db.opening import open_migrated
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import NotFound
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId, RepoName, TaskId
from orchestrator.domain.job import Job, JobKind, JobStatus, RunOutcome, RunResult, Usage
from orchestrator.domain.lease import Actor
from orchestrator.domain.shares import NO_CAPS, Shares
from orchestrator.domain.stage import Stage, Track
from orchestrator.domain.task import Hold, Task, Ticket
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.observability.telemetry import Telemetry
from orchestrator.operations.desk import Operations
from orchestrator.ownership.term import Term
from orchestrator.places import Place
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.process import SystemProcesses
from orchestrator.runtime.waypoints import NoWaypoints
from orchestrator.stage_engine.situation import Configs
from orchestrator.transition_lease import Ownership
from tests.fixtures_db import shell
from tests.proofs.memory_deployer import Environments, MemoryDeployer

BOOT = BootId("boot-of-the-test")
ADVANCES = [
    Stage.CREATED,
    Stage.ANALYSIS,
    Stage.ARCHITECTURE,
    Stage.DEVELOPMENT,
    Stage.REVIEW,
    Stage.TESTING,
    Stage.DEPLOY_STAGING,
    Stage.DEPLOY,
    Stage.DONE,
]


class NoPlaces:
    """No repository has a clone here: nothing of what is tested looks into one."""

    def of(self, repo: str) -> Place:
        raise NotFound(f"{repo} has no clone in this test.")


@dataclass
class Desk:
    """A database with everything that reads and writes it for people."""

    database: Database
    operations: Operations
    ownership: Ownership
    telemetry: Telemetry
    clock: SystemClock
    woken: list[TaskId] = field(default_factory=list)
    environments: Environments = field(default_factory=Environments)
    worker: dict[str, int] = field(default_factory=dict)  # what the queue's worker would say of itself

    def repository(self, name: str = "shop", prefix: str = "SHOP") -> None:
        with self.database.write() as tx:
            repositories.add(tx, repositories.Repository(RepoName(name), "local", f"/forge/{name}", prefix))

    def file(self, title: str = "Add a basket", **ticket: object) -> Task:
        return self.operations.add_task("shop", Ticket(title, **ticket))  # type: ignore[arg-type]

    def move(self, work_item: str, stage: Stage, track: Track = Track.FULL) -> Task:
        """Bring a task to a stage, one edge at a time, as the engine would."""
        task = self.operations.task(work_item)
        if stage is Stage.CANCELLED:
            path = [stage]
        else:
            path = ADVANCES[ADVANCES.index(task.stage) + 1 : ADVANCES.index(stage) + 1]
        for target in path:
            if target is Stage.DEPLOY:
                self.effect(work_item, EffectName.MERGE_PR, f"candidate-of-{work_item}")
            task = self.operations.task(work_item)
            with self.database.write() as tx:
                tasks.set_track(tx, task.id, track)
                assert tasks.update_task_stage_cas(tx, task.id, task.stage, target, epoch=task.epoch)
                events.append(
                    tx,
                    EventType.STAGE_CHANGED,
                    Actor.MONITOR,
                    task=task,
                    to_stage=target,
                    data={"reason": "pass"},
                )
        return self.operations.task(work_item)

    def hold(self, work_item: str, why: Hold, reason: str) -> None:
        task = self.operations.task(work_item)
        with self.database.write() as tx:
            tasks.hold(tx, task.id, why, reason)
            events.append(tx, EventType.HELD, Actor.MONITOR, task=task, data={"hold": why, "reason": reason})

    def work(self, work_item: str, kind: JobKind, *, claim: bool = True) -> Job | None:
        task = self.operations.task(work_item)
        with self.database.write() as tx:
            jobs.enqueue(tx, task, jobs.NewJob(kind))
            return jobs.claim_next_job(tx, BOOT) if claim else None

    def run(self, work_item: str, kind: JobKind, summary: str, cost: float | None = 0.1234) -> None:
        """A whole run of an agent, ended well."""
        job = self.work(work_item, kind)
        assert job is not None
        with self.database.write() as tx:
            run = jobs.add_run(tx, job, agent="claude", model="sonnet", run_dir=f"/runs/{job.id}")
            used = Usage(1200, 340, 5600, 0, cost)
            jobs.finish_run(tx, run, RunResult(RunOutcome.DONE, 0, used, summary))
            jobs.finish(tx, job, BOOT, JobStatus.DONE)

    def effect(
        self,
        work_item: str,
        name: EffectName,
        key: str,
        *,
        settled: bool = True,
        judged: Mapping[str, object] | None = None,
    ) -> Intent:
        task = self.operations.task(work_item)
        with self.ownership.transition(task.id, Actor.MONITOR) as lease:
            assert lease is not None
            with self.database.write() as tx:
                intent = effects.intend(
                    tx, lease, name, key, task.round, token="7", judged=judged or {"head": key}
                )
                if settled:
                    effects.settle(tx, lease, intent, EffectState.APPLIED, {"seen": key}, "probe")
        return intent

    def deploy(
        self, work_item: str, name: EffectName = EffectName.DEPLOY_INIT, *, settled: bool = True
    ) -> Intent:
        """A start in production that the ledger knows; nothing of it is in the environment yet."""
        carried = {
            "environment": "production", "sha": "c0ffee" + "0" * 34, "generation": 1, "digest": "sha256:0",
            "artifact": "/a", "timeout_s": 5.0, "work_item": work_item, "installation": "inst", "argv": ["deploy"],
            "env": {}, "reason": "it was ill",
        }  # fmt: skip
        return self.effect(work_item, name, "production:c0ffee:1", settled=settled, judged=carried)

    def freeze(self, work_item: str, reason: str) -> None:
        task = self.operations.task(work_item)
        with self.database.write() as tx:
            slots.freeze(tx, task.repo, reason, task.id)
            events.append(tx, EventType.REPO_FROZEN, Actor.MONITOR, task=task, data={"reason": reason})


def desk_at(folder: Path, url: str | None = None, *, shares: Shares = NO_CAPS) -> Desk:
    """Over the ledger in a folder, or over the one at ``url``."""
    clock, entropy, processes = SystemClock(), SystemEntropy(), SystemProcesses()
    folder.mkdir(parents=True, exist_ok=True)
    at = url or f"sqlite://{folder}/orchestrator.db"
    database = open_migrated(at, clock=clock, entropy=entropy, waypoints=NoWaypoints())
    shell(
        at, "DROP TRIGGER start_has_its_place" + (" ON effects" if url else "")
    )  # what is shown is told, not done
    term = Term(clock, 3600.0)
    term.renew(clock.boottime())
    ownership = Ownership(
        database,
        boot_id=BOOT,
        processes=processes,
        clock=clock,
        liveness=FinalizerLiveness(),
        term=term,
    )
    woken: list[TaskId] = []
    environments = Environments()
    worker: dict[str, int] = {}
    operations = Operations(
        database,
        ownership,
        Configs(NoPlaces()),
        MemoryDeployer(environments),
        clock=clock,
        entropy=entropy,
        wake=woken.extend,
        extra=lambda: {"reaper": {}, "queue_worker": worker},
        shares=shares,
        why_restored=lambda repo: None,
    )
    return Desk(database, operations, ownership, Telemetry(), clock, woken, environments, worker)


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path, database_kind: str) -> Iterator[Desk]:
    url = request.getfixturevalue("postgres_url") if database_kind == "postgres" else None
    made = desk_at(tmp_path / "state", url)
    made.repository()
    yield made
    made.database.close()


Serve = Callable[..., str]


@pytest.fixture
def serve(desk: Desk) -> Iterator[Serve]:
    """Starts the service over the desk and gives its address; whatever was started is stopped at the end."""
    # Here and not above: every test run loads this file, and few want the web.
    from orchestrator.dashboard.pages import OPEN_PATHS, add_board
    from orchestrator.web.api import create_api
    from orchestrator.web.guard import LOOPBACK_NAMES
    from orchestrator.web.server import WebServer

    servers: list[WebServer] = []

    def start(
        *,
        token: str | None = None,
        local_token: str | None = None,
        ready: Callable[[], bool] = lambda: True,
        host: str = "127.0.0.1",
        **more: object,
    ) -> str:
        api = create_api(
            desk.operations,
            token=token,
            local_token=local_token,
            ready=ready,
            telemetry=desk.telemetry,
            hosts=LOOPBACK_NAMES,
            open_paths=OPEN_PATHS,
            **more,  # type: ignore[arg-type]
        )
        add_board(api, desk.operations, clock=desk.clock)
        servers.append(WebServer(api, host=host, port=0))
        return servers[-1].start()

    yield start
    for server in servers:
        server.stop()
