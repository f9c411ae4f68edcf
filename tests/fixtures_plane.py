"""A Plane for a test, and what the product knows of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from orchestrator.config import Secret
from orchestrator.played.plane import FakePlane, Project
from orchestrator.played.plane.server import KEY
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.http import SystemHttp
from orchestrator.trackers.pace import Pace
from orchestrator.trackers.plane_api import PlaneServer
from orchestrator.trackers.plane_project import PlaneProject


@dataclass
class PlaneHouse:
    """One server with one project, and our way to it."""

    server: FakePlane
    project: Project
    clock: Clock = field(default_factory=SystemClock)
    per_minute: int = 1000

    def __post_init__(self) -> None:
        self.pace = Pace(self.clock, self.per_minute)
        known = PlaneServer(SystemHttp(), self.server.url, Secret(KEY), self.pace, self.clock)
        self.ours = PlaneProject(known, self.server.world.slug, self.project.id, self.clock)


@pytest.fixture
def plane() -> Iterator[PlaneHouse]:
    with FakePlane(per_minute=10_000) as server:
        yield PlaneHouse(server, server.project())
