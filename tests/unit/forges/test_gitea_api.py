"""Answers of a server that is broken, or that means us harm."""

from typing import Any

import pytest

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.forges.gitea_api import PAGE, PAGES, GiteaApi
from orchestrator.rest.api import refusal
from tests.unit.forges.answering import Answering, answered

SHA = "a" * 40
PULL: dict[str, Any] = {
    "number": 1,
    "state": "open",
    "merged": False,
    "title": "S-1: Change it",
    "head": {"ref": "orch/s-1", "label": "orch/s-1", "sha": SHA, "repo_id": 1},
    "base": {"ref": "main", "sha": SHA, "repo_id": 1},
}


def api(status: int, body: Any, **headers: str) -> GiteaApi:
    server = Answering(answered(status, body, **headers))
    return GiteaApi(server, "https://git.example.org", "acme/shop", Secret("t" * 40))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>proxy</html>",
        b"\xff\xfe",
        b"[" * 200_000,
        b"9" * 10_000,
        [],
        {},
        PULL | {"number": "1"},
        PULL | {"number": True},
        PULL | {"head": None},
        PULL | {"head": PULL["head"] | {"sha": "../../etc"}},
        PULL | {"state": 7},
    ],
    ids=[
        "nothing",
        "a page",
        "no text",
        "too deep",
        "too long a number",
        "a list",
        "empty",
        "number as text",
        "number as truth",
        "no head",
        "a path as a commit",
        "state as a number",
    ],
)
def test_what_is_no_pull_request_is_none(body: Any) -> None:
    with pytest.raises(AuthorityUnreachable):
        api(200, body).pull(1, "main")


@pytest.mark.parametrize(
    "body", [{}, b"", [[]], [PULL | {"base": None}]], ids=["empty", "nothing", "a list in it", "no base"]
)
def test_what_is_no_list_is_none(body: Any) -> None:
    with pytest.raises(AuthorityUnreachable):
        api(200, body, x_total_count="1").pulls("main")


def test_a_list_without_an_end_is_given_up() -> None:
    endless = api(200, [PULL] * PAGE, x_total_count="999999999")
    with pytest.raises(AuthorityUnreachable, match="too many"):
        endless.pulls("main")
    assert len(endless._http.asked) == PAGES  # type: ignore[attr-defined]


def test_what_a_server_says_cannot_draw_on_a_terminal() -> None:
    said = refusal(api(405, {"message": "no\n\x1b]0;title\x07 \ud800" + "x" * 9999}).close(1), "close it")
    assert str(said).isprintable()
    assert len(str(said)) < 400


def test_a_pull_request_of_a_fork_is_not_ours() -> None:
    fork = PULL | {"head": PULL["head"] | {"repo_id": 2}}
    assert api(200, [fork], x_total_count="1").pulls("main") == {}
    gone = PULL | {"head": PULL["head"] | {"repo_id": -1}}
    assert api(200, [gone], x_total_count="1").pulls("main") == {}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_another_address_is_not_followed(status: int) -> None:
    with pytest.raises(AuthorityUnreachable, match="points to https://evil.example"):
        api(status, b"", location="https://evil.example/x").pull(1, "main")
