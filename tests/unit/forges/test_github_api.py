"""Answers of a GitHub that is broken, limits us, or means us harm."""

from typing import Any

import pytest

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.forges.github_api import GitHubApi
from orchestrator.rest.api import refusal
from orchestrator.rest.github import KEPT, PAGES, api_root
from orchestrator.rest.github_limits import MOST_S, Limits
from orchestrator.runtime.http import HttpAnswer
from tests.clock import FakeClock
from tests.unit.forges.answering import Answering, answered

SHA = "a" * 40
OURS = {"id": 1, "full_name": "acme/shop"}
PULL: dict[str, Any] = {
    "number": 1,
    "state": "open",
    "merged_at": None,
    "title": "S-1: Change it",
    "head": {"ref": "orch/s-1", "label": "acme:orch/s-1", "sha": SHA, "repo": OURS},
    "base": {"ref": "main", "sha": SHA, "repo": OURS},
}
FACTS = {"full_name": "acme/shop", "default_branch": "main"}
DATE = "Thu, 01 Jan 2026 10:00:00 GMT"
AT_DATE = 1767261600


class Asked:
    """The API over answers, and a clock that nobody waits for."""

    def __init__(self, *answers: HttpAnswer) -> None:
        self.clock = FakeClock()
        self.server = Answering(*answers)
        self.limits = Limits(self.clock)
        self.api = self.another()

    def another(self) -> GitHubApi:
        """Of the same token."""
        return GitHubApi(self.server, "https://github.com", "acme/shop", Secret("t" * 40), self.limits)

    def refused_after(self, seconds: float) -> bool:
        """Whether a question is not even sent then."""
        sent = len(self.server.asked)
        self.clock.advance(seconds)
        try:
            self.another().repository()
        except AuthorityUnreachable as error:
            assert "limits our requests" in error.message
        return len(self.server.asked) == sent


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>proxy</html>",
        b"[" * 200_000,
        [],
        {},
        PULL | {"number": True},
        PULL | {"head": None},
        PULL | {"head": PULL["head"] | {"sha": "../../etc"}},
        PULL | {"state": 7},
    ],
    ids=["nothing", "a page", "too deep", "a list", "empty", "a truth", "no head", "a path", "a number"],
)
def test_what_is_no_pull_request_is_none(body: Any) -> None:
    with pytest.raises(AuthorityUnreachable):
        Asked(answered(200, body)).api.pull(1, "main")


@pytest.mark.parametrize("body", [{}, b"", [[]], [PULL | {"base": None}]])
def test_what_is_no_list_is_none(body: Any) -> None:
    with pytest.raises(AuthorityUnreachable):
        Asked(answered(200, body)).api.pulls_of("orch/s-1", "main")


def test_a_list_without_an_end_is_given_up() -> None:
    endless = Asked(answered(200, [PULL], link='<https://evil.example/2>; rel="next"'))
    with pytest.raises(AuthorityUnreachable, match="more for /pulls than is read"):
        endless.api.opened("main")
    assert len(endless.server.asked) == PAGES
    assert all(
        url.startswith("https://api.github.com/repos/acme/shop/pulls?") for url in endless.server.asked
    )


@pytest.mark.parametrize(
    "head",
    [PULL["head"] | {"repo": {"id": 2}}, PULL["head"] | {"repo": None}, PULL["head"] | {"ref": "other"}],
    ids=["of a fork", "of a fork that is gone", "of another branch"],
)
def test_a_pull_request_that_is_not_ours_is_left_out(head: Any) -> None:
    assert Asked(answered(200, [PULL | {"head": head}])).api.pulls_of("orch/s-1", "main") == []


def test_a_list_says_by_a_time_that_one_is_merged() -> None:
    merged = PULL | {"state": "closed", "merged_at": "2026-01-01T00:00:00Z"}
    [pull] = Asked(answered(200, [merged])).api.pulls_of("orch/s-1", "main")
    assert (pull.state, pull.url) == ("merged", "https://github.com/acme/shop/pull/1")


@pytest.mark.parametrize("status", [301, 307])
def test_another_address_is_not_followed(status: int) -> None:
    with pytest.raises(AuthorityUnreachable, match="points to https://evil.example"):
        Asked(answered(status, b"", location="https://evil.example/x")).api.pull(1, "main")


@pytest.mark.parametrize(
    ("to", "answers", "known"),
    [
        ("https://api.github.com/repositories/7", [answered(200, {"full_name": "acme/store"})], "acme/store"),
        ("/repos/acme/store", [], "acme/store"),
        ("https://api.github.com/repos/acme/store", [], "acme/store"),
        ("https://evil.example/repos/acme/store", [], None),
        ("https://api.github.com/repos/acme/store/../../user", [], None),
        ("https://api.github.com/user", [], None),
        (
            "https://api.github.com/repositories/7?x",
            [answered(200, {"full_name": "acme/store"})],
            "acme/store",
        ),
        ("", [], None),
    ],
)
def test_a_new_name_is_learned_from_the_same_server_alone(
    to: str, answers: list[HttpAnswer], known: str | None
) -> None:
    asked = Asked(answered(301, {}, location=to), *answers)
    if known is None:
        with pytest.raises(AuthorityUnreachable, match="not there any more"):
            asked.api.whereabouts()
    else:
        assert asked.api.whereabouts() == known
    assert all(url.startswith("https://api.github.com/repo") for url in asked.server.asked)


