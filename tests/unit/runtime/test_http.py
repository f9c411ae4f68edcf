"""HTTP against a real server: bounded in size and time, straight to the configured address."""

import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from orchestrator.runtime.http import HttpFailed, SystemHttp

Talk = Callable[[socket.socket, bytes], None]


@contextmanager
def server(talk: Talk) -> Iterator[str]:
    """A server on loopback that hands each connection, with the request's head, to ``talk``."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                part = self.request.recv(65536)
                if not part:
                    return
                head += part
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            while length and len(head.split(b"\r\n\r\n", 1)[1]) < int(length[1]):
                head += self.request.recv(65536)
            try:
                talk(self.request, head)
            except OSError:
                return  # the client has gone: that is what the test is about

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}"
        finally:
            running.shutdown()
            thread.join()


def answer(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def test_an_answer_has_status_headers_and_body() -> None:
    with server(lambda link, _: link.sendall(answer(b"body", "404 Not Found", "X-Thing: Yes\r\n"))) as url:
        got = SystemHttp().request("GET", url)
    assert (got.status, got.ok, got.headers["x-thing"], got.body) == (404, False, "Yes", b"body")


def test_a_body_and_headers_are_sent() -> None:
    heads: list[bytes] = []

    def talk(link: socket.socket, head: bytes) -> None:
        heads.append(head)
        link.sendall(answer(b""))

    with server(talk) as url:
        assert SystemHttp().request("POST", url + "/x?y=1", headers={"X-Token": "t"}, body=b"sent").ok
    head = heads[0].lower()
    assert heads[0].startswith(b"POST /x?y=1 ")
    assert b"x-token: t" in head
    assert b"connection: close" in head
    assert heads[0].endswith(b"sent")


def test_redirects_are_answers_and_not_followed() -> None:
    asked: list[bytes] = []

    def talk(link: socket.socket, head: bytes) -> None:
        asked.append(head)
        link.sendall(answer(b"", "302 Found", "Location: /elsewhere\r\n"))

    with server(talk) as url:
        assert SystemHttp().request("GET", url).status == 302
    assert len(asked) == 1


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with server(lambda link, _: link.sendall(answer(b"direct"))) as url:
        assert SystemHttp().request("GET", url).body == b"direct"


def test_an_endless_body_is_cut() -> None:
    def talk(link: socket.socket, _: bytes) -> None:
        link.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            link.sendall(b"x" * 65536)

    with server(talk) as url, pytest.raises(HttpFailed, match="more than 1000 bytes"):
        SystemHttp().request("GET", url, limit=1000)


def drip_headers(link: socket.socket) -> None:
    link.sendall(b"HTTP/1.1 200 OK\r\n")


def drip_body(link: socket.socket) -> None:
    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")


def say_nothing(link: socket.socket) -> None:
    return


@pytest.mark.parametrize("begin", [drip_headers, drip_body, say_nothing])
def test_a_server_that_drips_does_not_hold_us(begin: Callable[[socket.socket], None]) -> None:
    gone = threading.Event()

    def talk(link: socket.socket, _: bytes) -> None:
        begin(link)
        while not gone.wait(0.05):
            if begin is not say_nothing:
                link.sendall(b"a")

    with server(talk) as url:
        began = time.monotonic()
        with pytest.raises(HttpFailed, match="within 0.5 s|timed out"):
            SystemHttp().request("GET", url, timeout_s=0.5)
        assert time.monotonic() - began < 5
        gone.set()


def test_a_cut_answer_is_none() -> None:
    with (
        server(lambda link, _: link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")) as url,
        pytest.raises(HttpFailed),
    ):
        SystemHttp().request("GET", url)


def test_packed_answers_are_not_unpacked() -> None:
    heads: list[bytes] = []

    def talk(link: socket.socket, head: bytes) -> None:
        heads.append(head)
        link.sendall(answer(b"\x1f\x8bbomb", headers="Content-Encoding: gzip\r\n"))

    with server(talk) as url:
        assert SystemHttp().request("GET", url).body == b"\x1f\x8bbomb"
    assert b"accept-encoding: identity" in heads[0].lower()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "file:///etc/passwd", "no address", "http://", "http://[::1", ""], ids=repr
)
def test_what_cannot_be_asked_raises_one_error(url: str) -> None:
    with pytest.raises(HttpFailed):
        SystemHttp().request("GET", url, timeout_s=5)


def test_messages_keep_secrets_out() -> None:
    with pytest.raises(HttpFailed) as caught:
        SystemHttp().request("GET", "http://user:hunter2@127.0.0.1:1/path?token=hunter2", timeout_s=5)
    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1:1/path" in str(caught.value)
