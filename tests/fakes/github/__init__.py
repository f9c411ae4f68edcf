"""A GitHub that is small and true: HTTP on loopback, as an Enterprise Server has it, over real bare repositories.

It answers what the documentation says and what people have reported, and no more.
"""

from tests.fakes.common.faults import Call, Fault, How
from tests.fakes.common.hooks import Delivery, Hook
from tests.fakes.github.repository import Pull, Repository, Rules
from tests.fakes.github.server import FakeGitHub

__all__ = ["Call", "Delivery", "FakeGitHub", "Fault", "Hook", "How", "Pull", "Repository", "Rules"]
