"""The fake Plane does what a real one does. With ORCH_PLANE_URL, ORCH_PLANE_TOKEN and ORCH_PLANE_WORKSPACE a real one
is asked instead: each test makes a project of its own there and removes it."""

import json
import os
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from orchestrator.played.plane import FakePlane
from orchestrator.played.plane.server import KEY
from tests.contracts.plane_client import CONTRACTS, Server, conforms, kind_of_call
from tests.contracts.shapes import lacks, shape
from tests.waiting import wait_until

CAPTURED = json.loads((CONTRACTS / "fixtures/real/plane131_api_calls.json").read_text())
NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(params=["work-items", "issues"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """By both names that work items have in paths."""
    url = os.environ.get("ORCH_PLANE_URL")
    if url:
        key, workspace = os.environ["ORCH_PLANE_TOKEN"], os.environ["ORCH_PLANE_WORKSPACE"]
        known = Server(url.rstrip("/"), key, workspace, request.param)
        yield known
        known.close()
        return
    with FakePlane(per_minute=10_000) as fake:
        known = Server(fake.url, KEY, fake.world.slug, request.param)
        yield known
        known.close()


def test_a_work_item_from_its_making_to_its_end(server: Server) -> None:
    states, mark = server.states(), uuid.uuid4().hex
    asked = {"description_html": "<p>Sum.</p>", "external_id": mark, "external_source": "orch"}
    item = server.item(**asked)
    place = f"{server.items}/{item['id']}/"
    assert (item["state"], item["external_id"]) == (states["backlog"], mark)

    again = server.api("POST", f"{server.items}/", {"name": "Again", **asked})
    assert (again.status, again.body["id"]) == (409, item["id"])
    found = server.api("GET", f"{server.items}/", external_id=mark, external_source="orch")
    assert (found.status, found.body["id"]) == (200, item["id"])
    gone = server.api("GET", f"{server.items}/", external_id="nope", external_source="orch")
    assert (gone.status, gone.body) == (404, {"error": "The requested resource does not exist."})
    key = f"/workspaces/{server.workspace}/{server.items}/{server.identifier}-{item['sequence_id']}/"
    assert server.call("GET", key).body["id"] == item["id"]

    moved = server.api("PATCH", place, {"state": states["started"]})
    assert (moved.status, moved.body["state"]) == (200, states["started"])
    assert moved.body["updated_at"] > item["updated_at"]
    unread = server.api("PATCH", place, {"state_id": states["completed"]})
    assert (unread.status, unread.body["state"]) == (200, states["started"])
    wrong = server.api("PATCH", place, {"state": NOBODY})
    assert (wrong.status, list(wrong.body)) == (400, ["state"])
    shown = server.api("GET", place, expand="state,labels").body
    assert (shown["state"]["group"], shown["state"]["id"]) == ("started", states["started"])

    assert server.api("DELETE", place).status == 204
    assert server.api("GET", place).status == 404
    assert server.api("PATCH", place, {"state": states["completed"]}).status == 404


def test_what_happened_to_a_work_item_is_in_its_activities(server: Server) -> None:
    states, item = server.states(), server.item()
    place = f"{server.items}/{item['id']}/"
    server.api("PATCH", place, {"state": states["started"]})
    server.api("PATCH", place, {"state": states["started"]})
    server.api("PATCH", place, {"state": states["completed"], "name": "Another"})

    def moves() -> list[dict[str, Any]]:
        found = server.api("GET", f"{place}activities/", order_by="-created_at").body["results"]
        return [one for one in found if one["field"] == "state"]

    last, first = wait_until(lambda: found if len(found := moves()) == 2 else [])
    assert (first["old_identifier"], first["new_identifier"]) == (states["backlog"], states["started"])
    assert (last["old_identifier"], last["new_identifier"]) == (states["started"], states["completed"])
    me = server.call("GET", "/users/me/").body["id"]
    assert (first["verb"], first["actor"], last["created_at"] > first["created_at"]) == ("updated", me, True)


def test_labels_are_replaced_as_a_whole_and_each_name_is_there_once(server: Server) -> None:
    one = server.api("POST", "labels/", {"name": "orch"})
    assert one.status == 201
    again = server.api("POST", "labels/", {"name": "orch"})
    assert (again.status, again.body["id"]) == (409, one.body["id"])
    other = server.api("POST", "labels/", {"name": "fast"}).body["id"]
    item = server.item(labels=[one.body["id"]])
    told = server.api("PATCH", f"{server.items}/{item['id']}/", {"labels": [other, NOBODY]})
    assert (told.status, told.body["labels"]) == (200, [other])
    names = {label["name"] for label in server.api("GET", "labels/").body["results"]}
    assert names == {"orch", "fast"}


def test_states_are_known_by_group_and_each_name_is_there_once(server: Server) -> None:
    assert {"backlog", "unstarted", "started", "completed", "cancelled"} <= set(server.states())
    asked = {"name": "Approved", "color": "#112233", "group": "started"}
    made = server.api("POST", "states/", asked)
    assert (made.status, made.body["group"]) == (200, "started")
    again = server.api("POST", "states/", asked)
    assert (again.status, again.body["id"]) == (409, made.body["id"])


def test_a_comment_is_there_once_for_its_external_id(server: Server) -> None:
    item, mark = server.item(), uuid.uuid4().hex
    place = f"{server.items}/{item['id']}/comments/"
    asked = {"comment_html": "<p>Work started.</p>", "external_id": mark, "external_source": "orch"}
    made = server.api("POST", place, asked)
    assert (made.status, made.body["external_id"]) == (201, mark)
    again = server.api("POST", place, {**asked, "comment_html": "<p>Again</p>"})
    assert (again.status, again.body["id"]) == (409, made.body["id"])
    later = server.api("POST", place, {"comment_html": "<p>Later</p>"})
    listed = server.api("GET", place).body["results"]
    assert [one["id"] for one in listed] == [later.body["id"], made.body["id"]]
    assert listed[1]["comment_html"] == "<p>Work started.</p>"
    assert listed[1]["actor"] == server.call("GET", "/users/me/").body["id"]
    edited = server.api("PATCH", f"{place}{made.body['id']}/", {"comment_html": "<p>Edited.</p>"})
    assert (edited.status, edited.body["comment_html"]) == (200, "<p>Edited.</p>")
    assert server.api("DELETE", f"{place}{made.body['id']}/").status == 204


def test_a_comment_makes_its_work_item_the_last_changed_one(server: Server) -> None:
    """What the poll rests on."""
    first, second = server.item("One"), server.item("Two")
    asked = {"comment_html": "<p>orch approve</p>"}
    assert server.api("POST", f"{server.items}/{first['id']}/comments/", asked).status == 201

    def newest() -> Any:
        told = server.api("GET", f"{server.items}/", order_by="-updated_at", per_page=100)
        return [one["id"] for one in told.body["results"]]

    wait_until(lambda: newest() == [first["id"], second["id"]])
    told = server.api("GET", f"{server.items}/", order_by="-updated_at", fields="id,updated_at")
    assert {name for row in told.body["results"] for name in row} == {"id", "updated_at"}


def test_lists_come_in_pages_that_a_cursor_leads_through(server: Server) -> None:
    made = [server.item(f"Item {number}")["id"] for number in range(3)]
    found: list[str] = []
    more: dict[str, Any] = {}
    while True:
        told = server.api("GET", f"{server.items}/", per_page=2, order_by="created_at", **more).body
        found += [one["id"] for one in told["results"]]
        assert (told["total_results"], told["next_cursor"] is not None) == (3, True)
        if not told["next_page_results"]:
            break
        more = {"cursor": told["next_cursor"]}
    assert found == made
    assert server.api("GET", f"{server.items}/", per_page=1_000_000).status == 400


def test_a_link_is_there_once(server: Server) -> None:
    item, asked = server.item(), {"url": "https://git.example.org/acme/shop/pulls/1", "title": "Pull request"}
    place = f"{server.items}/{item['id']}/links/"
    assert server.api("POST", place, asked).status == 201
    assert server.api("POST", place, asked).status == 400
    assert [one["url"] for one in server.api("GET", place).body["results"]] == [asked["url"]]


def test_who_has_no_key_learns_nothing(server: Server) -> None:
    assert server.call("GET", "/users/me/", key=None).status == 401
    assert server.call("GET", "/users/me/", key="plane_api_" + "0" * 32).status == 403
    there = f"/workspaces/{server.workspace}/projects/{NOBODY}/states/"
    assert server.call("GET", there).status in (403, 404)
    assert server.api("GET", f"{server.items}/{NOBODY}/").status == 404
    assert server.call("PUT", f"/workspaces/{server.workspace}/projects/", {}).status == 405
    assert server.call("GET", "/users/me").status == 301


# --- the fake alone ---------------------------------------------------------------------------------------------------


def test_who_asks_too_often_is_told_when_to_come_again() -> None:
    now = [100.0]
    with (
        FakePlane(per_minute=3, clock=lambda: now[0]) as fake,
        httpx.Client(trust_env=False, headers={"X-API-Key": KEY}) as client,
    ):
        told = [client.get(f"{fake.url}/api/v1/users/me/") for _ in range(5)]
        left = [one.headers.get("x-ratelimit-remaining") for one in told]
        assert [one.status_code for one in told] == [200, 200, 200, 429, 429]
        assert left == ["2", "1", "0", None, None]
        assert told[3].json() == {"error_code": 5900, "error_message": "RATE_LIMIT_EXCEEDED"}
        now[0] += float(told[4].headers["retry-after"])
        assert client.get(f"{fake.url}/api/v1/users/me/").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        ({"comment_html": "<p>a</p>", "comment": "a"}, 201, {}),
        ({"comment_html": 1}, 201, {}),
        ({"comment_html": "<p>a</p>"}, 201, {"issue": 7}),
        ({"comment_html": "<p>a</p>"}, 418, {}),
    ],
    ids=["unknown field", "wrong type", "wrong answer", "unknown status"],
)
def test_a_call_that_does_not_fit_the_description_is_noticed(body: Any, status: int, answer: Any) -> None:
    path = f"/api/v1/workspaces/acme/projects/{NOBODY}/work-items/{NOBODY}/comments/"
    with pytest.raises(AssertionError):
        conforms("POST", path, {}, body, status, answer)


