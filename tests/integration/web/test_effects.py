"""Effects over HTTP: what is not settled, why, and since when."""

from collections.abc import Iterator

import httpx
import pytest

from orchestrator.db import failures
from orchestrator.domain.effect import EffectName
from orchestrator.domain.stage import Stage
from tests.fixtures_desk import Desk, Serve


@pytest.fixture
def api(serve: Serve, desk: Desk) -> Iterator[httpx.Client]:
    desk.file()
    desk.move("SHOP-1", Stage.DEPLOY_STAGING)
    desk.effect("SHOP-1", EffectName.PUSH, "abc")
    desk.effect("SHOP-1", EffectName.MERGE_PR, "def", settled=False)
    with httpx.Client(base_url=serve(), trust_env=False, timeout=20) as opened:
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
            failures.note(tx, desk.operations.task("SHOP-1").id, effect["id"], "the forge says 405")
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
