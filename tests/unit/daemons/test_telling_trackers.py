"""Tickets elsewhere through the postman while their tracker is out of order: each message is there once, and in order.

The tracker is played, and so is the time: an hour of it passes at once.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import Secret
from orchestrator.daemons.outbox import Outbox
from orchestrator.db import mail, tickets
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.observability.redactor import Redactor
from orchestrator.observability.telemetry import Telemetry
from orchestrator.played.common.faults import How
from orchestrator.played.github import FakeGitHub
from orchestrator.played.plane import FakePlane
from orchestrator.played.plane.server import KEY
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.entropy import SeededEntropy
from orchestrator.runtime.http import SystemHttp
from orchestrator.trackers.github import GitHubTracker
from orchestrator.trackers.github_issues import GitHubServer
from orchestrator.trackers.local import LocalTracker
from orchestrator.trackers.pace import Pace
from orchestrator.trackers.plane import PlaneTracker, ShownAs
from orchestrator.trackers.plane_api import PlaneServer
from orchestrator.trackers.plane_project import PlaneProject
from orchestrator.trackers.tracker import Tracker
from tests.fixtures_db import REPO, Store
from tests.fixtures_git_server import NAME
from tests.unit.daemons.test_outbox import Mute

INTERVAL_S = 5.0
PULL = "https://git.example.org/acme/shop/pulls/3"
ACTS = ("POST", "PATCH", "PUT", "DELETE")
WAY = (Stage.ANALYSIS, Stage.DEVELOPMENT, Stage.REVIEW, Stage.DEPLOY, Stage.DONE)


class Hasty(SeededEntropy):
    """Every pause is as short as chance could make it."""

    def jitter(self, seconds: float) -> float:
        return seconds * 0.5


class AtPlane:
    """A project there."""

    name = "plane"

    def __init__(self, store: Store, root: Path) -> None:
        clock = store.clock
        self.server: Any = FakePlane(per_minute=10_000, clock=clock.boottime, calendar=clock.utc)
        self.project = self.server.project()
        known = PlaneServer(SystemHttp(), self.server.url, Secret(KEY), Pace(clock, 10_000), clock)
        self._ours = PlaneProject(known, self.server.world.slug, self.project.id, clock)

    def tracker(self, kept: Tracker) -> Tracker:
        return PlaneTracker(
            lambda _: self._ours, ShownAs(), kept, Redactor(), pull_request=lambda _: PULL
        )  # fmt: skip

    def file(self) -> str:
        return str(self.server.ticket(self.project, "Add totals", "orch").id)

    def said(self, ticket: str) -> list[str]:
        return [re.sub("<[^>]*>", " ", comment.html).strip() for comment in self._item(ticket).comments]

    def moves(self, ticket: str) -> list[str]:
        """How the ticket was changed, as its log tells it; and its links."""
        item = self._item(ticket)
        moved = [f"to {one.new}" for one in item.activities if one.field == "state"]
        return [*moved, *(f"link {link.url}" for link in item.links)]

    def _item(self, ticket: str) -> Any:
        return next(item for item in self.project.items if item.id == ticket)


class AtGitHub:
    """Issues of a repository there."""

    name = "github"

    def __init__(self, store: Store, root: Path) -> None:
        clock = store.clock
        self.server: Any = FakeGitHub(root / "server", calendar=clock.utc)
        self.there = self.server.create(*NAME.split("/"))
        at = GitHubServer(SystemHttp(), self.server.url, Secret(self.server.token), Limits(clock), clock)
        self._ours = at.issues(NAME)

    def tracker(self, kept: Tracker) -> Tracker:
        return GitHubTracker(lambda _: self._ours, kept, Redactor(), pull_request=lambda _: PULL)

    def file(self) -> str:
        return f"{REPO}#{self.there.issues.file('Add totals', 'orch', by='dana').number}"

    def said(self, ticket: str) -> list[str]:
        shown = (comment.body.rpartition("\n\n<!-- orch-")[0] for comment in self._issue(ticket).comments)
        return [text.removesuffix(f"\n\nPull request: {PULL}") for text in shown]

    def moves(self, ticket: str) -> list[str]:
        """How the issue was changed, as its events tell it."""
        ours = [event for event in self._issue(ticket).events if event.actor == "orchbot"]
        return [f"{event.kind} {event.label}" if event.label else event.kind for event in ours]

    def _issue(self, ticket: str) -> Any:
        return self.there.issues.find(ticket.rpartition("#")[2])


MOVES = {
    "plane": ["to In Progress", "to Done", f"link {PULL}"],
    "github": [
        "labeled orch: analysis",
        "labeled orch: development",
        "unlabeled orch: analysis",
        "labeled orch: review",
        "unlabeled orch: development",
        "labeled orch: deploy",
        "unlabeled orch: review",
        "unlabeled orch: deploy",
        "closed",
    ],
}


class Desk:
    """A postman, and two tickets that are told of."""

    def __init__(self, store: Store, root: Path, at: Any) -> None:
        self.store, self.at, self.server = store, at, at.server
        with store.database.write() as tx:
            tickets.connect(tx, REPO, at.name, f"{self.server.url}/shop", "shop-1", our_user=None)
        self.tasks = [store.new_task(tracker=at.name, external_id=at.file()) for _ in range(2)]
        kept = LocalTracker(root, store.clock, Redactor())
        self.outbox = Outbox(
            store.database,
            at.tracker(kept),
            Mute("$^"),
            base_url="",
            interval_s=INTERVAL_S,
            entropy=Hasty(),
            telemetry=Telemetry(),
            of=at.name,
        )
        self.expected: dict[str, list[str]] = {str(task.external_id): [] for task in self.tasks}

    def tell(self, task: Task, stage: Stage, words: str = "") -> None:
        """As a transition writes it: its stage, and then what is to be said of it."""
        at = self.expected[str(task.external_id)]
        about = f"{task.work_item} is {stage}." if stage.terminal else f"{task.work_item} is in {stage}."
        with self.store.database.write() as tx:
            number = len(at)
            mail.send(tx, "tracker.stage", f"{task.id}-{number}", {"stage": stage}, task_id=task.id)
            at.append(about)
            if words:
                mail.send(tx, "tracker.comment", f"{task.id}-{number}-c", {"text": words}, task_id=task.id)
                at.append(words)

    def passes(self, **time: float) -> None:
        """So much time, with the postman at work."""
        until = self.store.clock.utc() + timedelta(**time)
        while self.store.clock.utc() < until:
            self.outbox.run_once()
            self.store.clock.advance(self.outbox.interval_s)

    def rows(self) -> list[Any]:
        return self.store.rows("SELECT * FROM outbox ORDER BY id")

    def is_told(self) -> None:
        """All of it, once and in order, and nobody had to be called."""
        rows = self.rows()
        assert [row["stable_id"] for row in rows if row["sent_at"] is None] == []
        assert [row["stable_id"] for row in rows if row["parked_at"] is not None] == []
        assert {row["kind"] for row in rows} == {"tracker.stage", "tracker.comment"}
        for task in self.tasks:
            ticket = str(task.external_id)
            assert self.at.said(ticket) == self.expected[ticket]
            assert self.at.moves(ticket) == MOVES[self.at.name]


@pytest.fixture(params=[AtPlane, AtGitHub], ids=["plane", "github"])
def desk(request: Any, store: Store, tmp_path: Path) -> Iterator[Desk]:
    at = request.param(store, tmp_path)
    with at.server:
        yield Desk(store, tmp_path, at)


@contextmanager
def down(server: Any) -> Iterator[None]:
    with server.away():
        yield


def broken(status: int, how: How, methods: tuple[str, ...]) -> Callable[[Any], Any]:
    @contextmanager
    def outage(server: Any) -> Iterator[None]:
        for method in methods:
            server.fail(method, "", how, status=status, times=10**6)
        yield
        server.journal.faults.clear()

    return outage


OUTAGES = {
    "refuses connections": down,
    "500": broken(500, How.BEFORE, ("GET", *ACTS)),
    "500 though it acts": broken(500, How.AFTER, ACTS),
}


@pytest.mark.long(
    but=["plane-refuses connections", "github-refuses connections", "plane-500", "github-500 though it acts"]
)
@pytest.mark.parametrize("outage", OUTAGES)
def test_an_hour_out_of_order_costs_no_ticket_a_message(desk: Desk, outage: str) -> None:
    """Told before it, in the middle of it, and after it. What fails is tried at the shortest pauses there are; what
    finds nobody costs not even an attempt."""
    first, second = desk.tasks
    for task in desk.tasks:
        desk.tell(task, WAY[0], f"Have a look at {task.work_item}.")
    desk.passes(minutes=1)
    assert all(row["sent_at"] for row in desk.rows())
    with OUTAGES[outage](desk.server):
        for stage in WAY[1:3]:
            desk.tell(first, stage, "Something was found.")
            desk.passes(minutes=15)
            desk.tell(second, stage, "Something else was found.")
            desk.passes(minutes=15)
        rows = desk.rows()
        assert "it acts" in outage or any(row["sent_at"] is None for row in rows)
        assert any(row["attempts"] for row in rows) == outage.startswith("500")
    for stage in WAY[3:]:
        for task in desk.tasks:
            desk.tell(task, stage)
    desk.passes(hours=2)
    desk.is_told()


ACTS_OF = {
    "plane": [("PATCH", "/work-items/[^/]+/$"), ("POST", "/comments/$"), ("POST", "/links/$")],
    "github": [
        ("POST", "/labels$"),
        ("DELETE", "/labels/"),
        ("PATCH", r"/issues/\d+$"),
        ("POST", "/comments$"),
    ],
}


@pytest.mark.parametrize("how", [How.AFTER, How.LOST], ids=["500", "no answer"])
def test_what_has_taken_place_is_not_repeated_though_the_answer_was_none(desk: Desk, how: How) -> None:
    """Of every kind of act the first, and one in the middle."""
    for method, path in ACTS_OF[desk.at.name]:
        desk.server.fail(method, path, how, status=500)
    for stage in WAY:
        for task in desk.tasks:
            desk.tell(task, stage, f"About {stage}.")
        if stage is Stage.REVIEW:
            for method, path in ACTS_OF[desk.at.name]:
                desk.server.fail(method, path, how, status=500)
        desk.passes(minutes=5)
    desk.is_told()
    assert all(fault.times == 0 for fault in desk.server.journal.faults)
