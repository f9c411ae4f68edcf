"""The addresses for webhooks over a test's database, on a real server."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.fixtures_desk import Desk
from tests.fixtures_webhooks import Letters
from tests.senders import SECRET

TOKEN = "a-token-of-more-than-sixteen"

ServeWebhooks = Callable[..., str]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=60) as opened:
        yield opened


@pytest.fixture
def serve_webhooks(letters: Letters, desk: Desk) -> Iterator[ServeWebhooks]:
    """Starts the service with its webhooks and gives its address; what else it answers asks for a token."""
    # Here and not above: every test run loads this file, and few want the web.
    from orchestrator.config import Secret
    from orchestrator.web.api import create_api
    from orchestrator.web.guard import LOOPBACK_NAMES
    from orchestrator.web.server import WebServer
    from orchestrator.webhooks.intake import intakes

    servers: list[WebServer] = []

    def start(secrets: tuple[str, ...] = (SECRET,), **more: Any) -> str:
        known = {handler.source: tuple(map(Secret, secrets)) for handler in letters.handlers}
        api = create_api(
            desk.operations,
            token=TOKEN,
            ready=lambda: True,
            telemetry=letters.telemetry,
            hosts=LOOPBACK_NAMES,
            signed=intakes(
                letters.receiver, letters.handlers, secrets=known, telemetry=letters.telemetry, **more
            ),
        )
        servers.append(WebServer(api, host="127.0.0.1", port=0))
        return servers[-1].start()

    yield start
    for server in servers:
        server.stop()
