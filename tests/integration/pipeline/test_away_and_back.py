"""At a forge elsewhere a person closes or deletes what is under way, or the server is down: each effect once."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.task import Hold
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub
from orchestrator.repositories import GITEA, GITHUB
from tests.at_a_server import Delivery, delivering
from tests.fixtures_pipeline import Build, block
from tests.waiting import PATIENCE_S, wait_until

SERVERS = {GITEA: FakeGitea, GITHUB: FakeGitHub}
SOON = {"ORCH_RECONCILER_INTERVAL_S": "0.3"}


@pytest.fixture(params=[GITEA, GITHUB])
def delivery(request: Any, pipeline: Build, tmp_path: Path) -> Iterator[Callable[..., Delivery]]:
    with delivering(pipeline, SERVERS[request.param](tmp_path / "server"), request.param) as build:
        yield build


def _delivered_once(at: Delivery, item: str) -> None:
    [candidate] = [c for c in at.line.story(item).candidates if c.sha in at.merges()]
    assert at.merges() == [candidate.sha] == [at.main]
    assert [pull.merged for pull in at.there.pulls] == [True]
    assert at.effects(item)[EffectName.MERGE_PR][-1] is EffectState.APPLIED
    assert [start["sha"] for start in at.line.deployed("production")] == [candidate.sha]


def _person_pushes(at: Delivery, spec: str) -> None:
    """By the server's own door, so that it does what it does after a push."""
    url = f"{at.server.url.replace('://', f'://dana:{at.server.token}@')}/{at.there.full_name}.git"
    at.line.person.git("push", "-q", "--force", url, spec)


@pytest.mark.long(but=["gitea-after the last"])
@pytest.mark.parametrize("gone", [False, True], ids=["before a push", "after the last"])
def test_a_branch_that_a_person_deletes_holds_its_task(delivery: Callable[..., Delivery], gone: bool) -> None:
    """Deleting it closes its pull request, and the server reopens none whose branch is gone."""
    at = delivery(production=True, settings=SOON)
    line = at.line
    there, go, hook = block()
    line.points.on("merge_pr.intended" if gone else "check_testing.judged", hook)
    item = line.start().add()
    assert there.wait(PATIENCE_S)
    task = line.task(item)
    branch, head, number = str(task.branch), str(task.head_sha), at.there.pulls[0].number
    _person_pushes(at, f":refs/heads/{branch}")
    go.set()
    reason = str(line.held(item, Hold.BLOCKED).hold_reason)
    assert at.merges() == []
    if gone:
        assert (
            f"its pull request {number} was closed with its branch {branch}, which is gone: restore" in reason
        )
        line.person.git("fetch", "-q", str(at.there.path), f"refs/pull/{number}/head")
        _person_pushes(at, f"{head}:refs/heads/{branch}")
    else:  # the tester's commit has brought it back
        assert f"its pull request {number} was closed by hand: reopen it" in reason
        assert at.there.branch(branch) == str(line.task(item).head_sha)
    at.server.say("dana", "PATCH", at.there, f"/pulls/{number}", {"state": "open"})
    line.done(item)
    _delivered_once(at, item)


@pytest.mark.long(but=["github"])
def test_a_pull_request_that_is_closed_while_its_merge_is_under_way_holds_no_slot(
    delivery: Callable[..., Delivery],
) -> None:
    at = delivery(production=True, settings=SOON)
    line = at.line
    line.points.on("merge_pr.intended", lambda: at.server.close_by_hand(at.there, at.there.pulls[0]))
    item = line.start().add()
    reason = str(line.held(item, Hold.BLOCKED).hold_reason)
    assert "was closed by hand: reopen it" in reason
    assert (line.slots(), at.merges()) == ([], [])
    at.server.say("dana", "PATCH", at.there, f"/pulls/{at.there.pulls[0].number}", {"state": "open"})
    line.done(item)
    _delivered_once(at, item)
    assert at.effects(item)[EffectName.MERGE_PR] == [EffectState.REVOKED, EffectState.APPLIED]


@pytest.mark.long(but=["github-merge_pr.intended"])
@pytest.mark.parametrize("point", ["check_testing.judged", "merge_pr.intended"])
def test_a_branch_that_a_person_forces_back_is_delivered_whole(
    delivery: Callable[..., Delivery], point: str
) -> None:
    """Before a push that brings it forward again, and where the merge is under way: then it is gated once more."""
    at = delivery(production=True, settings=SOON)
    line = at.line
    base = line.person.git("rev-parse", "HEAD")
    forced: list[str] = []

    def force_back() -> None:
        branch = str(line.task(item).branch)
        _person_pushes(at, f"{base}:refs/heads/{branch}")
        forced.append(str(at.there.branch(branch)))

    line.points.on(point, force_back)
    item = line.start().add()
    line.done(item)
    assert forced == [base]
    _delivered_once(at, item)
    given_up = [EffectState.REVOKED] if point == "merge_pr.intended" else []
    assert at.effects(item)[EffectName.MERGE_PR] == [*given_up, EffectState.APPLIED]


@pytest.mark.long(but=["gitea-merge_pr"])
@pytest.mark.parametrize("effect", [EffectName.PUSH, EffectName.OPEN_PR, EffectName.MERGE_PR])
def test_a_server_that_is_down_for_an_hour(delivery: Callable[..., Delivery], effect: EffectName) -> None:
    at = delivery(production=True, settings=SOON)
    line = at.line.start()
    there, go, hook = block()
    line.points.on(f"{effect}.intended", hook)
    item = line.add()
    assert there.wait(PATIENCE_S)
    with at.server.away():
        go.set()
        wait_until(lambda: at.effects(item)[effect][-1] is EffectState.IN_DOUBT)
        line.clock.ahead = timedelta(hours=1)
        [told] = wait_until(lambda: [alert for alert in line.alerts() if effect.value in alert])
    line.done(item)
    _delivered_once(at, item)
    assert [alert for alert in line.alerts() if effect.value in alert] == [told]
