"""Checks and reviews as servers show them: odd words, broken answers, people who may not say so."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.ids import Sha
from orchestrator.domain.others import CheckState, ForgeCheck, Remark, ReviewState
from orchestrator.forges.gitea_api import PAGE, GiteaApi
from orchestrator.forges.gitea_others import GiteaOthers
from orchestrator.forges.github_api import GitHubApi
from orchestrator.forges.github_others import GitHubOthers
from orchestrator.forges.others import Others
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.http import HttpAnswer
from tests.clock import FakeClock
from tests.unit.forges.answering import answered

SHA = Sha("a" * 40)
URL = "https://git.example.org"
PASSED, FAILED, PENDING, STOPPED = CheckState
STATUS: dict[str, Any] = {
    "id": 1,
    "context": "build",
    "description": "Words",
    "target_url": "https://ci.example",
}
RUN: dict[str, Any] = {
    "id": 5,
    "name": "build",
    "status": "completed",
    "conclusion": "success",
    "app": {"id": 7},
    "output": {"title": "T", "summary": "S"},
    "html_url": "https://git.example.org/run/5",
}
PULL = {"number": 1, "user": {"login": "orchbot"}}


def by(login: str, **more: Any) -> dict[str, Any]:
    return {"id": 1, "user": {"login": login}, "commit_id": SHA, "body": "Words", "html_url": URL, **more}


class Server:
    """Answers by the end of a path; what is not known is not there."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def request(self, method: str, url: str, **_: Any) -> HttpAnswer:
        self.asked.append(url)
        path, _, query = url.partition("?")
        known = next((told for end, told in self.answers.items() if path.endswith(end)), None)
        if known is None:
            return answered(404, {"message": "Not Found"})
        if isinstance(known, HttpAnswer):
            return known
        if isinstance(known, list) and "page=" in query:
            page = int(query.rpartition("page=")[2])
            more = 'rel="next"' if page * PAGE < len(known) else ""
            shown = known[(page - 1) * PAGE : page * PAGE]
            return answered(200, shown, x_total_count=str(len(known)), link=more)
        return answered(200, known)


def gitea(**answers: Any) -> Others:
    return gitea_of(Server({f"/{name.replace('__', '/')}": told for name, told in answers.items()}))


def github(**answers: Any) -> Others:
    ends = {f"/{name.replace('__', '/').replace('_', '-')}": told for name, told in answers.items()}
    return github_of(Server(ends))


def gitea_of(server: Server) -> Others:
    return GiteaOthers(GiteaApi(server, URL, "acme/shop", Secret("t" * 40)))


def github_of(server: Server) -> Others:
    return GitHubOthers(GitHubApi(server, URL, "acme/shop", Secret("t" * 40), Limits(FakeClock())))


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("success", PASSED),
        ("skipped", PASSED),
        ("pending", PENDING),
        ("failure", FAILED),
        ("error", FAILED),
        ("warning", FAILED),
        ("Success", FAILED),
        ("", FAILED),
    ],
)
def test_words_of_a_gitea_status(said: str, state: CheckState) -> None:
    [found] = gitea(statuses=[STATUS | {"status": said}]).checks(SHA)
    assert (found.name, found.state, found.said, found.summary) == ("build", state, said, "Words")


@pytest.mark.parametrize(
    ("run", "state"),
    [
        ({}, PASSED),
        ({"conclusion": "neutral"}, PASSED),
        ({"conclusion": "skipped"}, PASSED),
        ({"conclusion": "failure"}, FAILED),
        ({"conclusion": "timed_out"}, FAILED),
        ({"conclusion": "brand new"}, FAILED),
        ({"conclusion": "cancelled"}, STOPPED),
        ({"conclusion": "stale"}, STOPPED),
        ({"conclusion": "action_required"}, STOPPED),
        ({"conclusion": None}, PENDING),
        ({"status": "in_progress", "conclusion": "success"}, PENDING),
        ({"status": "queued", "conclusion": None}, PENDING),
    ],
)
def test_words_of_a_run_at_github(run: Any, state: CheckState) -> None:
    told = {"total_count": 1, "check_runs": [RUN | run]}
    status, found = github(statuses=[STATUS | {"state": "success"}], check_runs=told).checks(SHA)
    assert (found.name, found.source, found.state, found.summary) == ("build", "app 7", state, "T\nS")
    assert (status.source, status.state) == ("status", PASSED)


@pytest.mark.parametrize("make", [gitea, github])
def test_all_pages_are_read(make: Any) -> None:
    many = [
        STATUS | {"id": n, "context": f"c{n}", "status": "success", "state": "success"} for n in range(120)
    ]
    assert len(make(statuses=many, check_runs={"check_runs": []}).checks(SHA)) == 120


@pytest.mark.parametrize(
    "broken",
    [
        {},
        b"<html>",
        [[]],
        [STATUS | {"id": None}],
        [STATUS | {"id": True}],
        answered(404, {}),
        answered(403, {}),
    ],
)
@pytest.mark.parametrize("make", [gitea, github])
def test_what_is_no_list_of_statuses_is_no_answer(make: Any, broken: Any) -> None:
    told = broken if isinstance(broken, HttpAnswer) else answered(200, broken, x_total_count="1")
    with pytest.raises(AuthorityUnreachable):
        make(statuses=told, check_runs={"check_runs": []}).checks(SHA)


@pytest.mark.parametrize("broken", [{}, [], {"check_runs": None}, {"check_runs": [7]}, {"check_runs": [{}]}])
def test_what_is_no_list_of_runs_is_no_answer(broken: Any) -> None:
    with pytest.raises(AuthorityUnreachable):
        github(statuses=[], check_runs=answered(200, broken)).checks(SHA)


