"""Effects over HTTP: what is not settled, why and since when; and a person's word on one."""

from collections.abc import Iterator

import httpx
import pytest

from orchestrator.db import failures
from orchestrator.deploy.records import Ending
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage
from orchestrator.effects.deploy import start_of
from tests.fixtures_desk import Desk, Serve
from tests.proofs.memory_deployer import Later, MemoryDeployer


@pytest.fixture
def api(serve: Serve, desk: Desk) -> Iterator[httpx.Client]:
    desk.file()
    desk.move("SHOP-1", Stage.DEPLOY_STAGING)
    desk.effect("SHOP-1", EffectName.PUSH, "abc")
    desk.effect("SHOP-1", EffectName.MERGE_PR, "def", settled=False)
    with httpx.Client(base_url=serve(), trust_env=False, timeout=60) as opened:
        yield opened


def test_shows_what_is_not_settled(api: httpx.Client) -> None:
    [effect] = api.get("/effects").json()["effects"]
    assert (effect["task"], effect["name"], effect["key"]) == ("SHOP-1", "merge_pr", "def")
    assert (effect["state"], effect["settled_at"], effect["attempts"]) == ("intended", None, None)
    assert effect["age_s"] >= 0


def test_shows_why_it_fails(api: httpx.Client, desk: Desk) -> None:
    [effect] = api.get("/effects").json()["effects"]
    for _ in range(2):
        with desk.database.write() as tx:
            failures.note(tx, desk.operations.task("SHOP-1").id, "the forge says 405")
    [effect] = api.get("/effects?task=SHOP-1").json()["effects"]
    assert (effect["reason"], effect["attempts"]) == ("the forge says 405", 2)
    why = api.get("/tasks/SHOP-1/why").json()
    assert "the forge says 405" in why["failed"] and why["failed"] in why["line"]


def test_shows_all_newest_first_in_pages(api: httpx.Client) -> None:
    first = api.get("/effects?all=true&limit=1").json()
    assert [effect["key"] for effect in first["effects"]] == ["def"]
    second = api.get(f"/effects?all=true&limit=1&before={first['next_before']}").json()
    assert [(effect["key"], effect["state"]) for effect in second["effects"]] == [("abc", "applied")]
    last = api.get(f"/effects?all=true&limit=1&before={second['next_before']}").json()
    assert last == {"effects": [], "next_before": None}


def test_of_a_task_that_is_not_there_is_refused(api: httpx.Client) -> None:
    assert api.get("/effects?task=SHOP-404").status_code == 404


def _say(api: httpx.Client, effect: object, **body: object) -> httpx.Response:
    return api.post(f"/effects/{effect}/resolve", json={"resolution": "retry", "reason": "so", **body})


def _unsettled(api: httpx.Client) -> int:
    return int(api.get("/effects").json()["effects"][0]["id"])


@pytest.mark.parametrize("resolution", ["applied", "not-applied", "retry"])
def test_stores_a_word_for_the_engine(api: httpx.Client, desk: Desk, resolution: str) -> None:
    number = _unsettled(api)
    answer = _say(api, number, resolution=resolution, person="Ada", state="intended")
    assert answer.status_code == 202
    receipt = answer.json()
    assert (receipt["task"], receipt["signal"], receipt["outcome"]) == ("SHOP-1", "resolve", None)
    assert api.get(f"/tasks/SHOP-1/signals/{receipt['signal_id']}").json()["outcome"] is None
    told = desk.operations.story("SHOP-1").events[-1].data
    assert (told["person"], told["resolution"], told["state"]) == ("Ada", resolution, "intended")
    assert desk.woken


def test_refuses_a_word_on_what_is_settled_or_gone_or_otherwise(api: httpx.Client) -> None:
    number = _unsettled(api)
    settled = api.get("/effects?all=true").json()["effects"][1]["id"]
    assert _say(api, settled).status_code == 409
    assert _say(api, 404).status_code == 404
    assert _say(api, number, state="in_doubt").status_code == 409


@pytest.mark.parametrize(
    "body", [{"resolution": "done"}, {"reason": ""}, {"reason": " "}, {"state": "odd"}, {"extra": 1}], ids=str
)
def test_refuses_a_word_that_is_none(api: httpx.Client, body: dict[str, object]) -> None:
    number = _unsettled(api)
    assert _say(api, number, **body).status_code == 400
    assert _say(api, "x").status_code == 400
    assert api.post(f"/effects/{number}/resolve").status_code == 400


def _ended(api: httpx.Client, effect: Intent) -> httpx.Response:
    body = {"resolution": "ended", "person": "Ann", "reason": "that machine is gone"}
    return api.post(f"/effects/{effect.effect_id}/resolve", json=body)


def test_a_declared_end_is_kept_with_the_start_and_told_with_the_task(serve: Serve, desk: Desk) -> None:
    desk.file()
    desk.move("SHOP-1", Stage.DEPLOY_STAGING)
    start = desk.deploy("SHOP-1")
    with httpx.Client(base_url=serve(), trust_env=False, timeout=20) as api:
        said = _ended(api, start)
        assert said.status_code == 202
        assert "applied" in said.json()["outcome"]
        assert said.json()["outcome"] == _ended(api, start).json()["outcome"]
    [record] = desk.environments.starts.values()
    assert record.exit is not None
    assert (record.exit.ending, record.exit.detail) == (Ending.DECLARED, "Ann: that machine is gone")
    told = desk.operations.story("SHOP-1").events[-1]
    assert (told.type, told.data["person"], told.data["resolution"]) == (
        EventType.SIGNAL_APPLIED,
        "Ann",
        "ended",
    )
    assert desk.operations.task("SHOP-1").id in desk.woken


def test_only_of_a_deploy_that_took_place_an_end_is_declared(serve: Serve, desk: Desk) -> None:
    desk.file()
    desk.move("SHOP-1", Stage.DEPLOY_STAGING)
    push = desk.effect("SHOP-1", EffectName.PUSH, "abc")
    undo = desk.deploy("SHOP-1", EffectName.DEPLOY_UNDO, settled=False)
    with httpx.Client(base_url=serve(), trust_env=False, timeout=20) as api:
        assert "no deploy" in _ended(api, push).text
        refused = _ended(
            api, undo
        )  # an undo that has not begun: to declare it ended would keep it from ever running
        assert refused.status_code == 409
        assert "not settled" in refused.text
        MemoryDeployer(desk.environments, commands=Later()).start(start_of(undo))
        assert "at work" in _ended(api, undo).text
    assert desk.operations.story("SHOP-1").effects[-1].state is EffectState.INTENDED
