"""The fake Plane's webhooks beside those that a real one has sent: headers, bytes, bodies; and what it never tells."""

import hmac
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.played.plane import FakePlane, Sent
from orchestrator.played.plane.server import API, KEY, SECRET
from tests.contracts.plane_client import CONTRACTS
from tests.contracts.shapes import lacks, shape
from tests.waiting import wait_until

REAL = CONTRACTS / "fixtures" / "real"
BODIES = sorted(REAL.glob("plane_issue*[!s].json"))
CAPTURED = [path for path in BODIES if ".headers" not in path.name]


class Receiver:
    """Counts what arrives, and answers as a test says."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.got: list[tuple[dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                outer.got.append((dict(self.headers.items()), raw))
                if outer.status == 0:  # cut off without an answer
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/webhooks/plane"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def all_sent(fake: FakePlane) -> list[Sent]:
    wait_until(fake.worker.all_sent)
    return fake.worker.sent


def told(fake: FakePlane) -> list[tuple[str, str, Any]]:
    return [(one.event, one.action, one.body["activity"]["field"]) for one in all_sent(fake)]


def by_api(fake: FakePlane, method: str, path: str, body: Any) -> Any:
    url = f"{fake.url}{API}/workspaces/acme/projects/{path}"
    answer = httpx.request(method, url, json=body, headers={"X-API-Key": KEY}, trust_env=False)
    assert answer.is_success
    return answer.json() if answer.content else None


def test_every_kind_that_was_captured_has_all_that_the_captured_one_has(receiver: Receiver) -> None:
    with FakePlane() as fake:
        project = fake.project()
        fake.hook(receiver.url)
        item = fake.ticket(project, "From a page", "orch")
        fake.move(item, "In Progress")
        fake.label(item)
        fake.comment(item, "<p>from ui</p>")
        place = f"{project.id}/work-items/"
        made = by_api(fake, "POST", place, {"name": "By the API", "labels": [project.label("orch").id]})
        states = {state.name: state.id for state in project.states}
        wanted = {"state": states["Done"], "name": "By the API (v2)", "labels": []}
        by_api(fake, "PATCH", f"{place}{made['id']}/", wanted)
        comment = by_api(fake, "POST", f"{place}{made['id']}/comments/", {"comment_html": "<p>a</p>"})
        where = f"{place}{made['id']}/comments/{comment['id']}/"
        by_api(fake, "PATCH", where, {"comment_html": "<p>b</p>"})
        ours = {(one.event, one.action, one.body["activity"]["field"]): one for one in all_sent(fake)}
    assert len(CAPTURED) == 11
    for path in CAPTURED:
        real = json.loads(path.read_text())
        kind = (real["event"], real["action"], real["activity"]["field"])
        assert list(real) == list(ours[kind].body)
        assert lacks(shape(real), shape(ours[kind].body)) == [], path.name
        headers = json.loads(Path(str(path).removesuffix("json") + "headers.json").read_text())["headers"]
        sent = {name.lower() for name, _ in receiver.got[0][0].items()}
        assert {name.lower() for name in headers} <= sent


def test_signed_are_the_bytes_that_are_sent(receiver: Receiver) -> None:
    with FakePlane() as fake:
        fake.hook(receiver.url)
        fake.ticket(fake.project(), "Корзина считает неверно ☂")
        [one] = all_sent(fake)
    headers, raw = receiver.got[0]
    assert raw == one.raw == json.dumps(one.body).encode()
    assert b"\\u041a" in raw
    assert headers["X-Plane-Signature"] == hmac.digest(SECRET.encode(), raw, "sha256").hex()


def test_one_for_each_field_that_has_changed_all_with_the_last_data(receiver: Receiver) -> None:
    with FakePlane() as fake:
        project = fake.project()
        item = fake.ticket(project, "Add totals")
        fake.hook(receiver.url)
        done = project.state("Done").id
        wanted = {"state": done, "name": "Another", "priority": "none"}
        by_api(fake, "PATCH", f"{project.id}/work-items/{item.id}/", wanted)
        assert told(fake) == [("issue", "updated", "state"), ("issue", "updated", "name")]
        assert {one.body["data"]["name"] for one in fake.worker.sent} == {"Another"}
        assert fake.worker.sent[0].body["activity"]["new_value"] == done
        by_api(fake, "PATCH", f"{project.id}/work-items/{item.id}/", {"state": done})
        assert len(all_sent(fake)) == 2


def test_of_deletions_archiving_and_links_nobody_is_told(receiver: Receiver) -> None:
    with FakePlane() as fake:
        project = fake.project()
        item, other = fake.ticket(project, "Add totals"), fake.ticket(project, "Another")
        fake.hook(receiver.url)
        link = {"url": "https://git.example.org/1"}
        by_api(fake, "POST", f"{project.id}/work-items/{item.id}/links/", link)
        fake.delete(item)
        fake.archive(other)
        assert told(fake) == []
        fake.delete_project(project)
        assert told(fake) == [("project", "deleted", None)]


def test_any_answer_counts_as_delivered(receiver: Receiver) -> None:
    receiver.status = 500
    with FakePlane() as fake:
        hook = fake.hook(receiver.url)
        fake.ticket(fake.project(), "Add totals")
        assert [one.status for one in all_sent(fake)] == [500]
        assert hook.active


def test_who_does_not_answer_gets_the_same_bytes_again_and_in_the_end_nothing(receiver: Receiver) -> None:
    receiver.status = 0
    with FakePlane() as fake:
        hook = fake.hook(receiver.url)
        project = fake.project()
        fake.ticket(project, "Add totals")
        sent = all_sent(fake)
        assert [one.status for one in sent] == [0] * 6
        assert len({one.raw for one in sent}) == 1
        assert len({one.headers["X-Plane-Delivery"] for one in sent}) == 6
        assert not hook.active
        fake.ticket(project, "Another")
        assert len(all_sent(fake)) == 6


def test_what_happens_late_is_told_late_and_shows_what_is_true_by_then(receiver: Receiver) -> None:
    with FakePlane() as fake:
        project = fake.project()
        item = fake.ticket(project, "Add totals")
        fake.hook(receiver.url)
        fake.world.late = True
        fake.move(item, "Approved")
        fake.move(item, "Todo")
        assert [one.field for one in item.activities] == [None]
        fake.world.catch_up()
        assert {one.body["data"]["state"]["name"] for one in all_sent(fake)} == {"Todo"}
        assert [one.field for one in item.activities] == [None, "state", "state"]
