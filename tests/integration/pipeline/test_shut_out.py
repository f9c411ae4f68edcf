"""A forge that lets us in no more in the middle of a delivery, for a while: nothing is lost, and each effect is there
once."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.played.common.faults import How
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub, Rules
from orchestrator.repositories import GITEA, GITHUB
from tests.at_a_server import Delivery, delivering
from tests.fixtures_pipeline import Build, block
from tests.waiting import PATIENCE_S, wait_until

SERVERS = {GITEA: FakeGitea, GITHUB: FakeGitHub}
SOON = {"ORCH_RECONCILER_INTERVAL_S": "0.3"}
SPENT_S = 900.0  # until GitHub answers again whoever has asked too often in an hour
STORM = 4  # refusals of each kind of request


@pytest.fixture(params=[GITEA, GITHUB])
def delivery(request: Any, pipeline: Build, tmp_path: Path) -> Iterator[Callable[..., Delivery]]:
    with delivering(pipeline, SERVERS[request.param](tmp_path / "server"), request.param) as build:
        yield build


@pytest.fixture
def github(pipeline: Build, tmp_path: Path) -> Iterator[Callable[..., Delivery]]:
    with delivering(pipeline, FakeGitHub(tmp_path / "server"), GITHUB) as build:
        yield build


def _delivered_once(at: Delivery, item: str) -> None:
    """Each act took place once, and no agent was asked again."""
    [candidate] = at.line.story(item).candidates
    assert len(at.merges()) == 1
    assert at.git.git("rev-parse", "main^{tree}") == candidate.tree
    assert [pull.merged for pull in at.there.pulls] == [True]
    assert at.asked("POST", r"/pulls$").count(201) == 1
    assert (at.asked("POST", r"/merge$") + at.asked("PUT", r"/merge$")).count(200) <= 1
    assert at.effects(item)[EffectName.MERGE_PR] == [EffectState.APPLIED]
    [start] = at.line.deployed("production")
    assert start["sha"] == at.main == at.line.running("production")
    roles = at.line.roles(item)
    assert len(set(roles)) == len(roles)


@pytest.mark.parametrize(
    ("delivery", "point"),
    [(GITEA, "merge_pr.intended"), (GITHUB, "open_pr.after_act")],
    indirect=["delivery"],
)
def test_a_token_that_is_revoked_and_put_back(delivery: Callable[..., Delivery], point: str) -> None:
    """Before an act, or after it took place and before anybody could see that; people are called once."""
    at = delivery(production=True, settings=SOON)
    line = at.line.start()
    effect = EffectName(point.partition(".")[0])
    there, go, hook = block()
    line.points.on(point, hook)
    item = line.add()
    assert there.wait(PATIENCE_S)
    tokens, secret = at.server.tokens, at.server.token
    at.server.revoke_token()
    go.set()
    wait_until(lambda: at.effects(item)[effect][-1] is EffectState.IN_DOUBT)
    line.clock.ahead = timedelta(hours=1)
    [told] = wait_until(lambda: [alert for alert in line.alerts() if effect.value in alert])
    assert secret not in told
    assert {call.status for call in at.server.journal.calls} >= {401}
    at.server.tokens = tokens
    line.done(item)
    _delivered_once(at, item)
    assert [alert for alert in line.alerts() if effect.value in alert] == [told]


@pytest.mark.parametrize(("delivery", "effect"), [(GITEA, EffectName.MERGE_PR)], indirect=["delivery"])
def test_a_proxy_that_limits_all_requests(delivery: Callable[..., Delivery], effect: EffectName) -> None:
    """Those of the API and those of git, with a page of its own."""
    at = delivery(production=True, settings=SOON)
    line = at.line.start()
    at.server.error = lambda status: "<html>Too Many Requests</html>"
    storm: list[Any] = []

    def begin() -> None:
        headers = {"Retry-After": "1"}
        for path in (r"^/api/", r"/info/refs$", r"/git-\w+-pack$"):
            for method in ("GET", "POST", "PUT", "PATCH"):
                storm.append(
                    at.server.fail(method, path, How.BEFORE, status=429, times=STORM, headers=headers)
                )

    line.points.on(f"{effect}.intended", begin)
    item = line.add()
    line.done(item)
    _delivered_once(at, item)
    assert {fault.pattern.pattern for fault in storm if fault.times < STORM} >= {r"/info/refs$"}
    assert any(call.status == 429 and "/api/" in call.path for call in at.server.journal.calls)


@pytest.mark.parametrize(("status", "headers"), [(403, {"Retry-After": "1"})], ids=["403 and when"])
def test_a_github_that_limits_us_is_asked_again_only_when_it_says(
    github: Callable[..., Delivery], status: int, headers: dict[str, str]
) -> None:
    """Each refusal is followed by silence: there is none in between, however often the task is looked at."""
    at = github(production=True, settings=SOON)
    line = at.line.start()
    asked: list[float] = []
    usual = at.server.error

    def refused(code: int) -> Any:
        asked.append(line.clock.boottime())
        return usual(code)

    at.server.error = refused

    def begin() -> None:
        for method in ("GET", "POST", "PUT"):
            at.server.fail(method, r"^/api/", How.BEFORE, status=status, times=2, headers=headers)

    line.points.on("open_pr.intended", begin)
    item = line.add()
    line.done(item)
    _delivered_once(at, item)
    assert len(asked) >= 2
    assert all(after - before >= 0.9 for before, after in zip(asked, asked[1:], strict=False))


@pytest.mark.long
def test_where_the_hour_s_requests_are_spent_the_merge_waits_for_the_next(
    github: Callable[..., Delivery],
) -> None:
    at = github(production=True, settings=SOON)
    line = at.line.start()
    there, go, hook = block()
    line.points.on("merge_pr.intended", hook)
    item = line.add()
    assert there.wait(PATIENCE_S)
    at.server.remaining = 0
    before = len(at.asked("GET", r"^/api/"))
    go.set()
    wait_until(lambda: at.effects(item)[EffectName.MERGE_PR][-1] is EffectState.IN_DOUBT)
    line.clock.ahead = timedelta(hours=1)
    wait_until(lambda: [alert for alert in line.alerts() if "merge_pr" in alert])
    assert at.asked("GET", r"^/api/")[before:] == [403]
    assert at.merges() == []
    at.server.remaining = 5000
    line.clock.up += SPENT_S
    line.done(item)
    _delivered_once(at, item)


def _refused_by_a_rule(at: Delivery) -> int:
    asked = at.server.calls("POST", r"/merge$") + at.server.calls("PUT", r"/merge$")
    return sum(call.status == 405 and "again later" not in str(call.answer) for call in asked)


@pytest.mark.long(but=["gitea-check"])
@pytest.mark.parametrize("missing", ["check", "approval"])
def test_a_merge_that_a_rule_forbids_until_somebody_has_acted(
    delivery: Callable[..., Delivery], missing: str
) -> None:
    """The rule came when the gates had been passed; the server goes on refusing, and then merges what it refused."""
    at = delivery(production=True, settings=SOON)
    line = at.line.start()
    line.points.on("merge_pr.intended", lambda: _protect(at, missing))
    item = line.add()
    wait_until(lambda: _refused_by_a_rule(at) >= 3)
    assert at.merges() == []
    line.clock.ahead = timedelta(hours=1)
    [told] = wait_until(lambda: [alert for alert in line.alerts() if "merge_pr" in alert])
    assert "405" in told and missing[:6] in told.lower()
    [pull] = at.there.pulls
    if missing == "check":
        passed = {"context": "ci", "state": "success"}
        at.server.say("dana", "POST", at.there, f"/statuses/{pull.head}", passed)
    else:
        event = "APPROVED" if isinstance(at.server, FakeGitea) else "APPROVE"
        review = {"event": event, "body": "Good.", "commit_id": pull.head}
        at.server.say("dana", "POST", at.there, f"/pulls/{pull.number}/reviews", review)
    line.done(item)
    _delivered_once(at, item)


def _protect(at: Delivery, missing: str) -> None:
    if isinstance(at.server, FakeGitea):
        check = {"enable_status_check": True, "status_check_contexts": ["ci"]}
        rule = check if missing == "check" else {"required_approvals": 1}
        at.there.protections["main"] = {"enable_push": False, **rule}
    else:
        at.there.protect("main", Rules(checks=("ci",)) if missing == "check" else Rules(approvals=1))
