"""A task at the door of the merge, over the real engine and database, with outside doubles that count and do not fence.

A real authority would refuse a second actor even without ownership; these obey whoever calls, so that what keeps an act
from happening twice can only be the mechanism under test.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.db import effects, evidence, jobs, leases, repositories, slots, tasks
from orchestrator.db.repositories import Repository
from orchestrator.db.sqlite import SqliteDatabase
from orchestrator.domain.effect import (
    Applied,
    Cause,
    Effect,
    EffectName,
    EffectState,
    Intent,
    NotApplied,
    Probe,
    Unknown,
)
from orchestrator.domain.ids import BootId, Digest, RepoName, Sha, TaskId
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.lease import Actor
from orchestrator.domain.scope import Scope
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold, Landed, Task, Ticket
from orchestrator.effects.ledger import Ledger
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.ownership.term import Term
from orchestrator.rules.transitions import MERGE, STAGE_STEPS, Step
from orchestrator.runtime.process import SystemProcesses
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.situation import Configs, Reach, Tools
from orchestrator.transition_lease import Ownership
from tests.fixtures_db import REPO, Store
from tests.waiting import PATIENCE_S

BASE, HEAD, M, TREE = Sha("b" * 40), Sha("a" * 40), Sha("c" * 40), Sha("e" * 40)
DIGEST = Digest("sha256:" + "d" * 64)
TTL_S = 30.0
CONFIG = b"""default_branch = "main"
[ci]
command = ["true"]
[coverage]
report = "lcov.info"
format = "lcov"
[image]
command = ["true"]
artifact = "dist"
[production]
name = "production"
deploy = ["true"]
undo = ["true"]
[production.probe]
url = "http://127.0.0.1:9/"
"""


class Points:
    """Waypoints at which a test stops an actor, or lets something else happen, once."""

    def __init__(self) -> None:
        self._hooks: dict[str, Callable[[], object]] = {}

    def on(self, name: str, hook: Callable[[], object]) -> None:
        self._hooks[name] = hook

    def reach(self, name: str, **data: object) -> None:
        hook = self._hooks.pop(name, None)
        if hook is not None:
            hook()


@dataclass
class Outside:
    """The world as the doubles show it; ``calls`` counts what reached it."""

    main: Sha = BASE
    calls: Counter[str] = field(default_factory=Counter)
    readable: bool = True
    default_branch: str = "main"
    shown: dict[str, object] = field(default_factory=dict)  # of the merge, other than what was asked for
    unusable: set[Sha] = field(default_factory=set)  # commits whose configuration this version refuses
    by_hand: Landed | None = None  # what main shows though nothing was asked for
    config: bytes = CONFIG
    missing: set[Sha] = field(default_factory=set)  # commits that only another machine has

    def tip(self, branch: str) -> Sha:
        return self.main if branch == self.default_branch else HEAD

    def landed(self, candidates: Sequence[Candidate]) -> Landed | None:
        if self.by_hand is not None:
            return self.by_hand
        return next((Landed(each, each.sha, each.tree) for each in candidates if each.sha == self.main), None)

    def read(self, commit: Sha, path: str, limit: int) -> bytes:
        return self.config if commit not in self.unusable else b"[ci]\ncommmand = 1\n"

    def list_files(self, commit: Sha, folder: str = "") -> list[object]:
        """No document was written."""
        return []

    def contents(self, blobs: Iterable[object]) -> dict[object, bytes]:
        """Nor can one be read."""
        return {}

    def fetch(self) -> None:
        """There is nothing to bring."""

    def want(self, sha: Sha) -> None:
        """There is nothing to bring, either."""

    def is_ancestor(self, ancestor: Sha, descendant: Sha) -> bool:
        """Nobody has rewritten anything."""
        return True

    def has(self, sha: Sha) -> bool:
        return sha not in self.missing

    def of(self, repo: str) -> Any:
        return _Place(repo, self, self)

    def path(self, digest: Digest) -> Path:
        return Path("/artefacts") / digest

    def exit(self, start: object) -> object:
        return object()


@dataclass(frozen=True)
class _Place:
    repo: str
    forge: Outside
    clone: Outside


class CountingEffect:
    """Does whatever it is asked to, as often as it is asked to."""

    def __init__(self, name: EffectName, outside: Outside, fact: Mapping[str, object]) -> None:
        self.name = name
        self._outside = outside
        self._fact = fact

    def probe(self, intent: Intent) -> Probe:
        if not self._outside.readable:
            return Unknown("the authority is away")
        return Applied(self._fact) if self._outside.calls[self.name] else NotApplied({})

    def act(self, intent: Intent) -> None:
        self._outside.calls[self.name] += 1
        if self.name is EffectName.MERGE_PR:
            self._outside.main = M

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        return None

    def revoke(self, intent: Intent) -> None:
        self._outside.calls[f"revoke {self.name}"] += 1


@dataclass
class Bench:
    """One database, one outside, and as many processes as a test asks for."""

    store: Store
    outside: Outside = field(default_factory=Outside)
    woken: list[TaskId] = field(default_factory=list)
    queued: list[list[str]] = field(default_factory=list)  # what had been queued each time somebody said so
    terms: dict[BootId, Term] = field(default_factory=dict)

    @property
    def database(self) -> SqliteDatabase:
        return self.store.database

    def process(
        self,
        boot_id: str,
        *,
        enabled: bool = True,
        scope: Scope | None = None,
        points: Points | None = None,
        reach: Reach | None = None,
        **identity: Any,
    ) -> tuple[StageEngine, Ownership]:
        """The engine of one process, registered as a living one of this machine but for what ``identity`` changes."""
        boot = BootId(boot_id)
        with self.database.write() as tx:
            if leases.process(tx, boot, TTL_S) is None:
                own = replace(SystemProcesses().own(), **identity)
                leases.register_process(tx, boot, "here", own, "serve", "")
        term = self.terms.setdefault(boot, Term(self.store.clock, TTL_S))
        term.renew(self.store.clock.boottime())
        ownership = Ownership(
            self.database,
            boot_id=boot,
            processes=SystemProcesses(),
            clock=self.store.clock,
            liveness=FinalizerLiveness(),
            term=term,
            scope=scope or Scope(enabled=enabled),
        )
        passing = points or Points()
        facts: dict[EffectName, Mapping[str, object]] = {
            EffectName.MERGE_PR: {"merged": M, "tree": TREE, "round": 1, "main": M, **self.outside.shown},
            EffectName.PUSH: {"tip": HEAD},
            EffectName.OPEN_PR: {"number": 1},
            EffectName.IMAGE: {"digest": DIGEST},
            EffectName.DEPLOY_INIT: {"environment": "production", "sha": M, "generation": 1},
            EffectName.DEPLOY_UNDO: {"environment": "production", "sha": M, "generation": 2},
        }
        kinds: dict[EffectName, Effect] = {
            name: CountingEffect(name, self.outside, fact) for name, fact in facts.items()
        }
        tools = Tools(
            database=self.database,
            ownership=ownership,
            ledger=Ledger(self.database, kinds, term=term, waypoints=passing),
            places=self.outside,
            configs=Configs(self.outside),
            clock=self.store.clock,
            entropy=self.store.entropy,
            waypoints=passing,
            secrets=(),
            why_closed=lambda repo: None,
            wake=self.woken.extend,
            stop_job=lambda job_id: None,
            queued=lambda: self.queued.append(self.jobs()),
            reach=reach or Reach(),
        )
        return StageEngine(tools, self.outside, self.outside), ownership  # type: ignore[arg-type]

    def beat(self, boot_id: str) -> None:
        """A heartbeat of one process."""
        since = self.store.clock.boottime()
        with self.database.write() as tx:
            assert leases.heartbeat(tx, BootId(boot_id))
        self.terms[BootId(boot_id)].renew(since)

    def before_the_merge(self, *to_do: Step, **ticket: str) -> Task:
        """A task in deploy-staging whose every step but the merge, and what is ``to_do`` before it, is behind it, with
        the slots in hand."""
        task = self.store.new_task(stage=Stage.TESTING, **ticket)
        with self.database.write() as tx:
            tasks.set_branch(tx, task.id, "orch/smp-1", BASE)
            tasks.set_head(tx, task.id, HEAD)
            tasks.set_gated(tx, task.id, HEAD)
            places = [slots.merge_slot(REPO), slots.environment_slot("production")]
            assert slots.take_all(tx, REPO, task.id, places) is None
            assert tasks.update_task_stage_cas(
                tx, task.id, Stage.TESTING, Stage.DEPLOY_STAGING, epoch=task.epoch
            )
            task = tasks.get(tx, task.id)
            evidence.add_candidate(tx, Candidate(task.id, task.round, M, TREE, BASE, HEAD, "n", 900, "f"))
            detail: Mapping[str, object] = {"percent": 80.0}
            evidence.record_check(tx, task, evidence.CheckResult(JobKind.CANDIDATE_CI, M, True, detail))
            for step in STAGE_STEPS[Stage.DEPLOY_STAGING]:
                if step not in (MERGE, *to_do):
                    evidence.mark_step(tx, task, step.name)
        self._settled_image(task)
        return self.store.task(task.id)

    def waiter_elsewhere(self) -> Task:
        """A task of another repository that waits for its slots, production among them."""
        other = RepoName("elsewhere")
        with self.database.write() as tx:
            repositories.add(tx, Repository(other, "local", "/elsewhere", "ELS"))
            task = tasks.add(tx, other, repositories.next_work_item(tx, other), Ticket("Wait"))
            assert task is not None
            assert tasks.update_task_stage_cas(tx, task.id, Stage.CREATED, Stage.TESTING, epoch=task.epoch)
            tasks.hold(tx, task.id, Hold.SLOT, "environment:production is taken")
        return self.store.task(task.id)

    def unhealthy(self, engine: StageEngine, boot_id: str) -> None:
        """The process looks at production, which is ill, and stores that."""
        with self.database.write() as tx:
            job = jobs.claim_next_job(tx, BootId(boot_id), agents=False, checks=True)
        assert job is not None
        check = evidence.CheckResult(JobKind.PRODUCTION_HEALTH, M, False, {"reason": "it is ill"})
        assert engine.finish_job(job, JobStatus.DONE, check=check)

    def before(self, stage: Stage, step: Step, **ticket: str) -> Task:
        """A task in a stage before the merge whose every earlier step is behind it."""
        task = self.store.new_task(stage=stage, **ticket)
        with self.database.write() as tx:
            tasks.set_branch(tx, task.id, "orch/smp-1", BASE)
            tasks.set_head(tx, task.id, HEAD)
            for earlier in STAGE_STEPS[stage][: STAGE_STEPS[stage].index(step)]:
                evidence.mark_step(tx, task, earlier.name)
        return self.store.task(task.id)

    def given_up(self, task: Task, name: EffectName, key: str, cause: Cause, **judged: object) -> None:
        """An effect of the task's round that was revoked."""
        _, ownership = self.process("builder")
        with ownership.transition(task.id, Actor.MONITOR) as lease:
            assert lease is not None
            with self.database.write() as tx:
                intent = effects.intend(tx, lease, name, key, task.round, token="t", judged=judged)
                effects.move(tx, lease, intent, EffectState.REVOKING, "no", cause)
                revoking = replace(intent, state=EffectState.REVOKING)
                effects.settle(tx, lease, revoking, EffectState.REVOKED, {}, "no")

    def _settled_image(self, task: Task) -> None:
        _, ownership = self.process("builder")
        with ownership.transition(task.id, Actor.MONITOR) as lease:
            assert lease is not None
            with self.database.write() as tx:
                intent = effects.intend(
                    tx, lease, EffectName.IMAGE, M, task.round, token="t", judged={"sha": M}
                )
                effects.settle(tx, lease, intent, EffectState.APPLIED, {"digest": DIGEST}, "")

    def jobs(self) -> list[str]:
        return [row["kind"] for row in self.store.rows("SELECT kind FROM jobs ORDER BY id")]

    def notes(self, what: str) -> int:
        """How often a delivery of the kind has been noted in a task's story."""
        rows = self.store.rows("SELECT data FROM events WHERE type = 'note'")
        return sum(what in row["data"] and "told_by" in row["data"] for row in rows)

    def owner(self) -> str:
        """Which process holds the one lease there is."""
        [row] = self.store.rows("SELECT owner_boot_id FROM transition_lease")
        return str(row["owner_boot_id"])

    def ratchets(self) -> int:
        return len(self.store.rows("SELECT 1 FROM coverage_baseline"))

    def lease_rows(self) -> int:
        return len(self.store.rows("SELECT 1 FROM transition_lease"))


def stopped_at() -> tuple[threading.Event, threading.Event, Callable[[], object]]:
    """A hook that stops an actor: (it is there, let it go on, the hook)."""
    there, go = threading.Event(), threading.Event()

    def hook() -> None:
        there.set()
        assert go.wait(PATIENCE_S)

    return there, go, hook


@pytest.fixture
def bench(store: Store) -> Iterator[Bench]:
    yield Bench(store)
