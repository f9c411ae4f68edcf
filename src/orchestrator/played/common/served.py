"""A server on loopback that answers whatever its subclass says, fails as a test has ordered, and writes it all down."""

import base64
import json
import re
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from orchestrator.played.common.faults import Call, Fault, How, Journal

HOLD_S = 60.0  # a request that a test holds and forgets


@dataclass
class Answer:
    """What is sent back; a body of `str` is sent as text."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One request as it came; header names in small letters."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None


class Served(ABC):
    """One server. A subclass says what is answered, and how its errors look."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.is_away = False
        self._listen("127.0.0.1", 0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.let_go()
        self._shut()

    @contextmanager
    def away(self) -> Iterator[None]:
        """For so long the server is down: connections are refused, and those that are open are cut."""
        host, port = self._http.server_address[:2]
        self.is_away = True
        self._shut()
        with closing(socket.socket()) as kept:  # so that nobody else gets its port
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind((host, port))
            yield
            self.is_away = False
            self._listen(str(host), int(port))
            self._thread.start()

    def _listen(self, host: str, port: int) -> None:
        self._http = _Server((host, port), _Handler)
        self._http.hub = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    def _shut(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @abstractmethod
    def answer(self, asked: Asked) -> Answer:
        """What is said to one request."""

    def now(self) -> datetime:
        """The server's clock, as its answers tell it."""
        return datetime.now(UTC)

    @abstractmethod
    def error(self, status: int) -> Any:
        """The body of a failure that has no reason of its own."""

    def fail(self, method: str, pattern: str, how: How, **more: Any) -> Fault:
        fault = Fault(method, re.compile(pattern), how, **more)
        self.journal.faults.append(fault)
        return fault

    def calls(self, method: str, pattern: str) -> list[Call]:
        """What was sent, by method and by the path's end."""
        found = re.compile(pattern)
        return [
            call for call in self.journal.calls if call.method == method and found.search(call.path)
        ]  # fmt: skip


def secret_of(headers: dict[str, str]) -> str:
    """The token that a request shows, however it does; empty where it shows none."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return value
    user, _, password = base64.b64decode(value).decode().partition(":")
    return password if password not in ("", "x-oauth-basic") else user


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: Served


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """The journal is the log."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(self.server.hub.now(), usegmt=True)

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

    def _serve(self) -> None:
        hub, parts = self.server.hub, urlsplit(self.path)
        if hub.is_away:
            self._cut()
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, parts.path, parts.query, headers, self._body(headers))
        fault = hub.journal.fault_of(self.command, parts.path)
        how = fault.how if fault is not None else None
        if fault is not None and how is How.HELD:
            fault.go_on.wait(HOLD_S)
        if fault is not None and how is How.LATE:
            self._cut()
            fault.go_on.wait(fault.seconds)
        if fault is not None and how is How.BEFORE:
            told = Answer(fault.status, hub.error(fault.status), fault.headers)
        else:
            told = hub.answer(asked)
        if fault is not None and how is How.AFTER:
            told = Answer(fault.status, hub.error(fault.status), fault.headers)
        if how is How.GARBAGE:
            told = Answer(told.status, "<html>proxy</html>")
        if fault is not None and how is How.HELD_AFTER:
            fault.go_on.wait(HOLD_S)
        hub.journal.add(
            Call(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query)),
                asked.json(),
                0 if how in (How.LOST, How.LATE) else told.status,
                told.body if not isinstance(told.body, bytes) else None,
                headers,
            )
        )
        if fault is not None:
            fault.landed.set()
        if how is How.LOST:
            self._cut()
        if how not in (How.LOST, How.LATE):
            self._send(told)

    def _cut(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # who asked was gone first

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, told: Answer) -> None:
        content, kind = b"", ""
        if isinstance(told.body, bytes):
            content = told.body
        elif isinstance(told.body, str):
            content, kind = told.body.encode(), "text/plain; charset=utf-8"
        elif told.body is not None:
            content, kind = json.dumps(told.body).encode(), "application/json;charset=utf-8"
        try:
            self.send_response(told.status)
            for name, value in {**({"Content-Type": kind} if kind else {}), **told.headers}.items():
                self.send_header(name, value)
            if told.status not in (204, 304):
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # who asked has gone away: it says nothing about the effect