# --- the fake's bodies beside those that a real server has sent -------------------------------------------------------

SEEN = {
    kind_of_call(call["method"], call["url"], call["params"] or {}, call["status"]): call["body"]
    for call in CAPTURED
}
NOT_COMPARED = {"POST /workspaces/W/projects/ 409"}


def test_bodies_have_all_that_the_captured_ones_have() -> None:
    with FakePlane(per_minute=10_000) as fake:
        server = Server(fake.url, KEY, fake.world.slug)
        states = server.states()
        server.call("GET", "/users/me/")
        server.call("GET", f"/workspaces/{server.workspace}/projects/")
        for _ in range(2):
            server.api("POST", "labels/", {"name": "agent2"})
        external = {"external_id": "ext-2", "external_source": "orch"}
        label = server.api("GET", "labels/").body["results"][0]["id"]
        item = server.item(labels=[label], **external)
        server.api("POST", "work-items/", {"name": "dup", **external})
        place = f"work-items/{item['id']}/"
        server.api("PATCH", place, {"state": states["started"]})
        server.api("PATCH", place, {"state": NOBODY})
        for _ in range(2):
            server.api("POST", f"{place}comments/", {"comment_html": "<p>a</p>", **external})
        [comment] = server.api("GET", f"{place}comments/").body["results"]
        server.api("PATCH", f"{place}comments/{comment['id']}/", {"comment_html": "<p>b</p>"})
        server.api("DELETE", f"{place}comments/{comment['id']}/")
        for name in ("work-items", "issues"):
            server.call("GET", f"/workspaces/{server.workspace}/{name}/{server.identifier}-1/")
        for known in ("ext-2", "nope"):
            server.api("GET", "work-items/", external_id=known, external_source="orch")
        server.api("GET", "work-items/", per_page=1)
        server.api("GET", place)
        server.api("GET", f"{place}activities/")
        server.api("PUT", "work-items/", external)
        server.api("GET", "work-items/", per_page=1_000_000)
        server.api("GET", place, expand="state,labels,assignees")
        server.api("DELETE", place)
        server.close()
    compared = SEEN.keys() - NOT_COMPARED
    assert compared <= server.calls.keys()
    wrong = {kind: lacks(shape(SEEN[kind]), shape(server.calls[kind].body)) for kind in compared}
    assert not {kind: what for kind, what in wrong.items() if what}
