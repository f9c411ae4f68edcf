"""A Gitea that is small and true: HTTP on loopback over real bare repositories.

It answers what the real server was seen to answer, or what its source says, and no more; where the captured answers
and this one differ, this one is wrong (`tests/contracts/test_gitea_conformance.py`).
"""

from orchestrator.played.common.faults import Call, Fault, How
from orchestrator.played.gitea.repository import Pull, Repository, Style
from orchestrator.played.gitea.server import FakeGitea

__all__ = ["Call", "FakeGitea", "Fault", "How", "Pull", "Repository", "Style"]
