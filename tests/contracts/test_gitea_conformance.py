"""The fake Gitea does what a real one does. With ORCH_GITEA_URL and ORCH_GITEA_TOKEN a real one is asked instead:
each test makes a private repository of its own there and removes it."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.played.gitea import FakeGitea
from tests.contracts.gitea_client import CONTRACTS, Server, conforms
from tests.contracts.shapes import lacks, shape
from tests.contracts.spoken_to import Told
from tests.waiting import wait_until

CAPTURED = json.loads((CONTRACTS / "fixtures/real/gitea116_api_calls.json").read_text())
LATER = "Please try again later"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    url = os.environ.get("ORCH_GITEA_URL")
    if url:
        known = Server(url.rstrip("/"), os.environ["ORCH_GITEA_TOKEN"], tmp_path)
        yield known
        known.close()
        return
    with FakeGitea(tmp_path / "server") as fake:
        known = Server(fake.url, fake.token, tmp_path)
        yield known
        known.close()


def merged_once_it_is_ready(server: Server, number: int, head: str, style: str) -> Told:
    """The first answer to a merge that is not "try again later"."""

    def tried() -> Told | None:
        server.api("GET", f"/pulls/{number}")
        told = server.merge(number, head, style)
        return None if LATER in str(told.body) else told

    return wait_until(tried)


def test_a_pull_request_from_its_opening_to_its_merge(server: Server) -> None:
    head = server.branch("one", {"a.txt": "1\n"})
    opened = server.pull("one")
    assert opened.status == 201
    number = opened.body["number"]
    shown = opened.body["head"]
    assert (shown["ref"], shown["sha"], opened.body["base"]["ref"]) == ("one", head, "main")
    assert (opened.body["state"], opened.body["merged"]) == ("open", False)

    again = server.pull("one", "Again")
    assert again.status == 409
    assert f"id: {number}" in again.body["message"]
    assert server.pull("nope").status == 404
    assert server.api("POST", "/pulls", {"head": "main", "base": "main", "title": "n"}).status == 422
    assert server.api("GET", f"/pulls/{number}/merge").status == 404

    told = merged_once_it_is_ready(server, number, head, "merge")
    assert (told.status, told.body) == (200, "")
    assert server.api("GET", f"/pulls/{number}/merge").status == 204
    after = server.api("GET", f"/pulls/{number}").body
    assert (after["state"], after["merged"]) == ("closed", True)
    assert after["merge_commit_sha"] == server.refs("refs/heads/main")["refs/heads/main"]
    assert server.merge(number, head).status in (404, 405)
    refused = server.api("PATCH", f"/pulls/{number}", {"state": "open"})
    assert refused.status in (201, 412)
    assert server.api("GET", f"/pulls/{number}").body["merged"] is True


def test_a_merge_names_the_whole_head_that_it_means(server: Server) -> None:
    first = server.branch("one", {"a.txt": "1\n"})
    number = server.pull("one").body["number"]
    second = server.branch("one", {"a.txt": "1\n", "b.txt": "2\n"})
    told = merged_once_it_is_ready(server, number, first, "merge")
    assert (told.status, told.body["message"]) == (409, "head out of date")
    assert server.merge(number, second[:10]).status == 409
    bad = server.merge(number, second, "bogus")
    assert bad.status == 422
    assert "Do" in bad.body["message"]
    assert server.refs("refs/heads/main")["refs/heads/main"] == server.person.head()
    assert merged_once_it_is_ready(server, number, second, "merge").status == 200


def test_fast_forward_only_lands_the_head_itself_or_nothing(server: Server) -> None:
    head = server.branch("one", {"a.txt": "1\n"})
    behind = server.branch("two", {"b.txt": "1\n"})
    one, two = (server.pull(name).body["number"] for name in ("one", "two"))
    assert merged_once_it_is_ready(server, one, head, "fast-forward-only").status == 200
    assert server.refs("refs/heads/main")["refs/heads/main"] == head
    told = merged_once_it_is_ready(server, two, behind, "fast-forward-only")
    assert told.status not in (200, 201)
    assert server.refs("refs/heads/main")["refs/heads/main"] == head
    assert server.api("GET", f"/pulls/{two}").body["state"] == "open"


def test_a_merge_message_is_ours(server: Server) -> None:
    head = server.branch("one", {"a.txt": "1\n"})
    number = server.pull("one").body["number"]

    def tried() -> bool:
        server.api("GET", f"/pulls/{number}")
        return (
            server.merge(number, head, MergeTitleField="Title", MergeMessageField="Orch-Run: 42").status
            == 200
        )

    wait_until(tried)
    assert server.git("fetch", "-q", f"{server.url}/{server.repo}.git", "main") == ""
    assert server.person.git("log", "-1", "--format=%B", "FETCH_HEAD") == "Title\n\nOrch-Run: 42"
    assert server.person.git("rev-parse", "FETCH_HEAD^2") == head


def test_what_cannot_be_merged_says_why_or_asks_for_patience(server: Server) -> None:
    head = server.branch("clash", {"README.md": "Theirs\n"})
    number = server.pull("clash").body["number"]
    server.person.commit("Ours", {"README.md": "Ours\n"})
    assert server.push("HEAD:refs/heads/main") == ""
    server.api("GET", f"/pulls/{number}")
    assert server.merge(number, head).status in (405, 409)

    draft = server.branch("draft", {"d.txt": "1\n"})
    wip = server.pull("draft", "WIP: not yet").body["number"]
    told = server.merge(wip, draft)
    assert told.status == 405
    assert "ork in progress" in told.body["message"]
    assert server.api("PATCH", f"/pulls/{wip}", {"state": "closed"}).body["state"] == "closed"
    assert server.merge(wip, draft).status == 404


def test_a_branch_that_is_removed_closes_its_pull_request(server: Server) -> None:
    server.branch("one", {"a.txt": "1\n"})
    number = server.pull("one").body["number"]
    assert server.api("DELETE", "/branches/one").status == 204
    shown = wait_until(
        lambda: (told := server.api("GET", f"/pulls/{number}").body)["state"] == "closed" and told
    )
    assert shown["merged"] is False
    assert shown["head"]["ref"] == f"refs/pull/{number}/head"
    assert shown["head"]["label"] == "one"


def test_lists_come_in_pages_and_are_not_filtered_by_head(server: Server) -> None:
    for name in ("one", "two", "three"):
        server.branch(name, {f"{name}.txt": "1\n"})
        assert server.pull(name).status == 201
    first = server.api("GET", "/pulls", state="all", limit=2)
    second = server.api("GET", "/pulls", state="all", limit=2, page=2)
    assert [len(first.body), len(second.body)] == [2, 1]
    assert first.headers["x-total-count"] == "3"
    assert 'rel="next"' in first.headers["link"]
    assert {pull["number"] for pull in first.body + second.body} == {1, 2, 3}


def test_a_combined_status_is_that_of_its_page(server: Server) -> None:
    head = server.branch("one", {"a.txt": "1\n"})
    for number in range(36):
        state = "failure" if number == 0 else "success"
        told = server.api("POST", f"/statuses/{head}", {"state": state, "context": f"ci/{number:02}"})
        assert told.status == 201
    listed = server.api("GET", f"/commits/{head}/status", limit=50)
    assert listed.body["state"] == "failure"
    default = server.api("GET", f"/commits/{head}/status")
    assert len(default.body["statuses"]) == 30
    assert server.api("POST", f"/statuses/{'9' * 40}", {"state": "success"}).status in (404, 422, 500)


def test_a_review_names_the_commit_that_it_saw(server: Server) -> None:
    head = server.branch("one", {"a.txt": "1\n"})
    number = server.pull("one").body["number"]
    said = {"event": "COMMENT", "body": "r", "commit_id": head}
    assert server.api("POST", f"/pulls/{number}/reviews", said).status == 200
    [review] = server.api("GET", f"/pulls/{number}/reviews").body
    assert (review["commit_id"], review["state"], review["dismissed"]) == (head, "COMMENT", False)
    own = {"event": "APPROVED", "body": "r", "commit_id": head}
    assert server.api("POST", f"/pulls/{number}/reviews", own).status == 422


def test_statuses_are_listed_the_oldest_first_and_counted_over_all_pages(server: Server) -> None:
    """Two of one context are two; which is the newer one their numbers tell."""
    head = server.branch("one", {"a.txt": "1\n"})
    for number in range(52):
        state = "failure" if number == 0 else "success"
        server.api("POST", f"/statuses/{head}", {"state": state, "context": f"ci/{number % 51:02}"})
    pages = [
        server.api("GET", f"/commits/{head}/statuses", sort="leastindex", limit=50, page=n) for n in (1, 2)
    ]
    assert [told.headers["x-total-count"] for told in pages] == ["52", "52"]
    rows = [row for told in pages for row in told.body]
    assert len(rows) == 52
    assert len({row["id"] for row in rows}) == 52
    twice = sorted((row for row in rows if row["context"] == "ci/00"), key=lambda row: row["id"])
    assert [row["status"] for row in twice] == ["failure", "success"]
    assert server.api("GET", f"/commits/{'9' * 40}/statuses").status == 404


def test_remarks_of_a_review_say_where(server: Server) -> None:
    head = server.branch("one", {"a.txt": "1\n2\n"})
    number = server.pull("one").body["number"]
    remark = {"path": "a.txt", "new_position": 2, "body": "Words"}
    said = {"event": "COMMENT", "body": "r", "commit_id": head, "comments": [remark]}
    review = server.api("POST", f"/pulls/{number}/reviews", said).body["id"]
    [found] = server.api("GET", f"/pulls/{number}/reviews/{review}/comments").body
    assert (found["path"], found["body"], found["position"]) == ("a.txt", "Words", 2)


def test_a_protected_branch_is_moved_by_merging_alone_and_after_its_checks(server: Server) -> None:
    rule = {"branch_name": "main", "enable_status_check": True, "status_check_contexts": ["ci/unit"]}
    assert server.api("POST", "/branch_protections", rule).status == 201
    server.person.commit("Past it", {"x.txt": "1\n"})
    assert "protected branch" in server.push("HEAD:refs/heads/main")
    server.person.git("reset", "-q", "--hard", "HEAD~1")

    head = server.branch("one", {"a.txt": "1\n"})
    number = server.pull("one").body["number"]
    told = merged_once_it_is_ready(server, number, head, "merge")
    assert told.status == 405
    assert "equired status checks" in told.body["message"]
    server.api("POST", f"/statuses/{head}", {"state": "success", "context": "ci/unit"})
    assert merged_once_it_is_ready(server, number, head, "merge").status == 200


def test_references_of_our_own_move_by_compare_and_swap(server: Server) -> None:
    """What the fence and the mark rest on: any reference below refs/orch, and pushes that land whole or not at all."""
    first = server.person.head()
    head = server.branch("one", {"a.txt": "1\n"})
    ours, other = "refs/orch/fence/1", "refs/orch/installation"
    assert server.push(f"--force-with-lease={ours}:", f"{first}:{ours}") == ""
    assert "rejected" in server.push(f"--force-with-lease={ours}:", f"{head}:{ours}")
    assert "rejected" in server.push(f"--force-with-lease={ours}:{head}", f"{head}:{ours}")
    leases = [f"--force-with-lease={ours}:{first}", f"--force-with-lease=refs/heads/one:{first}"]
    told = server.push("--atomic", *leases, f"{head}:{ours}", f"{first}:refs/heads/one", f"{head}:{other}")
    assert "rejected" in told
    assert server.refs("refs/orch/*", "refs/heads/one") == {ours: first, "refs/heads/one": head}
    leases[1] = f"--force-with-lease=refs/heads/one:{head}"
    assert server.push("--atomic", *leases, f"{head}:{ours}", f"{first}:refs/heads/one") == ""
    assert server.refs("refs/orch/*", "refs/heads/one") == {ours: head, "refs/heads/one": first}


def test_who_has_no_token_learns_nothing(server: Server) -> None:
    assert server.call("GET", "/user", known=False).status == 401
    assert server.call("GET", f"/repos/{server.repo}", known=False).status == 404
    assert server.call("GET", "/repos/acme/nosuch").status == 404
    server.token, kept = "0" * 40, server.token
    assert server.call("GET", f"/repos/{server.repo}").status == 401
    assert server.push("HEAD:refs/heads/main") != ""
    server.token = kept


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        ({"head": "a", "base": "main", "titel": "t"}, 201, {}),
        ({"head": 1, "base": "main"}, 201, {}),
        ({"head": "a", "base": "main"}, 201, {"number": "1"}),
        ({"head": "a", "base": "main"}, 418, {}),
    ],
    ids=["unknown field", "wrong type", "wrong answer", "unknown status"],
)
def test_a_call_that_does_not_fit_the_descriptions_is_noticed(body: Any, status: int, answer: Any) -> None:
    with pytest.raises(AssertionError):
        conforms("POST", "/repos/acme/shop/pulls", {}, body, status, answer)


# --- the fake's bodies beside those that a real server has sent ---------------------------------------------------


def kind_of_call(method: str, path: str, status: int) -> str:
    path = re.sub(r"/repos/[^/]+/[^/?]+", "/repos/R", path.split("?")[0])
    path = re.sub(r"/(statuses|commits)/[^/]+", r"/\1/X", path)
    path = re.sub(r"/branches/.+", "/branches/B", path)
    return f"{method} {re.sub(r'/[0-9]+', '/N', path)} {status}"


SEEN = {kind_of_call(call["m"], call["u"], call["status"]): call["body"] for call in CAPTURED}
COMPARED = [
    "POST /repos/R/pulls 201",
    "POST /repos/R/pulls 404",
    "POST /repos/R/pulls 409",
    "POST /repos/R/pulls 422",
    "GET /repos/R/pulls 200",
    "GET /repos/R/pulls/N 200",
    "PATCH /repos/R/pulls/N 201",
    "GET /repos/R/pulls/N/merge 404",
    "POST /repos/R/pulls/N/merge 200",
    "POST /repos/R/pulls/N/merge 404",
    "POST /repos/R/pulls/N/merge 405",
    "POST /repos/R/pulls/N/merge 409",
    "POST /repos/R/pulls/N/merge 422",
    "POST /repos/R/pulls/N/reviews 200",
    "POST /repos/R/statuses/X 201",
    "POST /repos/R/statuses/X 500",
    "POST /repos/R/branch_protections 201",
    "GET /repos/R/branches/B 200",
    "DELETE /repos/R/branches/B 204",
    "PATCH /repos/R 200",
    "GET /repos/R 404",
    "GET /user 401",
]


def test_bodies_have_all_that_the_captured_ones_have(tmp_path: Path) -> None:
    with FakeGitea(tmp_path / "server") as fake:
        server = Server(fake.url, fake.token, tmp_path)
        head = server.branch("one", {"a.txt": "1\n"})
        server.pull("one")
        server.pull("one")
        server.pull("nope")
        server.api("POST", "/pulls", {"head": "main", "base": "main", "title": "n"})
        server.api("GET", "/pulls/1")
        server.api("GET", "/pulls", state="all")
        server.api("POST", "/pulls/1/reviews", {"event": "COMMENT", "body": "r"})
        server.api("PATCH", "/pulls/1", {"title": "w"})
        server.api("GET", "/pulls/1/merge")
        server.merge(9, head)
        server.merge(1, head, "bogus")
        server.merge(1, "1" * 40)
        server.merge(1, head)
        server.merge(1, head)
        server.api("POST", f"/statuses/{head}", {"state": "success", "context": "ci/unit"})
        server.api("POST", f"/statuses/{'9' * 40}", {"state": "success"})
        server.api("POST", "/branch_protections", {"branch_name": "main"})
        server.api("GET", "/branches/main")
        server.api("PATCH", "", {"archived": False})
        server.api("DELETE", "/branches/one")
        server.call("GET", "/repos/acme/nosuch")
        server.call("GET", "/user", known=False)
        server.close()
    ours = {kind_of_call(method, path, told.status): told.body for method, path, told in server.calls}
    wrong = {kind: lacks(shape(SEEN[kind]), shape(ours[kind])) for kind in COMPARED}
    assert not {kind: what for kind, what in wrong.items() if what}
