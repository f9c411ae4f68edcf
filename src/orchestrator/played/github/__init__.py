"""A GitHub that is small and true: HTTP on loopback, as an Enterprise Server has it, over real bare repositories.

It answers what the documentation says and what people have reported, and no more.
"""

from orchestrator.played.common.faults import Call, Fault, How
from orchestrator.played.common.hooks import Delivery, Hook
from orchestrator.played.github.repository import Pull, Repository, Rules
from orchestrator.played.github.server import FakeGitHub

__all__ = ["Call", "Delivery", "FakeGitHub", "Fault", "Hook", "How", "Pull", "Repository", "Rules"]
