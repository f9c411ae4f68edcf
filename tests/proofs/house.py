"""The servers of a world, in a process of their own: a forge with one repository, a Plane with one project.

Every function here is called there, by :meth:`tests.proofs.servers.Servers.do`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from orchestrator.played.common.faults import How
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub
from orchestrator.played.plane import FakePlane, Item, Project
from orchestrator.repositories import GITEA, GITHUB
from tests.fixtures_git_server import repository_at
from tests.proofs.world import FastClock, World

KINDS: Mapping[str, Any] = {GITEA: FakeGitea, GITHUB: FakeGitHub}
MANY = 10**6  # requests that nobody counts
LANDS_S = 10.0


@dataclass(frozen=True)
class House:
    """The servers, in their own process, and what lies there."""

    forge: Any
    plane: FakePlane
    there: Any  # the repository
    project: Project

    def item(self, name: str) -> Item:
        return next(item for item in self.project.items if item.name == name)


def serve(world: World, kind: str, theirs: "Connection[Any, Any]", asked: "Connection[Any, Any]") -> None:
    """The process, until nobody asks any more."""
    theirs.close()
    with KINDS[kind](world.servers) as forge, FakePlane(per_minute=MANY, calendar=FastClock().utc) as plane:
        there = repository_at(forge, world.person)
        there.git("config", "core.logAllRefUpdates", "true")  # the outside's own journal of main
        there.synchronise()
        if kind == GITHUB:
            forge.remaining = MANY
        house = House(forge, plane, there, plane.project())
        while True:
            try:
                act, words = asked.recv()
            except EOFError:
                return
            asked.send(act(house, *words))


def addresses(house: House) -> tuple[str, str, str]:
    return house.forge.url, house.forge.token, house.plane.url


def file(house: House, title: str) -> None:
    house.plane.ticket(house.project, title, "orch", "fast")


def move(house: House, title: str, state: str) -> None:
    house.plane.move(house.item(title), state)


def fail(house: House, at_plane: bool, method: str, pattern: str, how: How, seconds: float) -> None:
    (house.plane if at_plane else house.forge).fail(method, pattern, how, seconds=seconds)


def mend(house: House) -> None:
    """Nothing new goes wrong; what is under way still lands."""
    for server in (house.forge, house.plane):
        for fault in server.journal.faults:
            fault.times = 0


def settle(house: House) -> dict[str, int]:
    """How often what happened."""
    mend(house)
    reached = [f for s in (house.forge, house.plane) for f in s.journal.faults if f.reached.is_set()]
    for fault in reached:
        assert fault.landed.wait(LANDS_S), f"{fault.method} {fault.pattern} never lands"
    found = Counter(f"at servers: {fault.how.name.lower()}" for fault in reached)
    for server in (house.forge, house.plane):
        server.journal.faults.clear()
    return dict(found)


def seen(house: House) -> dict[str, Any]:
    """What a person would see in a browser."""
    with house.there.lock:
        pulls = [
            {"number": pull.number, "branch": pull.branch, "state": pull.state, "merged": pull.merged}
            for pull in house.there.pulls
        ]
    with house.plane.world.lock:
        tickets = [
            {
                "id": item.id,
                "name": item.name,
                "group": item.state.group,
                "said": [one.external_id for one in item.comments if one.actor is house.plane.bot],
            }
            for item in house.project.items
        ]
    return {"pulls": pulls, "tickets": tickets}