def test_reviews_at_gitea() -> None:
    told = [
        by("orchbot", state="APPROVED", official=True),
        by("ann", id=2, state="APPROVED", official=True, stale=True),
        by("bob", id=3, state="REQUEST_CHANGES", official=False),
        by("cid", id=4, state="APPROVED", official=True, dismissed=True),
        by("dan", id=5, state="COMMENT"),
        by("dan", id=6, state="REQUEST_REVIEW"),
        {"id": 7, "user": None, "team": {"name": "x"}, "state": "APPROVED"},
    ]
    found = gitea(pulls__1=PULL, reviews=told).reviews(1)
    assert [(one.number, one.person, one.state, one.counts) for one in found] == [
        (2, "ann", ReviewState.APPROVED, True),
        (3, "bob", ReviewState.CHANGES, False),
        (4, "cid", ReviewState.WITHDRAWN, True),
    ]


def test_reviews_at_github() -> None:
    told = [
        by("orchbot", state="APPROVED"),
        by("me", state="APPROVED"),
        by("ann", id=2, state="APPROVED"),
        by("bob", id=3, state="CHANGES_REQUESTED"),
        by("cid", id=4, state="DISMISSED"),
        by("dan", id=5, state="COMMENTED"),
        by("dan", id=6, state="PENDING"),
        {**by("", id=8, state="APPROVED"), "user": {"login": "scan[bot]", "type": "Bot"}},
        {**by("", id=9, state="APPROVED"), "user": None},
    ]
    found = github(
        pulls__1=PULL,
        user={"login": "me"},
        reviews=told,
        ann__permission={"permission": "write"},
        bob__permission={"permission": "read"},
        cid__permission={"permission": "admin"},
    ).reviews(1)
    assert [(one.number, one.person, one.state, one.counts) for one in found] == [
        (2, "ann", ReviewState.APPROVED, True),
        (3, "bob", ReviewState.CHANGES, False),
        (4, "cid", ReviewState.WITHDRAWN, True),
        (8, "scan[bot]", ReviewState.APPROVED, False),
    ]


def test_whether_a_person_may_approve_is_not_guessed() -> None:
    told = [by("ann", state="APPROVED")]
    ask = github(pulls__1=PULL, reviews=told, ann__permission=answered(500, {}))
    with pytest.raises(AuthorityUnreachable):
        ask.reviews(1)
    [found] = github(pulls__1=PULL, reviews=told).reviews(1)
    assert not found.counts


@pytest.mark.parametrize("make", [gitea_of, github_of])
def test_who_we_are_is_asked_again_after_a_passing_failure(make: Any) -> None:
    ours = by("me", state="APPROVED", official=True)
    server = Server({"/pulls/1": PULL, "/reviews": [ours], "/user": answered(502, b"<html>")})
    others = make(server)
    with pytest.raises(AuthorityUnreachable):
        others.reviews(1)
    server.answers = {**server.answers, "/user": {"login": "me"}}
    assert others.reviews(1) == []


@pytest.mark.parametrize("make", [gitea_of, github_of])
@pytest.mark.parametrize("status", [403, 404])
def test_a_token_that_may_not_tell_who_we_are_is_asked_once(make: Any, status: int) -> None:
    server = Server({"/pulls/1": PULL, "/reviews": [], "/user": answered(status, {})})
    others = make(server)
    assert others.reviews(1) == others.reviews(1) == []
    assert sum(url.endswith("/user") for url in server.asked) == 1


@pytest.mark.parametrize("state", ["APPROVED"])
@pytest.mark.parametrize("make", [gitea, github])
def test_a_review_without_a_number_is_no_answer(make: Any, state: str) -> None:
    with pytest.raises(AuthorityUnreachable):
        make(pulls__1=PULL, reviews=[by("ann", id=None, state=state)]).reviews(1)


def test_remarks_are_bounded_and_say_where() -> None:
    row = {"body": "Words", "path": "a.py"}
    told = [row | {"position": 0, "original_position": 4}, row | {"position": 7}, row | {"position": True}]
    assert gitea(comments=answered(200, told)).remarks(1, 2) == [
        Remark("Words", "a.py", 4),
        Remark("Words", "a.py", 7),
        Remark("Words", "a.py", None),
    ]
    assert len(github(comments=answered(200, [row] * 200)).remarks(1, 2)) == 50
    assert github(comments=answered(200, json.loads("{}"))).remarks(1, 2) == []


def test_annotations_of_a_run() -> None:
    row = {"path": "a.py", "start_line": 4, "annotation_level": "failure", "title": "E1", "message": "Words"}
    told = [row, row | {"annotation_level": "notice"}, row | {"title": None, "start_line": None}] + [
        row
    ] * 100
    at = github(**{"5__annotations": answered(200, told)})
    run = ForgeCheck("build", "app 7", 5, FAILED, "failure")
    found = at.findings(run)
    assert found[:2] == [Remark("E1 Words", "a.py", 4), Remark("Words", "a.py", None)]
    assert len(found) == 49
    assert at.findings(ForgeCheck("build", "status", 5, FAILED, "failure")) == ()
    assert gitea().findings(run) == ()
    with pytest.raises(AuthorityUnreachable):
        github().findings(run)


@pytest.mark.parametrize(("make", "page"), [(gitea, "pulls/7"), (github, "pull/7")])
def test_where_people_find_a_pull_request(make: Any, page: str) -> None:
    assert make().page(7) == f"{URL}/acme/shop/{page}"
