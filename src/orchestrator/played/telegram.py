"""A Bot API on loopback: as strict as the real one about HTML and length, with a journal of calls and faults to order.

What it does is what the Bot API's reference says; where a fault is ordered, it fails the way real ones do.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "123456:a-canary-token-of-a-bot-0001"
CHAT = -1001234567890
LIMIT = 4096
TAGS = frozenset(
    [
        "b",
        "strong",
        "i",
        "em",
        "u",
        "ins",
        "s",
        "strike",
        "del",
        "span",
        "tg-spoiler",
        "a",
        "code",
        "pre",
        "blockquote",
        "tg-emoji",
    ]
)
_PIECE = re.compile(
    r"<(?P<close>/?)(?P<tag>[a-z-]*)(?P<rest>[^<>]*)>|&(?P<entity>#x?[0-9a-fA-F]+|[a-z]+);|(?P<bad>[<>&])"
)
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}

Reply = tuple[int, dict[str, Any]]
Fault = Callable[[BaseHTTPRequestHandler, Callable[[], Reply]], Reply | None]


class Refused(Exception):
    """The markup cannot be read."""


def visible(html: str) -> str:
    """The text that a person sees.

    :raises Refused: as the server refuses it.
    """
    open_tags: list[str] = []

    def piece(found: re.Match[str]) -> str:
        if found["bad"]:
            raise Refused(f"can't parse entities: unescaped {found['bad']}")
        if found["entity"]:
            name = found["entity"]
            if name.startswith("#"):
                return chr(int(name[2:], 16) if name[1] == "x" else int(name[1:]))
            if name not in _NAMED:
                raise Refused(f"can't parse entities: unknown entity {name}")
            return _NAMED[name]
        if found["tag"] not in TAGS:
            raise Refused(f"can't parse entities: unsupported start tag {found['tag']!r}")
        if not found["close"]:
            open_tags.append(found["tag"])
        elif not open_tags or open_tags.pop() != found["tag"]:
            raise Refused("can't parse entities: unexpected end tag")
        return ""

    text = _PIECE.sub(piece, html)
    if open_tags:
        raise Refused(f"can't parse entities: can't find end tag of {open_tags[-1]}")
    return text


@dataclass
class FakeTelegram:
    """One bot and its chats."""

    url: str = ""
    token: str = TOKEN
    chats: dict[Any, dict[str, Any]] = field(
        default_factory=lambda: {CHAT: {"id": CHAT, "title": "Deliveries"}}
    )
    faults: list[Fault] = field(default_factory=list)  # of the next calls of sendMessage, one each
    journal: list[tuple[str, int, dict[str, Any]]] = field(
        default_factory=list
    )  # method, status, what was asked
    shown: list[str] = field(default_factory=list)  # what people see in the chats, in order
    at: list[float] = field(default_factory=list)  # when each call of sendMessage came
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def environ(self) -> dict[str, str]:
        """The settings of a service that uses it."""
        return {
            "ORCH_TELEGRAM_TOKEN": self.token,
            "ORCH_TELEGRAM_CHAT": str(CHAT),
            "ORCH_TELEGRAM_URL": self.url,
        }

    def sends(self) -> list[dict[str, Any]]:
        """What was asked of sendMessage, taken or not."""
        return [asked for method, _, asked in self.journal if method == "sendMessage"]

    def answer(self, handler: BaseHTTPRequestHandler, method: str, asked: dict[str, Any]) -> Reply | None:
        """Do what is asked, or what is ordered instead; None where the connection was broken."""
        with self._lock:
            fault = self.faults.pop(0) if method == "sendMessage" and self.faults else None
            if method == "sendMessage":
                self.at.append(time.monotonic())

        def do() -> Reply:
            with self._lock:
                return self._done(method, asked)

        reply = fault(handler, do) if fault is not None else do()
        with self._lock:
            self.journal.append((method, reply[0] if reply else 0, asked))
        return reply

    def _done(self, method: str, asked: Mapping[str, Any]) -> Reply:
        if method == "getMe":
            return 200, {"ok": True, "result": {"id": 123456, "is_bot": True, "username": "deliveries_bot"}}
        chat = self.chats.get(asked.get("chat_id"))
        if chat is None:
            return refusal(400, "Bad Request: chat not found")
        if "moved_to" in chat:
            text = "Bad Request: group chat was upgraded to a supergroup chat"
            return refusal(400, text, migrate_to_chat_id=chat["moved_to"])
        if method == "getChat":
            return 200, {"ok": True, "result": chat}
        if method != "sendMessage":
            return refusal(404, "Not Found")
        try:
            text = visible(asked["text"]) if asked.get("parse_mode") == "HTML" else str(asked["text"])
        except Refused as error:
            return refusal(400, f"Bad Request: {error}")
        text.encode("utf-8")  # a half of a character would have been no JSON of theirs
        if not text.strip():
            return refusal(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > LIMIT:
            return refusal(400, "Bad Request: message is too long")
        self.shown.append(text)
        return 200, {"ok": True, "result": {"message_id": len(self.shown), "chat": chat, "date": 0}}


def refusal(status: int, description: str, **parameters: Any) -> Reply:
    """An error of the Bot API."""
    body: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
    return status, body | ({"parameters": parameters} if parameters else {})


def says(status: int, description: str, **parameters: Any) -> Fault:
    """Refuses."""
    return lambda handler, do: refusal(status, description, **parameters)


def fails_after(status: int) -> Fault:
    """Takes the message and answers with an error."""

    def fault(handler: BaseHTTPRequestHandler, do: Callable[[], Reply]) -> Reply:
        do()
        return status, {}

    return fault


def breaks_off(*, after: bool) -> Fault:
    """Closes the connection without an answer, before or after the message was taken."""

    def fault(handler: BaseHTTPRequestHandler, do: Callable[[], Reply]) -> None:
        if after:
            do()
        handler.close_connection = True

    return fault


@contextmanager
def fake_telegram() -> Iterator[FakeTelegram]:
    """A server that answers until the block is left."""
    fake = FakeTelegram()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", "0")))
            _, bot, method = self.path.split("/", 2)
            if bot != f"bot{fake.token}":
                reply: Reply | None = refusal(401, "Unauthorized")
            else:
                reply = fake.answer(self, method, json.loads(raw or b"{}"))
            if reply is None:
                return
            body = json.dumps(reply[1]).encode()
            self.send_response(reply[0])
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the journal tells."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
