"""Answers of a server that is broken, or that means us harm."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.forges.gitea_api import PAGE, PAGES, GiteaApi, refusal
from orchestrator.runtime.http import BODY_LIMIT, HttpAnswer

SHA = "a" * 40
PULL: dict[str, Any] = {
    "number": 1,
    "state": "open",
    "merged": False,
    "title": "S-1: Change it",
    "head": {"ref": "orch/s-1", "label": "orch/s-1", "sha": SHA, "repo_id": 1},
    "base": {"ref": "main", "sha": SHA, "repo_id": 1},
}


class Answering:
    """Answers everything in one way."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.answer = HttpAnswer(status, headers or {}, body)
        self.asked: list[str] = []

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 10.0,
        limit: int = BODY_LIMIT,
    ) -> HttpAnswer:
        self.asked.append(url)
        return self.answer


def api(status: int, body: Any, headers: Mapping[str, str] | None = None) -> GiteaApi:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return GiteaApi(
        Answering(status, sent, headers), "https://git.example.org", "acme/shop", Secret("t" * 40)
    )


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
        api(200, body, {"x-total-count": "1"}).pulls("main")


def test_a_list_without_an_end_is_given_up() -> None:
    endless = api(200, [PULL] * PAGE, {"x-total-count": "999999999"})
    with pytest.raises(AuthorityUnreachable, match="too many"):
        endless.pulls("main")
    assert len(endless._http.asked) == PAGES  # type: ignore[attr-defined]


def test_what_a_server_says_cannot_draw_on_a_terminal() -> None:
    said = refusal(api(405, {"message": "no\n\x1b]0;title\x07 \ud800" + "x" * 9999}).close(1), "close it")
    assert str(said).isprintable()
    assert len(str(said)) < 400


def test_a_pull_request_of_a_fork_is_not_ours() -> None:
    fork = PULL | {"head": PULL["head"] | {"repo_id": 2}}
    assert api(200, [fork], {"x-total-count": "1"}).pulls("main") == {}
    gone = PULL | {"head": PULL["head"] | {"repo_id": -1}}
    assert api(200, [gone], {"x-total-count": "1"}).pulls("main") == {}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_another_address_is_not_followed(status: int) -> None:
    with pytest.raises(AuthorityUnreachable, match="points to https://evil.example"):
        api(status, b"", {"location": "https://evil.example/x"}).pull(1, "main")
