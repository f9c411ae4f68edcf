"""The servers of a world, in a process of their own: a forge with one repository, and where its tickets lie, a Plane
with one project or the issues of the repository.

Every function here is called there, by :meth:`tests.proofs.servers.Servers.do`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from orchestrator.played.common.faults import How
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub, Repository
from orchestrator.played.github.issues import Issue
from orchestrator.played.github.server import BOT, PERSON
from orchestrator.played.plane import FakePlane, Project
from orchestrator.repositories import GITEA, GITHUB
from tests.fixtures_git_server import repository_at
from tests.proofs.world import REPO, FastClock, World

ISSUES = "issues"  # tickets are those of the repository at GitHub
FORGES: Mapping[str, str] = {GITEA: GITEA, GITHUB: GITHUB, ISSUES: GITHUB}  # by the kind of the world
MARK = re.compile(r"<!-- (orch-[0-9a-f]{40}) -->")
MANY = 10**6  # requests that nobody counts
LANDS_S = 10.0


@dataclass(frozen=True)
class AtPlane:
    """Tickets are work items of a Plane."""

    server: FakePlane
    project: Project

    def file(self, title: str) -> None:
        self.server.ticket(self.project, title, "orch", "fast")

    def cancel(self, title: str) -> None:
        found = next(item for item in self.project.items if item.name == title)
        self.server.move(found, "Cancelled")

    def seen(self) -> list[dict[str, Any]]:
        with self.server.world.lock:
            return [
                {
                    "id": item.id,
                    "name": item.name,
                    "group": item.state.group,
                    "said": [one.external_id for one in item.comments if one.actor is self.server.bot],
                }
                for item in self.project.items
            ]


@dataclass(frozen=True)
class AsIssues:
    """Tickets are issues of the repository."""

    server: FakeGitHub
    there: Repository

    def file(self, title: str) -> None:
        with self.there.lock:
            self.there.issues.file(title, "orch", "fast", by=PERSON)

    def cancel(self, title: str) -> None:
        with self.there.lock:
            found = next(issue for issue in self.there.issues.all if issue.title == title)
            self.there.issues.close(found, "not_planned", by=PERSON)

    def seen(self) -> list[dict[str, Any]]:
        with self.there.lock:
            return [
                {
                    "id": f"{REPO}#{issue.number}",
                    "name": issue.title,
                    "group": GROUPS.get(issue.reason or "", issue.state) if not _stages(issue) else "at work",
                    "said": [
                        mark for one in issue.comments if one.user == BOT for mark in MARK.findall(one.body)
                    ],
                }
                for issue in self.there.issues.all
            ]


GROUPS = {"completed": "completed", "not_planned": "cancelled"}


def _stages(issue: Issue) -> list[str]:
    """Its labels that show a stage."""
    return [label for label in issue.labels if label.startswith("orch: ")]


@dataclass(frozen=True)
class House:
    """The servers, in their own process, and what lies there."""

    forge: Any
    there: Any  # the repository
    tickets: AtPlane | AsIssues

    @property
    def servers(self) -> list[Any]:
        return [self.forge] if self.tickets.server is self.forge else [self.forge, self.tickets.server]


def serve(world: World, kind: str, theirs: "Connection[Any, Any]", asked: "Connection[Any, Any]") -> None:
    """The process, until nobody asks any more."""
    theirs.close()
    with ExitStack() as stack:
        now = FastClock().utc
        forge: Any
        if FORGES[kind] == GITHUB:
            forge = stack.enter_context(FakeGitHub(world.servers, calendar=now))
            forge.remaining = MANY
        else:
            forge = stack.enter_context(FakeGitea(world.servers))
        there = repository_at(forge, world.person)
        there.git("config", "core.logAllRefUpdates", "true")  # the outside's own journal of main
        there.synchronise()
        if kind == ISSUES:
            house = House(forge, there, AsIssues(forge, there))
        else:
            plane = stack.enter_context(FakePlane(per_minute=MANY, calendar=now))
            house = House(forge, there, AtPlane(plane, plane.project()))
        while True:
            try:
                act, words = asked.recv()
            except EOFError:
                return
            asked.send(act(house, *words))


def addresses(house: House) -> tuple[str, str, str]:
    return house.forge.url, house.forge.token, house.tickets.server.url


def file(house: House, title: str) -> None:
    house.tickets.file(title)


def cancel(house: House, title: str) -> None:
    house.tickets.cancel(title)


def fail(house: House, of_tickets: bool, method: str, pattern: str, how: How, seconds: float) -> None:
    (house.tickets.server if of_tickets else house.forge).fail(method, pattern, how, seconds=seconds)


def mend(house: House) -> None:
    """Nothing new goes wrong; what is under way still lands."""
    for server in house.servers:
        for fault in server.journal.faults:
            fault.times = 0


def settle(house: House) -> dict[str, int]:
    """How often what happened."""
    mend(house)
    reached = [f for s in house.servers for f in s.journal.faults if f.reached.is_set()]
    for fault in reached:
        assert fault.landed.wait(LANDS_S), f"{fault.method} {fault.pattern} never lands"
    found = Counter(f"at servers: {fault.how.name.lower()}" for fault in reached)
    for server in house.servers:
        server.journal.faults.clear()
    return dict(found)


def seen(house: House) -> dict[str, Any]:
    """What a person would see in a browser."""
    with house.there.lock:
        pulls = [
            {"number": pull.number, "branch": pull.branch, "state": pull.state, "merged": pull.merged}
            for pull in house.there.pulls
        ]
    return {"pulls": pulls, "tickets": house.tickets.seen()}
