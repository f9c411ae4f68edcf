"""What a command says of a decision that the service has taken."""

import socket

from orchestrator.cli.answers import answer_soon
from orchestrator.cli.owner import Owner
from orchestrator.cli.remote import RemoteDesk
from orchestrator.runtime.process import SystemProcesses


def test_a_service_that_ends_meanwhile_takes_no_decision_back() -> None:
    """It is stored: that its outcome is not known yet is no failure."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and never listened at
        owner = Owner(f"http://127.0.0.1:{taken.getsockname()[1]}", "token", "serve", SystemProcesses().own())
        assert answer_soon(RemoteDesk(owner), "SHOP-1", 1) is None