def test_where_it_is_the_server_says_itself() -> None:
    assert Asked(answered(200, FACTS | {"full_name": "Acme/Shop"})).api.whereabouts() == "Acme/Shop"


def test_the_parts_of_a_refusal_are_told() -> None:
    body = {"message": "Validation Failed", "errors": [{"message": "No commits between main and x"}, 7, {}]}
    said = refusal(Asked(answered(422, body)).api.close(1), "close it")
    assert "(422): Validation Failed: No commits between main and x." in str(said)


@pytest.mark.parametrize(
    ("server", "root"),
    [
        ("https://github.com", "https://api.github.com"),
        ("https://acme.ghe.com", "https://api.acme.ghe.com"),
        ("https://github.acme.org", "https://github.acme.org/api/v3"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/api/v3"),
        ("https://notgithub.com", "https://notgithub.com/api/v3"),
    ],
)
def test_where_the_api_is(server: str, root: str) -> None:
    assert api_root(server) == root


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "seconds"),
    [
        (answered(429, {}, retry_after="30"), 30),
        (answered(403, {"message": "You have exceeded a secondary rate limit."}, retry_after="90"), 90),
        (answered(403, {"message": "You have exceeded a secondary rate limit."}), 60),
        (answered(429, b"", retry_after="Thu, 01 Jan 2026 10:00:00 GMT"), 60),
        (
            answered(403, {}, x_ratelimit_remaining="0", x_ratelimit_reset=str(AT_DATE + 600), date=DATE),
            600,
        ),
        (answered(429, {}, retry_after="999999999"), MOST_S),
    ],
    ids=["retry-after", "secondary", "without a time", "a date", "the hour is spent", "for ever"],
)
def test_what_limits_one_repository_limits_all_for_as_long_as_it_says(
    refusal: HttpAnswer, seconds: float
) -> None:
    asked = Asked(refusal, answered(200, FACTS))
    with pytest.raises(AuthorityUnreachable, match="limits our requests"):
        asked.api.repository()
    assert asked.refused_after(seconds - 1)
    assert not asked.refused_after(2)


def test_who_does_not_say_for_how_long_is_asked_ever_more_seldom() -> None:
    asked = Asked(answered(429, b""))
    with pytest.raises(AuthorityUnreachable):
        asked.api.repository()
    assert not asked.refused_after(61)
    assert asked.refused_after(61)
    assert not asked.refused_after(60)
    assert asked.refused_after(239)


def test_the_last_answer_of_an_hour_is_an_answer() -> None:
    last = answered(
        200, FACTS, x_ratelimit_remaining="0", x_ratelimit_reset=str(AT_DATE + 60), date=DATE
    )  # fmt: skip
    asked = Asked(last)
    assert asked.api.repository().full_name == "acme/shop"
    assert asked.refused_after(59)
    assert not asked.refused_after(2)


def test_a_lack_of_rights_is_no_limit() -> None:
    said = {"message": "Resource not accessible by personal access token"}
    asked = Asked(answered(403, said, x_ratelimit_remaining="4999"), answered(200, FACTS))
    assert asked.api.close(1).status == 403
    assert asked.api.repository().may_push


# -- tags ----------------------------------------------------------------------------------------------------------


def test_what_has_not_changed_is_taken_from_the_last_answer() -> None:
    asked = Asked(answered(200, FACTS, etag='"one"'), answered(304))
    assert asked.api.repository() == asked.api.repository()
    assert [headers.get("if-none-match") for headers in asked.server.headers] == [None, '"one"']


def test_no_more_than_a_few_answers_are_kept() -> None:
    asked = Asked(answered(200, PULL, etag='"one"'))
    for number in range(KEPT + 5):
        asked.api.pull(number, "main")
    assert len(asked.api._kept) == KEPT


@pytest.mark.parametrize(
    ("said", "day"), [("2026-02-03 10:00:00 UTC", "2026-02-03"), ("never", None), ("", None)]
)
def test_the_end_of_a_token_is_heard(said: str, day: str | None) -> None:
    asked = Asked(answered(200, FACTS, github_authentication_token_expiration=said))
    asked.api.repository()
    assert asked.api.token_ends is None if day is None else f"{asked.api.token_ends:%Y-%m-%d}" == day


def test_the_token_is_in_a_header_alone() -> None:
    asked = Asked(answered(200, FACTS))
    asked.api.repository()
    assert asked.server.headers[0]["authorization"] == "Bearer " + "t" * 40
    assert "ttt" not in asked.server.asked[0]
