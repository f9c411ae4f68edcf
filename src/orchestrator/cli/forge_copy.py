"""Our copy of what a forge elsewhere has, brought up to date before a command reads it."""

import os

from orchestrator.cli.checkout import Registered
from orchestrator.config.environment import load_settings
from orchestrator.forges.git_access import GitAccess
from orchestrator.forges.mirror import Mirror
from orchestrator.forges.servers import server_of
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git


def refresh(git: Git, at: Registered) -> None:
    """Look at the forge, where it is a server whose token this command has; else what the service saw last has to do.

    :raises AuthorityUnreachable: the server cannot be read.
    :raises ConfigError: the settings cannot be used.
    """
    if not at.elsewhere:
        return
    server = server_of(load_settings(os.environ), at.address)
    if server is not None and at.location.is_dir():
        access = GitAccess(at.address, server.token)
        Mirror(git, at.location, access, clock=SystemClock(), entropy=SystemEntropy()).look()
