"""No path leads out: every route with a parameter in its path, found by walking the application."""

import itertools
import re
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from orchestrator.dashboard.pages import add_board
from orchestrator.runtime.clock import SystemClock
from orchestrator.web.api import create_api
from tests.fixtures_desk import Desk, Serve

CANARY = "the-canary-outside-of-everything"
TRICKS = [
    "..%2f..%2fsecret.txt",
    "..%2F..%2F..%2F..%2Fetc%2Fpasswd",
    "%2e%2e/%2e%2e/secret.txt",
    "....//....//secret.txt",
    "%2fetc%2fpasswd",
    "..%5c..%5csecret.txt",
    "%00",
    "SHOP-1%00",
    "..%2flogs-secret%2fx",
    "a" * 10_000,
    "%ff%fe",
    "'%20OR%20'1'='1",
    "OTHER-1",
]


def routes(desk: Desk) -> list[APIRoute]:
    api = create_api(desk.operations, token=None, ready=lambda: True)
    add_board(api, desk.operations, clock=SystemClock())
    return [route for route in api.routes if isinstance(route, APIRoute) and "{" in route.path]


def test_there_are_routes_to_try(desk: Desk) -> None:
    paths = {route.path for route in routes(desk)}
    assert {"/tasks/{work_item}", "/board/{work_item}", "/tasks/{work_item}/approve"} <= paths


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_tricks_find_nothing(desk: Desk, serve: Serve, tmp_path: Path, method: str) -> None:
    (tmp_path / "secret.txt").write_text(CANARY, encoding="utf-8")
    desk.file()
    url = serve()
    with httpx.Client(trust_env=False, timeout=60) as client:
        for route, trick in itertools.product(routes(desk), TRICKS):
            raw = re.sub(r"\{[^}]*\}", lambda _, trick=trick: trick, route.path).encode()
            answer = client.request(method, httpx.URL(url).copy_with(raw_path=raw))
            assert answer.status_code in (400, 404, 405), (route.path, trick[:80])
            assert CANARY not in answer.text
            assert "root:" not in answer.text
    assert [task.stage for task in desk.operations.tasks()] == ["created"]
