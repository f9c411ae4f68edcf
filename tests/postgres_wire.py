"""Stands between a program and PostgreSQL, on a socket of its own: loses answers, or pools connections as a transaction
pooler does."""

import itertools
import shutil
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from psycopg.conninfo import conninfo_to_dict

from tests.postgres_server import short_folder

SOCKET = ".s.PGSQL.5432"
SERVERS = 3  # connections that a pooler has behind it, for each in front
OUR_PID = 1_000_000  # what a pooler calls itself; no process has the number


class Wire:
    """A server at :attr:`url` that hands everything on to the real one."""

    def __init__(self, url: str, *, pooling: bool = False) -> None:
        self.used: set[int] = set()
        self._real = str(Path(str(conninfo_to_dict(url)["host"])) / SOCKET)
        self._folder = short_folder()
        self.url = url.partition("?")[0] + f"?host={self._folder}"
        self._serve = self._pool if pooling else self._pass_on
        self._holding, self._go, self._over = threading.Event(), threading.Event(), False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / SOCKET))
        self._listener.listen()
        self._start(self._accept)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._go.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            _end(each)
        for thread in self._threads:
            thread.join(20)
        shutil.rmtree(self._folder)

    def hold_commit(self) -> None:
        """Whoever sends the next COMMIT hears nothing more; the server hears of it when it is let go."""
        self._holding.set()

    def let_go(self) -> None:
        """Let the server hear the COMMIT that was held."""
        self._go.set()

    def _start(self, what: object, *args: object) -> None:
        thread = threading.Thread(target=what, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(self._guarded, client)

    def _guarded(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            self._serve(client)
        _end(client)

    def _to_server(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._real)
        self._sockets.append(server)
        return server

    def _pass_on(self, client: socket.socket) -> None:
        server = self._to_server()
        server.sendall(_startup(client))
        self._start(_pump, server, client)
        while True:
            kind, message = _message(client)
            if kind == b"Q" and message[5:].startswith(b"COMMIT") and self._holding.is_set():
                self._holding.clear()
                _end(client)
                self._go.wait(60)
                if self._over:
                    return
            server.sendall(message)

    def _pool(self, client: socket.socket) -> None:
        startup = _startup(client)
        greeted = [self._greeted(startup) for _ in range(SERVERS)]
        servers, greeting = [server for server, _ in greeted], greeted[0][1]
        client.sendall(b"".join(_renamed(message) for message in greeting))
        turn = itertools.cycle(range(SERVERS))
        while True:
            number = next(turn)
            ready, (kind, message) = b"", _message(client)
            if _has_hung_up(servers[number]):  # a pooler goes to whoever is the server now
                servers[number], _ = self._greeted(startup)
            server = servers[number]
            while ready[-1:] != b"I":  # to the end of the transaction
                server.sendall(message)
                if kind in (b"Q", b"S"):
                    self.used.add(number)
                    answer = _until_ready(server)
                    ready = answer[-1]
                    client.sendall(b"".join(answer))
                if ready[-1:] != b"I":
                    kind, message = _message(client)

    def _greeted(self, startup: bytes) -> tuple[socket.socket, list[bytes]]:
        server = self._to_server()
        server.sendall(startup)
        return server, _until_ready(server)


def _renamed(message: bytes) -> bytes:
    """The greeting says with which process one speaks; a pooler gives its own number."""
    return message[:5] + struct.pack("!I", OUR_PID) + message[9:] if message[:1] == b"K" else message


def _has_hung_up(server: socket.socket) -> bool:
    """Whether it has gone, or said something that nobody asked for, which is a goodbye."""
    try:
        server.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True


def _until_ready(server: socket.socket) -> list[bytes]:
    """Everything that a server says until it waits for the next question."""
    found = []
    while True:
        kind, message = _message(server)
        found.append(message)
        if kind == b"Z":
            return found


def _startup(client: socket.socket) -> bytes:
    head = _exactly(client, 4)
    return head + _exactly(client, struct.unpack("!I", head)[0] - 4)


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    return head[:1], head + _exactly(source, struct.unpack("!I", head[1:])[0] - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = source.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
    _end(target)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
