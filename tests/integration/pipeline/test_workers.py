"""One service that runs no agents, and workers with state folders of their own."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.job import RunOutcome
from orchestrator.played.gitea import FakeGitea
from orchestrator.repositories import GITEA
from tests.at_a_server import Delivery, delivering
from tests.fixtures_pipeline import Build, Pipeline
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)

SETTINGS = {
    "ORCH_MAX_AGENTS": "0",
    "ORCH_FORGE_SETTLE_S": "0",
    "ORCH_RECONCILER_INTERVAL_S": "1",
    "ORCH_REAPER_INTERVAL_S": "0.3",
}
SOON_LOST = {  # after three seconds of silence
    "ORCH_HEARTBEAT_INTERVAL_S": "0.2",
    "ORCH_PROCESS_TTL_S": "1",
    "ORCH_RUN_ORPHAN_TTL_S": "1",
}


@pytest.fixture
def shop(pipeline: Build) -> Callable[..., Pipeline]:
    """At work, with a local forge in a folder that the workers see as well."""

    def build(**more: Any) -> Pipeline:
        return pipeline(settings={**SETTINGS, **more.pop("settings", {})}, **more).start()

    return build


@pytest.fixture
def delivery(pipeline: Build, tmp_path: Path) -> Iterator[Delivery]:
    """The same with a Gitea."""
    with delivering(pipeline, FakeGitea(tmp_path / "server"), GITEA) as build:
        at = build(settings=SETTINGS, image=True, staging=True, production=True)
        at.line.start()
        yield at
        for child in at.line.children:  # before the server ends
            child.kill()
            child.wait()


def homes(line: Pipeline, item: str) -> set[str]:
    """Below which folders the agents of a ticket worked."""
    return {Path(run["cwd"]).relative_to(line.root).parts[0] for run in line.agents(item)}


def outcomes(line: Pipeline, item: str, role: str) -> list[RunOutcome | None]:
    return [run.outcome for kind, run in line.story(item).runs if kind == role]


def delivered_once(line: Pipeline, item: str) -> None:
    candidates = line.story(item).candidates
    assert candidates[-1].sha == line.running("production")
    assert len(line.deployed("production")) == 1


def test_a_ticket_whose_agents_all_work_at_a_worker_is_delivered(delivery: Delivery) -> None:
    """Analysis, a rejected review, and the look at staging; what is checked and deployed the service does."""
    line = delivery.line
    line.agent({"role": "reviewer", "round": 1, "verdict": "rejected", "findings": ["Name it."]})
    line.worker()
    item = line.add()
    line.done(item)
    delivered_once(line, item)
    assert delivery.main == line.running("production")
    assert homes(line, item) == {"worker"}
    assert line.roles(item) == [
        "analyst",
        "developer",
        "reviewer",
        "developer",
        "reviewer",
        "tester",
        "deployer",
    ]
    assert not (line.home / "runs").exists()
    wait_until(lambda: not list((line.root / "worker").glob("repos/*/worktrees/S-*")))


def test_a_worker_that_was_killed_watches_its_agent_again(shop: Callable[..., Pipeline]) -> None:
    line = shop(production=True)
    line.agent({"role": "developer", "until": str(line.root / "go")})
    first = line.worker()
    item = line.add()
    line.started(item, "developer")
    assert f"runs developer, attempt 1, at the worker in {line.root}/worker on " in line.why(item)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    line.worker()
    (line.root / "go").touch()
    line.done(item)
    delivered_once(line, item)
    assert outcomes(line, item, "developer") == [RunOutcome.DONE]


@pytest.mark.long(but=["never-postgres", "push.before_act-postgres"])
@pytest.mark.parametrize(
    ("point", "role", "runs"),
    [
        ("never", "analyst", 2),
        ("check_change.judged", "developer", 2),
        ("push.before_act", "analyst", 2),
        ("push.after_act", "analyst", 1),
    ],
    ids=["never", "check_change.judged", "push.before_act", "push.after_act"],
)
def test_what_lies_at_a_worker_that_is_gone_for_good_is_done_anew_elsewhere(
    shop: Callable[..., Pipeline], point: str, role: str, runs: int
) -> None:
    """Whatever it was at: its agent, judging what that had done, or pushing it."""
    line = shop(production=True, settings=SOON_LOST)
    item = line.add()
    if point == "never":
        line.agent({"role": "analyst", "attempt": 1, "until": str(line.root / "go")})
    first = line.worker(point=point)
    if point == "never":
        line.started(item, "analyst")
        first.kill()
    assert first.wait() == -signal.SIGKILL
    line.worker("another")
    line.done(item)
    delivered_once(line, item)
    assert line.roles(item).count(role) == runs
    if point == "never":
        assert outcomes(line, item, "analyst") == [RunOutcome.LOST, RunOutcome.DONE]
