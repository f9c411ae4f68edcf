"""The fake GitHub does what the real one does, as far as we build on it. With ORCH_GITHUB_URL and ORCH_GITHUB_TOKEN the
real one is asked instead: each test makes a repository of its own there and removes it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.played.github import FakeGitHub
from orchestrator.rest.github import VERSION, api_root
from tests.contracts.spoken_to import SpokenTo, Told
from tests.waiting import wait_until

FENCE, MARK = "refs/orch/fence/1", "refs/orch/installation"


class Server(SpokenTo):
    """As our user there."""

    def call(self, method: str, path: str, body: Any = None, *, tag: str = "", **query: Any) -> Told:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": VERSION,
            **({"If-None-Match": tag} if tag else {}),
        }
        asked = {name: str(value) for name, value in query.items()}
        return self.sent(method, api_root(self.url) + path, body, headers, asked)

    def merge(self, number: int, head: str, **more: str) -> Told:
        return self.api("PUT", f"/pulls/{number}/merge", {"merge_method": "merge", "sha": head, **more})

    def merged_once_it_is_seen(self, number: int, head: str, **more: str) -> Told:
        """The first answer to a merge that is not "later"."""

        def tried() -> Told | None:
            self.api("GET", f"/pulls/{number}")
            told = self.merge(number, head, **more)
            later = told.status == 409 or "is not mergeable" in str(told.body)
            return None if later else told

        return wait_until(tried)


Make = Callable[..., Server]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Server] = []

    def at(url: str, token: str) -> Make:
        def one(**more: Any) -> Server:
            made.append(Server(url, token, tmp_path, **more))
            return made[-1]

        return one

    url = os.environ.get("ORCH_GITHUB_URL")
    if url:
        yield at(url.rstrip("/"), os.environ["ORCH_GITHUB_TOKEN"])
        for server in made:
            server.close()
        return
    with FakeGitHub(tmp_path / "server") as fake:
        yield at(fake.url, fake.token)
        for server in made:
            server.close()


@pytest.fixture
def server(make: Make) -> Server:
    return make()


def test_a_pull_request_from_its_opening_to_its_merge(server: Server) -> None:
    head = server.branch("one", {"a.txt": "1\n"})
    opened = server.pull("one")
    assert opened.status == 201
    number, shown = opened.body["number"], opened.body["head"]
    assert (shown["ref"], shown["sha"], opened.body["base"]["ref"]) == ("one", head, "main")
    assert shown["repo"]["id"] == opened.body["base"]["repo"]["id"]
    assert (opened.body["state"], opened.body["merged"], opened.body["merged_at"]) == ("open", False, None)

    again = server.pull("one", "Again")
    assert again.status == 422
    assert "already exists" in again.body["errors"][0]["message"]
    assert server.pull("nope").status == 422
    assert server.api("GET", "/pulls/999").status == 404

    refused = server.merge(number, "0" * 40)
    assert (refused.status, "Head branch was modified" in refused.body["message"]) == (409, True)
    merged = server.merged_once_it_is_seen(
        number, head, commit_title="A title", commit_message="Orch-Nonce: n"
    )
    assert (merged.status, merged.body["merged"]) == (200, True)
    server.git("fetch", "-q", f"{server.url}/{server.repo}.git", "main")
    told = server.person.git("log", "-1", "--format=%H %P%n%B", "FETCH_HEAD").splitlines()
    assert told[0].split() == [merged.body["sha"], server.person.git("rev-parse", "main"), head]
    assert (told[1], told[3]) == ("A title", "Orch-Nonce: n")
    assert server.merge(number, head).status == 405


def test_a_pull_request_is_found_by_its_branch_in_every_state(server: Server) -> None:
    owner = server.repo.partition("/")[0]
    server.branch("one", {"a.txt": "1\n"})
    server.branch("two", {"b.txt": "1\n"})
    first = server.pull("one").body["number"]
    server.pull("two")
    assert server.api("PATCH", f"/pulls/{first}", {"state": "closed"}).body["state"] == "closed"
    assert server.api("PATCH", f"/pulls/{first}", {"state": "closed"}).status == 200
    second = server.pull("one").body["number"]
    order = {"state": "all", "sort": "created", "direction": "asc", "base": "main"}
    found = server.api("GET", "/pulls", head=f"{owner}:one", **order)
    assert [pull["number"] for pull in found.body] == [first, second]
    assert "merged" not in found.body[0]
    page = server.api("GET", "/pulls", head=f"{owner}:one", per_page=1, **order)
    assert 'rel="next"' in page.headers["link"]
    assert [pull["number"] for pull in page.body] == [first]


def test_main_is_pushed_together_with_our_references_or_not_at_all(server: Server) -> None:
    main = server.person.git("rev-parse", "main")
    head = server.branch("one", {"a.txt": "1\n"})
    number = server.pull("one").body["number"]
    tree = server.person.git("rev-parse", f"{head}^{{tree}}")
    m = server.person.git("commit-tree", tree, "-p", main, "-p", head, "-m", "Merge it")
    first, again, stale = (
        server.person.git("commit-tree", tree, "-m", words) for words in ("first", "again", "stale")
    )
    assert server.push(f"{first}:{FENCE}", f"{first}:{MARK}") == ""
    wrong = [f"--force-with-lease={FENCE}:{stale}", f"--force-with-lease=refs/heads/main:{main}"]
    assert server.push("--atomic", *wrong, f"{m}:refs/heads/main", f"{again}:{FENCE}") != ""
    assert server.refs("refs/heads/main", FENCE) == {"refs/heads/main": main, FENCE: first}

    leases = [f"--force-with-lease={ref}:{old}" for ref, old in ((FENCE, first), ("refs/heads/main", main))]
    assert server.push("--atomic", *leases, f"{m}:refs/heads/main", f"{again}:{FENCE}") == ""
    assert server.refs("refs/heads/main", FENCE) == {"refs/heads/main": m, FENCE: again}
    wait_until(lambda: server.api("GET", f"/pulls/{number}").body["merged"])
    owner = server.repo.partition("/")[0]
    [listed] = server.api("GET", "/pulls", head=f"{owner}:one", state="all").body
    assert (listed["state"], listed["merged_at"] is not None) == ("closed", True)


def test_a_rule_declines_a_push_to_main_and_all_that_comes_with_it(make: Make) -> None:
    server = make(private=False)  # rules of private repositories are not for every account
    main = server.person.git("rev-parse", "main")
    parameters = {
        "required_approving_review_count": 0,
        "dismiss_stale_reviews_on_push": False,
        "require_code_owner_review": False,
        "require_last_push_approval": False,
        "required_review_thread_resolution": False,
    }
    rules = {
        "name": "main",
        "target": "branch",
        "enforcement": "active",
        "conditions": {"ref_name": {"include": ["~DEFAULT_BRANCH"], "exclude": []}},
        "rules": [{"type": "pull_request", "parameters": parameters}],
    }
    assert server.api("POST", "/rulesets", rules).status == 201
    assert [rule["type"] for rule in server.api("GET", "/rules/branches/main").body] == ["pull_request"]
    head = server.branch("one", {"a.txt": "1\n"})
    said = server.push("--atomic", f"{head}:refs/heads/main", f"{head}:{FENCE}")
    assert "[remote rejected]" in said
    assert "declined" in next(line for line in said.splitlines() if "-> main" in line)
    assert server.refs("refs/heads/main", FENCE) == {"refs/heads/main": main}
    number = server.pull("one").body["number"]
    assert server.merged_once_it_is_seen(number, head).status == 200


def test_statuses_and_runs_of_a_commit_are_listed(server: Server) -> None:
    """Two statuses of one context are two; which is the newer one their numbers tell."""
    head = server.branch("one", {"a.txt": "1\n"})
    for state in ("failure", "success"):
        said = {"state": state, "context": "ci", "description": "Words", "target_url": "https://ci.example/1"}
        assert server.api("POST", f"/statuses/{head}", said).status == 201
    rows = server.api("GET", f"/commits/{head}/statuses", per_page=100).body
    assert [row["state"] for row in sorted(rows, key=lambda row: row["id"])] == ["failure", "success"]
    assert {(row["context"], row["description"], row["target_url"]) for row in rows} == {
        ("ci", "Words", "https://ci.example/1")
    }
    runs = server.api("GET", f"/commits/{head}/check-runs", filter="latest", per_page=100)
    assert (runs.status, runs.body) == (200, {"total_count": 0, "check_runs": []})
    assert server.api("GET", f"/commits/{'9' * 40}/statuses").status in (404, 422)
    assert server.api("GET", f"/commits/{'9' * 40}/check-runs").status in (404, 422)


def test_a_review_names_the_commit_and_remarks_say_where(server: Server) -> None:
    head = server.branch("one", {"a.txt": "1\n2\n"})
    number = server.pull("one").body["number"]
    remark = {"path": "a.txt", "line": 2, "body": "Words"}
    said = {"event": "COMMENT", "body": "r", "commit_id": head, "comments": [remark]}
    review = server.api("POST", f"/pulls/{number}/reviews", said)
    assert (review.status, review.body["commit_id"], review.body["state"]) == (200, head, "COMMENTED")
    [listed] = server.api("GET", f"/pulls/{number}/reviews", per_page=100).body
    assert listed["id"] == review.body["id"]
    [found] = server.api("GET", f"/pulls/{number}/reviews/{listed['id']}/comments", per_page=50).body
    assert (found["path"], found["body"], found["line"]) == ("a.txt", "Words", 2)
    us = server.call("GET", "/user").body["login"]
    assert listed["user"]["login"] == us
    told = server.api("GET", f"/collaborators/{us}/permission")
    assert (told.status, told.body["permission"] in ("write", "admin")) == (200, True)
    own = {"event": "APPROVE", "body": "r", "commit_id": head}
    assert server.api("POST", f"/pulls/{number}/reviews", own).status == 422


def test_what_has_not_changed_is_not_counted(server: Server) -> None:
    first = server.api("GET", "")
    left = int(first.headers["x-ratelimit-remaining"])
    assert int(first.headers["x-ratelimit-reset"]) > 1_700_000_000
    again = server.api("GET", "", tag=first.headers["etag"])
    assert (again.status, int(again.headers["x-ratelimit-remaining"])) == (304, left)


def test_who_is_not_known_and_what_is_not_there(server: Server) -> None:
    assert server.call("GET", "/repos/octocat/there-is-no-such-repository-of-ours").status == 404
    token, server.token = server.token, "ghp_" + "x" * 36
    told = server.api("GET", "")
    assert (told.status, told.body["message"]) == (401, "Bad credentials")
    assert server.push("HEAD:refs/heads/main") != ""
    server.token = token


def test_a_renamed_repository_leads_to_its_new_address(server: Server) -> None:
    old = server.repo
    server.repo = server.api("PATCH", "", {"name": old.partition("/")[2] + "-b"}).body["full_name"]
    told = wait_until(lambda: _moved(server.call("GET", f"/repos/{old}")))
    to = told.headers["location"]
    assert to.startswith(api_root(server.url) + "/repositories/")
    assert server.call("GET", to.removeprefix(api_root(server.url))).body["full_name"] == server.repo


def _moved(told: Told) -> Told | None:
    return told if told.status in (301, 307) else None


# -- issues ----------------------------------------------------------------------------------------------------------


def filed(server: Server, title: str = "Add totals", **more: Any) -> int:
    told = server.api("POST", "/issues", {"title": title, "body": "Sum.\r\n", **more})
    assert told.status == 201
    return int(told.body["number"])


def test_an_issue_from_its_filing_to_its_end(server: Server) -> None:
    number = filed(server, labels=["orch"])
    told = server.api("GET", f"/issues/{number}").body
    assert (told["number"], told["state"], told["state_reason"]) == (number, "open", None)
    assert (told["title"], [label["name"] for label in told["labels"]]) == ("Add totals", ["orch"])
    assert "pull_request" not in told and told["user"]["id"] > 0 and told["updated_at"].endswith("Z")

    added = server.api("POST", f"/issues/{number}/labels", {"labels": ["orch: review", "ORCH"]})
    assert added.status == 200
    assert sorted(label["name"] for label in added.body) == ["orch", "orch: review"]  # any case is the same
    gone = server.api("DELETE", f"/issues/{number}/labels/orch:%20review")
    assert (gone.status, [label["name"] for label in gone.body]) == (200, ["orch"])
    assert server.api("DELETE", f"/issues/{number}/labels/orch:%20review").status == 404

    for state, why in (("closed", "not_planned"), ("closed", "completed"), ("open", "reopened")):
        told = server.api("PATCH", f"/issues/{number}", {"state": state, "state_reason": why}).body
        assert (told["state"], told["state_reason"]) == (state, why)
    server.api("PATCH", f"/issues/{number}", {"state": "closed", "state_reason": "completed"})

    def told_of() -> list[dict[str, Any]] | None:
        rows: list[dict[str, Any]] = server.api("GET", f"/issues/{number}/events", per_page=100).body
        return rows if [row["event"] for row in rows].count("closed") == 2 else None

    events = wait_until(told_of)
    us = server.call("GET", "/user").body
    kinds = [(row["event"], row["label"]["name"] if "label" in row else None) for row in events]
    assert kinds == [
        ("labeled", "orch"),
        ("labeled", "orch: review"),
        ("unlabeled", "orch: review"),
        ("closed", None),
        ("reopened", None),
        ("closed", None),
    ]
    assert {row["actor"]["id"] for row in events} == {us["id"]}
    assert len({row["id"] for row in events}) == len(events)
    assert server.api("GET", "/issues/999").status == 404


def test_comments_of_an_issue_by_their_last_change(server: Server) -> None:
    number = filed(server)
    bodies = ["One\n\n<!-- orch-1 -->", "Two", "Three"]
    made = [server.api("POST", f"/issues/{number}/comments", {"body": body}) for body in bodies]
    assert [told.status for told in made] == [201, 201, 201]
    assert made[0].body["body"] == bodies[0]  # what nobody sees is kept
    assert made[0].body["created_at"] == made[0].body["updated_at"]

    def listed() -> list[Any] | None:
        rows = server.api("GET", f"/issues/{number}/comments", per_page=100).body
        return [row["body"] for row in rows] if len(rows) == 3 else None

    assert wait_until(listed) == bodies
    page = server.api("GET", f"/issues/{number}/comments", per_page=2)
    assert (len(page.body), 'rel="next"' in page.headers["link"]) == (2, True)
    since = made[0].body["updated_at"]
    assert (
        len(server.api("GET", f"/issues/{number}/comments", since=since).body) == 3
    )  # the second itself, too
    assert server.api("GET", f"/issues/{number}/comments", since="2099-01-01T00:00:00Z").body == []
    assert server.api("POST", f"/issues/{number}/comments", {"body": "x" * 65_537}).status == 422
    assert server.api("POST", f"/issues/{number}/comments", {"body": ""}).status == 422


def test_the_list_of_issues_holds_pull_requests_too(server: Server) -> None:
    first, second = filed(server, "One", labels=["orch"]), filed(server, "Two")
    server.branch("one", {"a.txt": "1\n"})
    pull = server.pull("one").body["number"]
    assert (first, second, pull) == (1, 2, 3)  # one count for both
    order = {"state": "all", "sort": "updated", "direction": "asc", "per_page": 100}

    def listed() -> list[Any] | None:
        rows = server.api("GET", "/issues", since="2020-01-01T00:00:00Z", **order).body
        return rows if len(rows) == 3 else None

    rows = wait_until(listed)
    assert [row["number"] for row in rows if "pull_request" in row] == [pull]
    assert server.api("GET", "/issues", since="2099-01-01T00:00:00Z", **order).body == []
    assert [row["number"] for row in server.api("GET", "/issues", state="open", labels="orch").body] == [
        first
    ]
    server.api("PATCH", f"/issues/{first}", {"state": "closed"})
    assert wait_until(lambda: not server.api("GET", "/issues", state="open", labels="orch").body)
    assert server.api("GET", f"/issues/{pull}").body["pull_request"]["html_url"].endswith(f"/pull/{pull}")


def test_labels_are_made_once(server: Server) -> None:
    wanted = {"name": "orch: review", "color": "c5def5", "description": "Where orch is with it"}
    assert server.api("POST", "/labels", wanted).status == 201
    again = server.api("POST", "/labels", {**wanted, "name": "Orch: Review"})
    assert (again.status, again.body["errors"][0]["code"]) == (422, "already_exists")
    names = {label["name"] for label in server.api("GET", "/labels", per_page=100).body}
    assert "orch: review" in names


def test_a_locked_issue_takes_comments_of_who_may_write(server: Server) -> None:
    number = filed(server)
    assert server.api("PUT", f"/issues/{number}/lock", {}).status == 204
    assert server.api("POST", f"/issues/{number}/comments", {"body": "Hello"}).status == 201


def test_words_on_main_close_an_issue_and_those_of_our_titles_do_not(server: Server) -> None:
    """`closes #1` in a commit that comes to main; not `closes # 1`."""
    for number in (filed(server, "One"), filed(server, "Two")):
        server.person.commit(f"closes {'#' if number == 1 else '# '}{number}", {f"{number}.txt": "1\n"})
    assert server.push("HEAD:refs/heads/main") == ""
    first = wait_until(lambda: _closed(server, 1))
    assert first["state_reason"] == "completed"
    assert _closed(server, 2) is None


def _closed(server: Server, number: int) -> Any:
    told = server.api("GET", f"/issues/{number}").body
    return told if told["state"] == "closed" else None
