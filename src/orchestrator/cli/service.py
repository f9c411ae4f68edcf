"""The service inside this process: daemons, HTTP, and the file that tells commands where it answers.

What must hold: the address is bound before any work starts, so that a taken port stops nothing half-way; at the end
HTTP goes first, then the daemons; agents keep running.
"""

import ipaddress
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType

from orchestrator.cli.owner import Owner, announced
from orchestrator.config import Secret
from orchestrator.domain.errors import OrchestratorError
from orchestrator.main import Service
from orchestrator.wiring import App

LOCAL_TOKEN_BYTES = 32
ENDS = frozenset({signal.SIGTERM, signal.SIGINT})


@dataclass(frozen=True, slots=True)
class Running:
    """A service at work."""

    url: str  # empty where it answers nobody
    stop: threading.Event  # set by SIGTERM or Ctrl-C, and where the process must not go on
    why: list[OrchestratorError]  # the reason, then


@contextmanager
def running(app: App, *, role: str, port: int | None = None) -> Iterator[Running]:
    """Run the service for the length of the block; SIGTERM and SIGINT set ``stop`` from now on.

    :raises OutsideError: the address cannot be bound.
    """
    from orchestrator.cli.http import web_server  # takes long to load, and only who does the work serves

    service = Service(app)
    local = Secret(app.entropy.token(LOCAL_TOKEN_BYTES))
    web = web_server(app, service, local, port=app.settings.port if port is None else port)
    with ExitStack() as stack:
        stop, why = _until_told(app)
        stack.callback(service.stop)
        stack.callback(web.stop)
        url = web.start()
        service.start()
        owner = Owner(_reachable(app.settings.host, url), local.reveal(), role, app.processes.own())
        app.heartbeat.beside(stack.enter_context(announced(app.settings.home, owner, app.processes)))
        yield Running(url, stop, why)


@contextmanager
def working(app: App) -> Iterator[Running]:
    """Run a worker for the length of the block, as :func:`running` does a service; it answers nobody."""
    service = Service(app)
    with ExitStack() as stack:
        stop, why = _until_told(app)
        stack.callback(service.stop)
        service.start()
        yield Running("", stop, why)


def raise_why(service: Running) -> None:
    """Say so where it has ended because it must not go on.

    :raises OrchestratorError: it must not.
    """
    if service.why:
        raise service.why[0]


def _until_told(app: App) -> tuple[threading.Event, list[OrchestratorError]]:
    """What ends the process in order, and why, where nobody has asked for it."""
    stop = _stop_on_signals()
    why: list[OrchestratorError] = []

    def end(reason: OrchestratorError) -> None:
        why.append(reason)
        stop.set()

    app.wakeups.on_end(end)
    return stop, why


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
    must not end it half-way.

    Python calls its handlers in the main thread alone, which may be blocked for good just then, and an event's
    lock must not be taken inside one. So the number goes down a pipe at once, and a thread that does nothing else
    sets the event.
    """
    stop = threading.Event()
    heard, told = os.pipe()
    os.set_blocking(told, False)

    def listen() -> None:
        while (number := os.read(heard, 1)) and number[0] not in ENDS:
            continue
        stop.set()

    for one in ENDS:
        signal.signal(one, _go_on)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=listen, name="orch-signals", daemon=True).start()
    return stop


def _go_on(signum: int, frame: FrameType | None) -> None:
    """In place of the default, which would end the process at once."""
