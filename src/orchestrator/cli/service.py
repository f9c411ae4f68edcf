"""The service inside this process: daemons, HTTP, and the file that tells commands where it answers.

What must hold: the address is bound before any work starts, so that a taken port stops nothing half-way; at the end
HTTP goes first, then the daemons; agents keep running.
"""

import ipaddress
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fastapi import FastAPI

from orchestrator.cli.owner import Owner, announced
from orchestrator.config import Secret
from orchestrator.dashboard.pages import OPEN_PATHS, add_board
from orchestrator.db.repositories import Repository
from orchestrator.main import Service
from orchestrator.web.api import create_api
from orchestrator.web.guard import own_hosts
from orchestrator.web.server import WebServer
from orchestrator.wiring import App

LOCAL_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Running:
    """A service at work."""

    url: str
    stop: threading.Event  # set by SIGTERM or Ctrl-C


@contextmanager
def running(app: App, *, role: str, port: int | None = None) -> Iterator[Running]:
    """Run the service for the length of the block; SIGTERM and SIGINT set ``stop`` from now on.

    :raises OutsideError: the address cannot be bound.
    """
    service = Service(app)
    local = Secret(app.entropy.token(LOCAL_TOKEN_BYTES))
    web = WebServer(
        _http(app, service, local), host=app.settings.host, port=app.settings.port if port is None else port
    )
    with ExitStack() as stack:
        stop = _stop_on_signals()
        stack.callback(service.stop)
        stack.callback(web.stop)
        url = web.start()
        service.start()
        owner = Owner(_reachable(app.settings.host, url), local.reveal(), role, app.processes.own())
        stack.enter_context(announced(app.settings.home, owner))
        yield Running(url, stop)


def _http(app: App, service: Service, local: Secret) -> FastAPI:
    """API and board behind one door."""
    settings = app.settings

    def register(source: Path, name: str, prefix: str) -> Repository:
        return app.register_repository(source, name=name, prefix=prefix)

    api = create_api(
        app.operations,
        token=settings.token.reveal() or None,
        ready=service.ready,
        telemetry=app.telemetry,
        hosts=own_hosts(settings.host, settings.base_url) if settings.loopback else None,
        local_token=local.reveal(),
        register=register,
        open_paths=OPEN_PATHS,
    )
    add_board(api, app.operations, clock=app.clock)
    return api


def _reachable(host: str, url: str) -> str:
    """The address for commands on this machine: a wildcard is listened on, not connected to."""
    try:
        wildcard = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return url
    if not wildcard:
        return url
    return f"http://{'[::1]' if ':' in host else '127.0.0.1'}:{url.rsplit(':', 1)[1]}"


def _stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on, up to the end of the process: a second signal while it stops
    must not end it half-way."""
    stop = threading.Event()

    def leave(signum: int, frame: FrameType | None) -> None:
        stop.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, leave)
    return stop
