"""A ticket delivered over a Gitea: what its git and its journal of calls show of it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.rules.trailers import trailers
from tests.fakes.gitea import FakeGitea, How, Repository, Style
from tests.fixtures_git import Hand
from tests.fixtures_gitea import NAME, repository_at
from tests.fixtures_pipeline import Build, Pipeline


@dataclass(frozen=True)
class Delivery:
    """An installation whose repository lies at a server."""

    line: Pipeline
    server: FakeGitea
    there: Repository

    @property
    def git(self) -> Hand:
        return Hand(self.there.path)

    @property
    def main(self) -> str:
        return self.git.git("rev-parse", "main")

    def merges(self) -> list[str]:
        return self.git.git("log", "--first-parent", "--merges", "--format=%H", "main").split()

    def asked(self, method: str, pattern: str) -> list[int]:
        """How each of these calls was answered."""
        return [call.status for call in self.server.calls(method, pattern)]


@pytest.fixture
def delivery(pipeline: Build, tmp_path: Path) -> Iterator[Callable[..., Delivery]]:
    made: list[Pipeline] = []
    with FakeGitea(tmp_path / "server") as server:

        def build(**more: Any) -> Delivery:
            known = {
                "ORCH_GITEA_URL": server.url,
                "ORCH_GITEA_TOKEN": server.token,
                "ORCH_FORGE_SETTLE_S": "0",
            }
            line = pipeline(settings={**known, **more.pop("settings", {})}, **more)
            made.append(line)
            there = repository_at(server, line.person)
            line.open().register_gitea(NAME, name=line.repo, prefix="S")
            return Delivery(line, server, there)

        yield build
        for line in made:  # before the server ends
            line.stop()


def lose_the_answers(server: FakeGitea) -> None:
    """Of the first call of every kind that has an effect."""
    for path in (r"/pulls$", r"/merge$", r"/git-receive-pack$"):
        server.fail("POST", path, How.LOST)


def effects_of(line: Pipeline, item: str) -> Mapping[EffectName, list[EffectState]]:
    found: dict[EffectName, list[EffectState]] = {}
    for effect in line.story(item).effects:
        found.setdefault(effect.name, []).append(effect.state)
    return found


@pytest.mark.parametrize("lost", [False, True], ids=["answers arrive", "answers are lost"])
def test_from_the_ticket_to_production(delivery: Callable[..., Delivery], lost: bool) -> None:
    at = delivery(coverage=True, image=True, staging=True, production=True)
    before = at.main
    if lost:
        at.there.looks_until_checked = 0  # so that the first call merges
        lose_the_answers(at.server)
    line = at.line.start()
    item = line.add("Add a greeting")
    task = line.done(item)

    [candidate] = line.story(item).candidates
    assert at.merges() == [candidate.sha]
    assert at.main == candidate.sha == line.running("staging") == line.running("production")
    assert at.git.git("rev-parse", "main^1", "main^2").split() == [before, task.head_sha]
    assert trailers(at.git.git("log", "-1", "--format=%B", "main"))["Orch-Nonce"] == candidate.nonce
    [pull] = at.there.pulls
    assert (pull.number, pull.merged, pull.branch) == (task.pr_number, True, task.branch)
    assert effects_of(line, item)[EffectName.MERGE_PR] == [EffectState.APPLIED]
    assert [status for status in at.asked("POST", r"/merge$") if status != 405] == [0 if lost else 200]
    assert len(line.deployed("production")) == 1


def test_a_forge_that_only_merges_gets_the_same_tree(delivery: Callable[..., Delivery]) -> None:
    at = delivery()
    at.there.styles.discard(Style.FAST_FORWARD)
    line = at.line.start()
    item = line.add()
    line.done(item)
    [candidate] = line.story(item).candidates
    [merge] = at.merges()
    assert merge == at.main != candidate.sha
    assert at.git.git("rev-parse", f"{merge}^{{tree}}") == candidate.tree
    assert at.git.git("rev-parse", f"{merge}^2") == candidate.sha
