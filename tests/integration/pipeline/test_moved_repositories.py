"""A repository that is renamed at its server while a ticket is under way: noticed, told, followed when a person
says so; and one that was left."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import ConfigError, RequestRefused
from orchestrator.domain.task import Hold
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub
from orchestrator.repositories import GITEA, GITHUB
from tests.at_a_server import Delivery, delivering
from tests.fixtures_git_server import repository_at
from tests.fixtures_pipeline import Build
from tests.waiting import wait_until

CONFIRMING = "[approvals]\ndeploy = true\n"


@pytest.fixture(params=[GITEA, GITHUB])
def delivery(
    request: pytest.FixtureRequest, pipeline: Build, tmp_path: Path
) -> Iterator[Callable[..., Delivery]]:
    server: Any = {GITEA: FakeGitea, GITHUB: FakeGitHub}[request.param](tmp_path / "server")
    with delivering(pipeline, server, request.param) as build:
        yield build


@pytest.mark.long
def test_a_renamed_repository_is_told_of_and_its_ticket_goes_on_at_the_new_place(
    delivery: Callable[..., Delivery],
) -> None:
    at = delivery(more=CONFIRMING, production=True)
    line = at.line.start()
    item = line.add()
    task = line.held(item, Hold.PERSON)
    at.server.rename(at.there, "store")
    for _ in range(2):
        assert line.app.repository_watch.run_once()["moved"] == 1
    [told] = [text for text in line.alerts() if "acme/store" in text]
    assert "orch repo move sample --to acme/store" in told
    line.app.operations.approve(item, person="Ann")
    wait_until(lambda: "orch repo move" in line.why(item))
    assert at.merges() == []

    with pytest.raises(RequestRefused, match="is not sample as it was"):
        repository_at(at.server, line.person, "acme/other")
        line.app.moving.move("sample", "acme/other", person="Ann")
    moved = line.app.moving.move("sample", "acme/store", person="Ann", reason="renamed")
    assert moved.location == f"{at.server.url}/acme/store"
    assert line.app.moving.move("sample", "acme/store", person="Ann") == moved
    line.done(item)
    [candidate] = line.story(item).candidates
    assert at.merges() == [candidate.sha]
    assert [pull.number for pull in at.there.pulls] == [task.pr_number]
    assert line.app.repository_watch.run_once() == {"moved": 0, "told": 0}
    assert list((line.home / "mirrors").iterdir()) == [line.home / "mirrors" / "sample.git"]


@pytest.mark.long
def test_what_is_not_the_same_any_more_is_refused(delivery: Callable[..., Delivery]) -> None:
    at = delivery()
    line = at.line.start()
    wait_until(lambda: line.app.guard.open_repositories())
    at.server.rename(at.there, "store")
    mark = at.there.git("rev-parse", "refs/orch/installation")
    at.there.git("update-ref", "-d", "refs/orch/installation")
    with pytest.raises(RequestRefused, match="lost the mark"):
        line.app.moving.move("sample", "acme/store", person="Ann")
    at.there.git("update-ref", "refs/orch/installation", mark)
    main = at.main
    other = at.there.git("commit-tree", "main^{tree}", input="Another beginning")
    at.there.git("update-ref", "refs/heads/main", other)
    with pytest.raises(RequestRefused, match="does not contain"):
        line.app.moving.move("sample", "acme/store", person="Ann")
    at.there.git("update-ref", "refs/heads/main", main)
    assert line.app.moving.move("sample", "acme/store", person="Ann").location.endswith("/acme/store")


@pytest.mark.long
def test_another_process_lets_go_of_the_old_place(delivery: Callable[..., Delivery]) -> None:
    at = delivery()
    line = at.line.start()
    wait_until(lambda: line.app.guard.open_repositories())
    before = line.app.places.of("sample")
    assert line.app.places.let_go() == 0
    at.server.rename(at.there, "store")
    with line.app.database.write() as tx:
        tx.execute(
            "repositories.move",
            name="sample",
            known=before.forge.fetch_url(),
            location=f"{at.server.url}/acme/store",
        )
    line.app.guard_watch.run_once()
    assert line.app.places.of("sample").forge.fetch_url() == f"{at.server.url}/acme/store"


def test_a_local_forge_has_no_other_place(pipeline: Build) -> None:
    line = pipeline().start()
    with pytest.raises(ConfigError, match="has a local forge"):
        line.app.moving.move("sample", "acme/store", person="Ann")


def test_what_was_left_is_looked_at_no_more(pipeline: Build) -> None:
    """Its forge may go away: nobody is told, and nothing is closed."""
    line = pipeline(production=True).start()
    wait_until(lambda: line.app.guard.open_repositories())
    line.app.operations.disconnect("sample", person="Ann")
    shutil.rmtree(line.forge.folder)
    line.app.guard_watch.run_once()
    assert line.app.guard.open_repositories() == frozenset()
    assert line.app.drift_watch.run_once().get("failed", 0) == 0
    assert (line.app.guard.start(), line.alerts()) == ({}, [])
