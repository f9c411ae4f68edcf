"""Alerts through the real library to a service on loopback: what arrives, what fails, and that no address shows."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import Secret, load_settings
from orchestrator.db import alerts
from orchestrator.domain.errors import ConfigError, OutsideError
from orchestrator.notifications.any_service import AppriseNotifier
from orchestrator.observability.redactor import Redactor
from orchestrator.wiring import open_app

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # the library's

KEY = "a-canary-key-of-the-service"
SECRET = "a-secret-of-the-installation"


class Service:
    """Takes what is posted, or refuses it."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.status = 200
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if service.status == 200:
                    service.taken.append(json.loads(body))
                self.send_response(service.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"json://127.0.0.1:{self.server.server_port}/{KEY}"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def opened(*addresses: str) -> AppriseNotifier:
    return AppriseNotifier([Secret(address) for address in addresses], Redactor([SECRET]))


def send(to: AppriseNotifier) -> None:
    url = "https://orch.example.org/board/SHOP-7"
    to.send(f"SHOP-7 review: <b>look</b> {SECRET}", work_item="SHOP-7", url=url, message_id="m-1")


def test_it_arrives_as_plain_text_with_the_address_of_its_page(service: Service) -> None:
    send(opened(service.address))
    [taken] = service.taken
    assert taken["message"].startswith(
        "SHOP-7 (https://orch.example.org/board/SHOP-7) review: <b>look</b> ***\n#"
    )


def test_what_is_not_taken_is_told_and_no_address_shows(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    to = opened(service.address)
    service.status = 500
    with pytest.raises(OutsideError) as told:
        send(to)
    assert KEY not in str(told.value) + repr(told.value.__cause__) + caplog.text
    service.status = 200
    send(to)
    assert len(service.taken) == 1


def test_an_address_of_no_service_is_refused(service: Service) -> None:
    with pytest.raises(ConfigError, match="Address 2 in ORCH_APPRISE_URLS") as told:
        opened(service.address, f"nosuchservice://{KEY}")
    assert KEY not in str(told.value)


def test_alerts_of_an_installation_reach_it(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "alerts"
    file.write_text(service.address + "\n")
    settings = load_settings({"ORCH_HOME": str(tmp_path / "home"), "ORCH_APPRISE_URLS_FILE": str(file)})
    with open_app(settings, {}, role="serve") as app:
        app.announce_channels()
        with app.database.write() as tx:
            alerts.call(tx, "Look at it.", "a-test", 1)
        assert app.apprise_outbox is not None
        assert app.apprise_outbox.run_once()["sent"] == 1
    assert "Look at it." in service.taken[0]["message"]
