"""The drift watch: one alert for each version that runs instead, told over once; never while a start is under way, and
starting nothing."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.daemons.drift_watch import LOOKS, DriftWatch
from orchestrator.db import repositories
from orchestrator.db.repositories import Repository
from orchestrator.deploy.health import Seen
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.domain.scope import Scope
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from tests.fixtures_db import Store

M1, M2, OTHER, BASE = ("a" * 40, "b" * 40, "c" * 40, "d" * 40)
EFFECT = (
    "INSERT INTO effects "
    "(task_id, name, key, round, state, epoch, sequence, token, actor, evidence, intent_at, settled_at) VALUES "
    "(:task, :name, :key, 1, :state, 1, :sequence, 't', 'monitor', :evidence, utc_now(), :settled)"
)
CANDIDATE = (
    "INSERT INTO candidates VALUES (:task, 1, :sha, :sha, :base, :sha, :sha, :sequence, 'f', utc_now())"
)


@dataclass
class World:
    """What runs where, and a watch that asks it."""

    store: Store
    runs: dict[str, str | None] = field(default_factory=dict)
    ended: bool = True
    config: Any = None
    asked: int = 0
    open: frozenset[RepoName] = frozenset({RepoName("sample")})
    between: Any = None  # happens while an environment is asked
    sequence: int = 0
    scope: Scope = field(default_factory=Scope)

    def __post_init__(self) -> None:
        place = lambda name: SimpleNamespace(name=name, probe=name)  # noqa: E731
        self.config = SimpleNamespace(production=place("production"), staging=place("staging"))
        self.watch = self.new_life()

    def new_life(self) -> DriftWatch:
        self.watch = DriftWatch(
            self.store.database,
            self,
            self,
            self,
            lambda: self.open,
            clock=self.store.clock,
            interval_s=1,  # type: ignore[arg-type]
            scope=self.scope,
        )
        return self.watch

    def of(self, repo: str, base: str) -> Any:
        assert (repo, base) == ("sample", BASE)
        if self.config is None:
            raise ConfigError("it is broken")
        return self.config

    def exit(self, start: Any) -> object:
        return object() if self.ended else None

    def observe_once(self, probe: str) -> Seen:
        self.asked += 1
        if self.between is not None:
            self.between()
        sha = self.runs.get(probe)
        return Seen(Sha(sha) if sha else None, sha is not None, "it said so")

    def started(self, sha: str, *, name: str = "deploy_init", state: str = "applied", **more: object) -> Task:
        """A task that is done, and its start."""
        task = self.store.new_task()
        self.sequence += 10
        values = {"task": task.id, "sequence": self.sequence, "sha": sha, "base": BASE}
        self.store.raw(CANDIDATE, values)
        self.effect(task, sha, name=name, state=state, **more)
        merged = {"environment": "-"}
        self.effect(task, "m", name="merge_pr", **merged)
        self.store.move(task.id, Stage.DEPLOY)
        return self.store.move(task.id, Stage.DONE)

    def effect(self, task: Task, sha: str, *, name: str, state: str = "applied", **more: object) -> None:
        self.sequence += 1
        told = {
            "environment": "production", "sha": sha, "generation": 1, "digest": "x", "artifact": "/x",
            "argv": ["deploy"],
            "timeout_s": 1, "work_item": task.work_item, "installation": "i", "env": {},
            "step": "effect:deploy_init/production",
            **more,
        }  # fmt: skip
        values = {
            "task": task.id, "name": name, "key": f"{sha}:{self.sequence}", "state": state,
            "sequence": self.sequence, "evidence": json.dumps(told),
            "settled": "2026" if state == "applied" else None,
        }  # fmt: skip
        self.store.raw(EFFECT, values)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.watch.run_once()

    def state(self, environment: str = "production") -> str:
        return next(str(w["state"]) for w in self.watch.snapshot() if w["environment"] == environment)

    def alerts(self) -> list[str]:
        rows = self.store.rows("SELECT payload FROM outbox WHERE kind = 'alert' ORDER BY id")
        return [json.loads(row["payload"])["text"] for row in rows]


@pytest.fixture
def world(store: Store) -> World:
    store.drop_guard("start_has_its_place", "effects")  # the ledger is told, not worked for
    return World(store)


def test_what_runs_as_deployed_is_told_nobody(world: World) -> None:
    world.started(M1)
    world.runs["production"] = M1
    world.look(LOOKS * 2)
    assert (world.state(), world.alerts(), world.asked) == ("as deployed", [], LOOKS * 2)


def test_an_environment_out_of_scope_is_not_even_asked(world: World) -> None:
    world.started(M1)
    world.runs["production"] = OTHER
    world.scope = Scope(repos=frozenset({"another"}))
    world.new_life()
    world.look(LOOKS + 1)
    assert (world.watch.snapshot(), world.alerts(), world.asked) == ([], [], 0)


def test_an_environment_that_goes_over_to_a_repository_out_of_scope_is_not_shown_any_more(
    world: World, store: Store
) -> None:
    world.scope = Scope(repos=frozenset({"sample"}))
    world.started(M1)
    world.runs["production"] = OTHER
    world.new_life()
    world.look(LOOKS)
    assert world.state() == "drifted"
    other = world.started(M2)
    with store.database.write() as tx:
        repositories.add(tx, Repository(RepoName("another"), "local", "/elsewhere", "ANO"))
    store.raw("UPDATE tasks SET repo = 'another' WHERE id = :id", {"id": other.id})
    world.look()
    assert world.watch.snapshot() == []


def test_something_else_is_told_once_with_its_number_and_told_over_once(world: World, store: Store) -> None:
    task = world.started(M1)
    world.runs["production"] = OTHER
    world.look(LOOKS - 1)
    assert (world.state(), world.alerts()) == ("differs", [])
    world.look(5)
    assert world.state() == "drifted"
    (alert,) = world.alerts()
    assert all(word in alert for word in (task.work_item, "production", OTHER, M1))
    world.new_life()
    world.look(LOOKS + 1)  # another life says nothing twice
    assert len(world.alerts()) == 1
    world.runs["production"] = M1
    world.new_life()
    world.look(3)
    assert len(world.alerts()) == 2
    assert f"runs {M1} again" in world.alerts()[1]
    assert len(store.rows("SELECT 1 FROM lessons WHERE kind = 'drift'")) == 1
    types = [
        row["type"] for row in store.rows("SELECT type FROM events WHERE type LIKE 'drift%' ORDER BY id")
    ]
    assert types == ["drift.seen", "drift.over"]


def test_a_second_drift_is_told_as_the_first_was(world: World) -> None:
    world.started(M1)
    for _ in range(2):
        world.runs["production"] = OTHER
        world.look(LOOKS)
        world.new_life()
        world.look(LOOKS)
        world.runs["production"] = M1
        world.look()
        world.new_life()
        world.look(2)
    assert ["again" in alert for alert in world.alerts()] == [False, True, False, True]


def test_another_version_in_the_middle_of_a_drift_is_told_once_it_stays(world: World) -> None:
    world.started(M1)
    world.runs["production"] = OTHER
    world.look(LOOKS)
    for sha in (M2, OTHER) * 4:  # in turn: neither stays
        world.runs["production"] = sha
        world.look()
    assert len(world.alerts()) == 1
    world.runs["production"] = M2
    world.look(LOOKS)
    world.runs["production"] = OTHER
    world.look(LOOKS * 2)
    assert [M2 in alert for alert in world.alerts()] == [False, True]


def test_versions_that_answer_in_turn_are_told_though_neither_stays(world: World) -> None:
    world.started(M1)
    for sha in (M2, OTHER) * 3:
        world.runs["production"] = sha
        world.look()
    assert len(world.alerts()) == 1


def test_a_wavering_environment_has_to_differ_in_a_row(world: World) -> None:
    world.started(M1)
    for sha in (OTHER, OTHER, M1) * 3:
        world.runs["production"] = sha
        world.look()
    assert world.alerts() == []


def test_an_answer_without_a_version_is_shown_and_not_told(world: World) -> None:
    world.started(M1)
    world.look(LOOKS * 2)
    assert (world.state(), world.alerts()) == ("unknown", [])


def test_a_later_start_is_watched_instead(world: World) -> None:
    world.started(M1)
    world.runs["production"] = M1
    world.look()
    world.started(M2)
    world.runs["production"] = M2
    world.look(LOOKS)
    assert (world.state(), world.alerts()) == ("as deployed", [])
    again = world.started(
        M2.replace("b", "e")
    )  # and once more: an earlier drift is that of the earlier start
    world.look(LOOKS)
    assert again.work_item in world.alerts()[0]


@pytest.mark.parametrize("state", ["intended", "revoking", "in_doubt"])
def test_it_waits_for_a_start_that_is_not_settled(world: World, store: Store, state: str) -> None:
    world.started(M1)
    world.runs["production"] = OTHER
    world.effect(store.new_task(), M2, name="deploy_init", state=state)
    world.look(LOOKS)
    assert (world.state(), world.asked) == ("waits", 0)


def test_it_waits_for_a_start_that_is_not_over(world: World, store: Store) -> None:
    task = store.new_task()
    world.effect(task, M1, name="deploy_init")
    world.look()
    assert world.state() == "waits"
    world.started(M2)
    world.ended = False
    world.look()
    assert (world.state(), world.asked) == ("waits", 0)


def test_a_start_that_comes_in_between_makes_the_look_void(world: World, store: Store) -> None:
    world.started(M1)
    world.runs["production"] = M2
    task = store.new_task()

    def other() -> None:
        world.between = None
        world.effect(task, M2, name="deploy_init", state="intended")

    world.between = other
    world.look(LOOKS)
    assert (world.state(), world.alerts()) == ("waits", [])


def test_after_an_undo_what_it_brought_back_is_expected(world: World, store: Store) -> None:
    world.started(M1)
    broken = world.started(M2)
    world.effect(broken, M2, name="deploy_undo", restored_sha=M1)
    world.runs["production"] = M1
    world.look()
    assert world.state() == "as deployed"
    world.runs["production"] = M2
    world.look(LOOKS)
    assert len(world.alerts()) == 1
    world.effect(broken, M2, name="deploy_undo", restored_sha=None)
    world.look()
    assert world.state() == "waits"


def test_staging_is_watched_once_it_was_found_healthy(world: World, store: Store) -> None:
    start = {"environment": "staging", "step": "effect:deploy_init/staging"}
    task = world.started(M1, **start)
    world.runs["staging"] = OTHER
    world.look()
    assert world.state("staging") == "waits"
    step = "INSERT INTO steps VALUES (:task, 'deploy-staging', 1, 'gate:check_staging', '{}', utc_now())"
    store.raw(step, {"task": task.id})
    world.look(LOOKS)
    assert world.state("staging") == "drifted"


def test_a_fault_at_one_environment_keeps_nobody_from_the_others(world: World) -> None:
    world.started(M1, environment="nowhere")
    world.started(M2)
    world.runs["production"] = M2
    world.look()
    assert (world.state("nowhere"), world.state()) == ("unknown", "as deployed")
    world.config = None
    world.look()
    assert world.state() == "unknown"


def test_of_a_repository_that_is_closed_nothing_is_asked_or_told(world: World) -> None:
    """A database that was put back does not know what was deployed since: to it every later version is a drift."""
    world.started(M1)
    world.runs["production"] = M2
    world.open = frozenset()
    world.look(LOOKS * 2)
    assert (world.state(), world.alerts(), world.asked) == ("waits", [], 0)
    world.open = frozenset({RepoName("sample")})
    world.look(LOOKS)
    assert len(world.alerts()) == 1
