"""A ticket delivered over a GitHub: what its git and its journal of calls show of it."""

import json
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.task import Hold
from orchestrator.played.github import FakeGitHub, Rules
from orchestrator.repositories import GITHUB
from orchestrator.rules.trailers import trailers
from tests.at_a_server import Delivery, delivering, lose_the_answers
from tests.fixtures_pipeline import Build
from tests.waiting import PATIENCE_S


@pytest.fixture
def delivery(pipeline: Build, tmp_path: Path) -> Iterator[Callable[..., Delivery]]:
    with delivering(pipeline, FakeGitHub(tmp_path / "server"), GITHUB) as build:
        yield build


def test_from_the_ticket_to_production_though_answers_are_lost(delivery: Callable[..., Delivery]) -> None:
    """Main is the candidate itself, by one push."""
    at = delivery(coverage=True, image=True, staging=True, production=True)
    before = at.main
    lose_the_answers(at.server)
    line = at.line.start()
    item = line.add("Add a greeting")
    task = line.done(item)

    [candidate] = line.story(item).candidates
    assert at.merges() == [candidate.sha]
    assert at.main == candidate.sha == line.running("staging") == line.running("production")
    assert at.git.git("rev-parse", "main^1", "main^2").split() == [before, task.head_sha]
    [pull] = at.there.pulls
    assert (pull.number, pull.merged, pull.branch) == (task.pr_number, True, task.branch)
    assert at.effects(item)[EffectName.MERGE_PR] == [EffectState.APPLIED]
    assert at.asked("PUT", r"/merge$") == []
    assert len(line.deployed("production")) == 1


@pytest.mark.long
def test_where_main_takes_no_push_the_server_merges_the_same_tree(delivery: Callable[..., Delivery]) -> None:
    at = delivery(production=True)
    at.there.protect("main", Rules())
    at.there.looks_until_synced = 0  # so that the first call merges
    lose_the_answers(at.server)
    line = at.line.start()
    item = line.add()
    line.done(item)

    [candidate] = line.story(item).candidates
    [merge] = at.merges()
    assert merge == at.main != candidate.sha
    assert at.git.git("rev-parse", f"{merge}^{{tree}}", f"{merge}^2").split() == [
        candidate.tree,
        candidate.sha,
    ]
    assert trailers(at.git.git("log", "-1", "--format=%B", "main"))["Orch-Nonce"] == candidate.nonce
    assert at.effects(item)[EffectName.MERGE_PR] == [EffectState.APPLIED]
    assert at.asked("PUT", r"/merge$") == [0]
    assert [pull.merged for pull in at.there.pulls] == [True]
    assert len(line.deployed("production")) == 1


@pytest.mark.long
@pytest.mark.parametrize("shut", [False, True], ids=["by a push", "by the server"])
def test_killed_after_the_merge_and_before_it_is_known(delivery: Callable[..., Delivery], shut: bool) -> None:
    at = delivery(production=True)
    if shut:
        at.there.protect("main", Rules())
    item = at.line.add()
    at.line.stop()
    assert at.line.child("merge_pr.after_act", 1).wait(PATIENCE_S) == -signal.SIGKILL
    merged = at.main
    line = at.line.start()
    line.done(item)
    assert at.main == merged
    assert len(at.merges()) == len(line.story(item).candidates) == len(line.deployed("production")) == 1
    assert [pull.merged for pull in at.there.pulls] == [True]
    assert at.asked("PUT", r"/merge$").count(200) == int(shut)


@pytest.mark.long
def test_what_a_person_does_there_is_heard_by_webhooks_alone(delivery: Callable[..., Delivery]) -> None:
    at = delivery(settings={"ORCH_RECONCILER_INTERVAL_S": "86400"})
    line = at.line.start()
    told = count()

    def deliver(event: str, payload: Any) -> None:
        line.app.receiver.receive("github", event, f"d-{next(told)}", json.loads(json.dumps(payload)))

    at.server.hooks.tell = deliver
    line.points.on("check_testing.judged", lambda: at.server.close_by_hand(at.there, at.there.pulls[0]))
    item = line.add()
    assert "was closed by hand" in str(line.held(item, Hold.BLOCKED).hold_reason)
    assert at.merges() == []
    with at.there.lock:
        at.there.reopen(at.there.pulls[0], "dana")
    line.done(item)
    assert [pull.merged for pull in at.there.pulls] == [True]
