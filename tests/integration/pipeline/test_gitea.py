"""A ticket delivered over a Gitea: what its git and its journal of calls show of it."""

import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.ids import RepoName
from orchestrator.domain.task import Hold
from orchestrator.played.gitea import FakeGitea, How, Style
from orchestrator.repositories import GITEA
from orchestrator.rules.trailers import trailers
from tests.at_a_server import Delivery, delivering, lose_the_answers
from tests.fixtures_pipeline import Build
from tests.waiting import PATIENCE_S


@pytest.fixture
def delivery(pipeline: Build, tmp_path: Path) -> Iterator[Callable[..., Delivery]]:
    with delivering(pipeline, FakeGitea(tmp_path / "server"), GITEA) as build:
        yield build


@pytest.mark.long(but=["answers are lost"])
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
    assert at.effects(item)[EffectName.MERGE_PR] == [EffectState.APPLIED]
    assert [status for status in at.asked("POST", r"/merge$") if status != 405] == [0 if lost else 200]
    assert len(line.deployed("production")) == 1


@pytest.mark.long
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


@pytest.mark.long
def test_main_moves_while_the_server_merges(delivery: Callable[..., Delivery]) -> None:
    """The candidate is the pull request's head by then: it is taken from there, and another one is made."""
    at = delivery()
    at.there.looks_until_checked = 0
    held = at.server.fail("POST", r"/merge$", How.HELD)
    line = at.line.start()
    item = line.add()
    assert held.reached.wait(PATIENCE_S)
    task = line.task(item)
    assert at.there.branch(str(task.branch)) == line.story(item).candidates[0].sha
    line.person.git("pull", "-q", "--ff-only", str(at.there.path), "main")
    pushed = line.person.commit("By somebody else", {"src/theirs.py": "T = 1\n"})
    line.person.git("push", "-q", str(at.there.path), "HEAD:main")
    held.go_on.set()
    line.done(item)
    _, second = line.story(item).candidates
    assert at.main == second.sha
    assert at.git.git("rev-parse", "main^1", "main^2").split() == [pushed, task.head_sha]
    assert at.effects(item)[EffectName.MERGE_PR] == [EffectState.REVOKED, EffectState.APPLIED]
    assert [pull.merged for pull in at.there.pulls] == [True]


@pytest.mark.long(but=["merge_pr.after_act-1"])
@pytest.mark.parametrize(
    ("point", "count"),
    [("push.after_act", 1), ("open_pr.after_act", 1), ("merge_pr.before_act", 1), ("merge_pr.after_act", 1)],
)
def test_killed_between_an_act_and_what_is_known_of_it(
    delivery: Callable[..., Delivery], point: str, count: int
) -> None:
    at = delivery(production=True)
    item = at.line.add()
    at.line.stop()
    assert at.line.child(point, count).wait(PATIENCE_S) == -signal.SIGKILL
    line = at.line.start()
    line.done(item)
    [candidate] = line.story(item).candidates
    assert at.merges() == [candidate.sha]
    assert [pull.merged for pull in at.there.pulls] == [True]
    assert at.asked("POST", r"/merge$").count(200) == at.asked("POST", r"/pulls$").count(201) == 1
    assert len(line.deployed("production")) == 1


@pytest.mark.long
def test_a_pull_request_that_a_person_closes_there_holds_its_task(delivery: Callable[..., Delivery]) -> None:
    at = delivery(settings={"ORCH_RECONCILER_INTERVAL_S": "0.3"})
    line = at.line.start()
    line.points.on("check_testing.judged", lambda: at.server.close_by_hand(at.there, at.there.pulls[0]))
    item = line.add()
    task = line.held(item, Hold.BLOCKED)
    assert "was closed by hand" in str(task.hold_reason)
    assert at.merges() == []
    with at.there.lock:
        at.there.pulls[0].state = "open"
    line.done(item)
    assert [pull.merged for pull in at.there.pulls] == [True]


@pytest.mark.long
def test_what_a_person_merges_there_too_early_is_delivered_all_the_same(
    delivery: Callable[..., Delivery],
) -> None:
    at = delivery(production=True)
    line = at.line.start()
    line.points.on("check_testing.judged", lambda: at.server.merge_by_hand(at.there, at.there.pulls[0]))
    item = line.add()
    line.done(item)
    [candidate] = line.story(item).candidates
    assert at.main == candidate.sha == line.running("production")
    assert len(at.merges()) == 2
    assert [pull.merged for pull in at.there.pulls] == [True, True]


@pytest.mark.long
def test_a_server_in_trouble_delays_and_doubles_nothing(delivery: Callable[..., Delivery]) -> None:
    at = delivery(production=True, settings={"ORCH_RECONCILER_INTERVAL_S": "0.3"})
    line = at.line.start()
    for method in ("GET", "POST"):
        at.server.fail(method, "", How.BEFORE, status=503, times=12)
    item = line.add()
    line.done(item)
    assert len(at.merges()) == len(at.there.pulls) == len(line.deployed("production")) == 1
    assert 503 in {call.status for call in at.server.journal.calls}


@pytest.mark.long
def test_a_database_that_was_restored_does_nothing_there_until_it_is_accepted(
    delivery: Callable[..., Delivery], tmp_path: Path
) -> None:
    """Its mark, its fences and its merges at the server tell it that it has forgotten something."""
    at = delivery()
    line = at.line.start()
    kept = tmp_path / "kept.db"
    with (
        closing(sqlite3.connect(line.home / "orchestrator.db")) as source,
        closing(sqlite3.connect(kept)) as to,
    ):
        source.backup(to)
    first = line.add("First")
    line.done(first)
    merged = at.main
    line.stop()
    for file in line.home.glob("orchestrator.db-*"):
        file.unlink()
    shutil.copy(kept, line.home / "orchestrator.db")
    shutil.rmtree(line.home / "runs")  # so that the server alone can tell
    line.start()
    assert not line.app.guard.open_repositories()
    assert line.app.guard.why_restored(RepoName(line.repo)) is not None
    line.app.restore.accept(person="Ann", reason="the disk was lost")
    again = line.add("Second")
    line.done(again)
    assert len(at.merges()) == 2
    assert at.there.is_ancestor(merged, at.main)
