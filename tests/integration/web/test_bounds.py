"""How much of a request is read, and for how long (raw sockets, so that headers can lie)."""

import json
import socket
import threading
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from orchestrator.runtime.clock import SystemClock
from orchestrator.web import guard
from orchestrator.web.api import create_api
from orchestrator.web.request_body import BODY_LIMIT
from orchestrator.web.server import WebServer
from tests.fixtures_desk import Desk, Serve
from tests.waiting import wait_until

CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
HEAD = "POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def answer_of(connection: socket.socket) -> str:
    """Everything until the other side closes."""
    got = b""
    try:
        while part := connection.recv(65536):
            got += part
    except ConnectionResetError:
        pass
    return got.decode("utf-8", "replace")


def rss() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


class TestBodySize:
    def test_chunks_beyond_the_limit_are_cut_off(self, serve: Serve) -> None:
        """A body without a length that would go on for a gigabyte."""
        url = serve()
        before, sent = rss(), 0
        with connect(url) as connection:
            connection.sendall((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
            try:
                while sent < 1024**3:
                    connection.sendall(CHUNK)
                    sent += len(CHUNK)
            except (BrokenPipeError, ConnectionResetError):
                pass
            connection.close()
        assert sent < 64 * 1024 * 1024
        assert rss() - before < 50 * 1024 * 1024
        assert httpx.get(url + "/healthz", trust_env=False).status_code == 200

    def test_a_declared_length_beyond_the_limit_is_413_unread(self, serve: Serve) -> None:
        with connect(serve()) as connection:
            connection.sendall((HEAD + f"Content-Length: {BODY_LIMIT + 1}\r\n\r\n").encode())
            answer = answer_of(connection)
        assert answer.startswith("HTTP/1.1 413")
        assert "connection: close" in answer.lower()

    def test_chunks_just_beyond_the_limit_are_413(self, serve: Serve) -> None:
        with connect(serve()) as connection:
            connection.sendall((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
            for _ in range(BODY_LIMIT // 0x10000):
                connection.sendall(CHUNK)
            connection.sendall(b"1\r\nx\r\n0\r\n\r\n")
            assert answer_of(connection).startswith("HTTP/1.1 413")

    def test_a_body_of_exactly_the_limit_is_read(self, serve: Serve) -> None:
        filler = json.dumps({"repo": "shop", "title": "x"}).encode()
        body = filler + b" " * (BODY_LIMIT - len(filler))
        headers = {"content-type": "application/json"}
        answer = httpx.post(serve() + "/tasks", content=body, headers=headers, trust_env=False)
        assert answer.status_code == 201

    def test_a_large_ticket_is_filed(self, serve: Serve, desk: Desk) -> None:
        answer = httpx.post(
            serve() + "/tasks", json={"repo": "shop", "title": "x", "body": "ж" * 200_000}, trust_env=False
        )
        assert answer.status_code == 201
        assert len(desk.operations.task("SHOP-1").body) == 200_000

    def test_a_packed_body_is_not_unpacked(self, serve: Serve) -> None:
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        answer = httpx.post(serve() + "/tasks", content=b"\x1f\x8b", headers=headers, trust_env=False)
        assert answer.status_code == 415

    def test_a_lying_length_changes_nothing(self, serve: Serve, desk: Desk) -> None:
        with connect(serve()) as connection:
            body = json.dumps({"repo": "shop", "title": "honest"}).encode()
            connection.sendall(
                (HEAD + f"Content-Length: {len(body)}\r\n\r\n").encode()
                + body
                + b"more than was said\r\n\r\n"
            )
            answer = answer_of(connection)
        assert answer.startswith("HTTP/1.1 201")
        assert [task.title for task in desk.operations.tasks()] == ["honest"]


class TestSlowness:
    def test_a_slow_body_is_given_up(self, desk: Desk) -> None:
        api = create_api(desk.operations, token=None, ready=lambda: True)
        slow = guard.Guard(api, guard.Door(), timeout_s=0.3)
        with WebServer(slow, host="127.0.0.1", port=0) as server, connect(server.url) as connection:
            connection.sendall((HEAD + "Content-Length: 100\r\n\r\n{").encode())
            assert answer_of(connection).startswith("HTTP/1.1 408")


class TestStopping:
    def test_open_connections_do_not_hold_it_up(self, desk: Desk) -> None:
        """One that was kept, one in the middle of its headers, one in the middle of its body."""
        api = create_api(desk.operations, token=None, ready=lambda: True)
        server = WebServer(api, host="127.0.0.1", port=0)
        url = server.start()
        clock = SystemClock()
        with connect(url) as kept, connect(url) as heading, connect(url) as sending:
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(65536).startswith(b"HTTP/1.1 200")
            heading.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
            sending.sendall((HEAD + "Content-Length: 100\r\n\r\n{").encode())
            began = clock.boottime()
            server.stop()
            assert clock.boottime() - began < 5.0
        wait_until(lambda: not [t for t in threading.enumerate() if t.name == "web"])

    def test_it_can_be_stopped_twice_and_never_started(self, desk: Desk) -> None:
        server = WebServer(
            create_api(desk.operations, token=None, ready=lambda: True), host="127.0.0.1", port=0
        )
        server.stop()
        server.start()
        server.stop()
        server.stop()


class TestQuietServer:
    def test_answers_say_when_they_were_made(self, serve: Serve) -> None:
        answer = httpx.get(serve() + "/healthz", trust_env=False)
        assert len(answer.headers.get_list("date")) == 1
        made = parsedate_to_datetime(answer.headers["date"])
        assert abs((made - SystemClock().utc()).total_seconds()) < 60

    def test_an_end_that_comes_before_the_beginning_is_one(self) -> None:
        async def app(*_: object) -> None:
            raise AssertionError("nobody asks")

        server = WebServer(app, host="127.0.0.1", port=0)
        server.start()
        server.stop()  # its thread may not have come to its loop yet
        assert not [each for each in threading.enumerate() if each.name == "web"]
