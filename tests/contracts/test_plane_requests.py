"""Every request that is sent to Plane, and every answer that it gives, is one of the published API; and each delivery
that a real one has sent hints at a connected project."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config import Secret
from orchestrator.db import tickets
from orchestrator.domain.stage import Stage
from orchestrator.observability.redactor import Redactor
from orchestrator.played.plane import FakePlane
from orchestrator.played.plane.server import KEY
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.http import SystemHttp
from orchestrator.trackers.local import LocalTracker
from orchestrator.trackers.plane import PlaneTracker, ShownAs
from orchestrator.trackers.plane_open import PlaneAccess, PlaneProjects
from orchestrator.trackers.plane_source import Marks
from orchestrator.webhooks.asking import ASKED
from tests.contracts.plane_client import CONTRACTS, conforms
from tests.fixtures_db import REPO, Store
from tests.fixtures_webhooks import letters_over

EVER = "0001-01-01T00:00:00.000000Z"
HINTS = [
    path
    for folder in ("fixtures", "fixtures/real")
    for path in sorted((CONTRACTS / folder).glob("plane_*.json"))
    if ".headers" not in path.name
]


@pytest.fixture(params=[False, True], ids=["work-items", "issues"])
def server(request: pytest.FixtureRequest) -> Iterator[FakePlane]:
    with FakePlane(per_minute=10_000) as fake:
        fake.old = request.param
        yield fake


def test_from_the_label_to_the_end(server: FakePlane, store: Store, tmp_path: Path) -> None:
    project = server.project()
    item = server.ticket(project, "Add totals", "orch", html="<p>Sum.</p>")
    for number in range(120):
        server.ticket(project, f"Another {number}")
    clock = SystemClock()
    access, marks = PlaneAccess(server.url, Secret(KEY), 10_000), Marks(frozenset({"orch"}), frozenset())
    projects = PlaneProjects(store.database, access, marks, SystemHttp(), clock)
    there = projects.of(projects.connect(REPO, "acme/SHOP"))
    assert [one.external_id for one in there.changed(None) if one.wanted] == [item.id]
    task = replace(store.new_task(tracker="plane", external_id=item.id), pr_number=3)
    tracker = PlaneTracker(
        projects.of_task,
        ShownAs(),
        LocalTracker(tmp_path, clock, Redactor()),
        Redactor(),
        pull_request=lambda task: "https://git.example.org/acme/shop/pulls/3",
    )
    for number, stage in enumerate([Stage.ANALYSIS, Stage.REVIEW, Stage.DONE]):
        for _ in range(2):
            tracker.show_stage(task, stage, f"m{number}", said_at="2100-01-01T00:00:00.000000Z")
    server.move(item, "Approved")
    server.comment(item, "<p>orch approve</p>")
    reading = there.read(item.id, EVER)
    assert (
        reading is not None and len(reading.letters) == 4
    )  # two moves of ours, one of Ann's, and her comment
    server.delete(item)
    assert there.read(item.id, EVER) is None
    calls = server.journal.calls
    assert {call.method for call in calls} == {"GET", "POST", "PATCH"}
    for call in calls:
        if isinstance(call.answer, str):  # no such page
            assert (server.old, call.status) == (True, 404)
            continue
        conforms(call.method, call.path, call.query, call.body, call.status, call.answer)


@pytest.mark.parametrize("path", HINTS, ids=[f"{path.parent.name}-{path.stem}" for path in HINTS])
def test_a_delivery_of_a_connected_project_is_a_hint(store: Store, path: Path) -> None:
    letters, body = letters_over(store), json.loads(path.read_text())
    ticket = body["data"].get("issue") or body["data"]["id"]
    store.new_task(tracker="plane", external_id=ticket)
    project = body["data"].get("project") or body["data"]["id"]
    with store.database.write() as tx:
        tickets.connect(tx, REPO, "plane", "https://plane.example.org/acme", project, our_user=None)
    sent = letters.send("plane", body["event"], body)
    letters.run()
    assert sent is not None and letters.outcome(sent) == ASKED.outcome
    with store.database.read() as tx:
        known = tickets.project_of(tx, REPO)
        hinted = tickets.hinted(tx, "plane")
    assert known is not None and known.heard_at is not None
    assert [one.external_id for one in hinted] == ([] if body["event"] == "project" else [ticket])
