"""A Plane that is small and true: its REST API and its webhooks, over HTTP on loopback.

It answers what the real server (Community Edition 1.3.1) was seen to answer, or what its source says, and no more;
where the captured answers and this one differ, this one is wrong (`tests/contracts/test_plane_conformance.py`).
"""

from orchestrator.played.common.faults import Call, Fault, How
from orchestrator.played.plane.hooks import Hook, Sent
from orchestrator.played.plane.server import FakePlane
from orchestrator.played.plane.world import Item, Project, User

__all__ = ["Call", "FakePlane", "Fault", "Hook", "How", "Item", "Project", "Sent", "User"]
