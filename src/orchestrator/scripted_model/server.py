"""The server: routes, faults, and the life of a server in a thread.

The base URL that a program gets is ``http://127.0.0.1:PORT/SCENARIO/RUN`` (with ``/v1`` for OpenAI's
protocols): SCENARIO is a file's name, or ``auto`` for the first whose ``when`` fits; RUN is any word, so that
runs do not share their faults. It binds loopback only. A fault lasts until its time is over, the program goes
away, or the server ends.
"""

import asyncio
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from orchestrator.scripted_model.answer import CHARS_PER_TOKEN, answer
from orchestrator.scripted_model.asking import asked
from orchestrator.scripted_model.protocols import PROTOCOLS, Event, WireProtocol
from orchestrator.scripted_model.scenario import AUTO, SHIPPED, Stage, Step, load

FOR_EVER = 3600.0  # seconds of a stall that states none
PING_SECONDS = 0.5
EVENTS_BEFORE_FAULT = 3  # a stream that breaks has said a little
STOP_SECONDS = 5.0
MAX_SEEN = 10_000
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, for whoever wants to know what a program asked."""

    scenario: str
    run: str
    protocol: str
    turns: int
    step: Step
    opening: str


class ScriptedModel:
    """A running server: ``with ScriptedModel() as model: … model.url() …``."""

    def __init__(
        self, scenarios: Path | Sequence[Path] | None = None, *, port: int = 0, log: Path | None = None
    ) -> None:
        """Read the scenarios of a folder, of several in their order, or those that are shipped.

        :raises ConfigError: a scenario cannot be used.
        """
        folders = (
            [SHIPPED] if scenarios is None else [scenarios] if isinstance(scenarios, Path) else scenarios
        )
        self._stage, self._wanted_port, self._log = Stage(load(folders)), port, log
        self.seen: deque[Seen] = deque(maxlen=MAX_SEEN)
        self.port = 0

    def __enter__(self) -> Self:
        """Listen and serve in a thread.

        :raises OSError: the port is taken.
        """
        self._socket = socket.create_server((HOST, self._wanted_port))
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(
            self.app(),
            log_level="critical",
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="scripted-model", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving; stalled answers are cut off."""
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._socket.close()

    def url(self, scenario: str = AUTO, run: str = "run") -> str:
        """The base URL for a program."""
        return f"http://{HOST}:{self.port}/{scenario}/{run}"

    def app(self) -> Starlette:
        """The ASGI application."""
        paths = ("/messages", "/responses", "/chat/completions")
        routes = [
            Route("/{scenario}/{run}" + prefix + path, self._answer, methods=["POST"])
            for prefix, path in product(("", "/v1"), paths)
        ]
        every = ["GET", "HEAD", "POST"]
        return Starlette(routes=[*routes, Route("/{rest:path}", self._other, methods=every)])

    async def _answer(self, request: Request) -> Response:
        name, run = request.path_params["scenario"], request.path_params["run"]
        kind = request.url.path.rsplit("/", 1)[-1]
        try:
            body = await request.json()
        except ValueError:
            return JSONResponse(PROTOCOLS[kind].problem(400, None, "the body is no JSON"), status_code=400)
        wanted = asked(body if isinstance(body, dict) else {})
        scenario, step = self._stage.next_step(name, run, wanted)
        self._note(Seen(scenario, run, kind, wanted.turns, step, wanted.opening))
        protocol = PROTOCOLS[kind]
        delay = step.get("delay")
        await asyncio.sleep(delay if isinstance(delay, int | float) else 0)
        if step.get("stall") == "headers":
            return SilentResponse(_seconds(step))
        if "error" in step or "overflow" in step:
            return _refusal(protocol, step)
        said = answer(wanted, step)
        breaks = not {"stall", "reset", "midstream"}.isdisjoint(step)
        if not wanted.stream and not breaks:
            return JSONResponse(protocol.whole(said))
        return StreamedAnswer(protocol, protocol.events(said), step if breaks else None)

    async def _other(self, request: Request) -> Response:
        last = request.url.path.rsplit("/", 1)[-1]
        if last == "count_tokens":
            return JSONResponse({"input_tokens": len(await request.body()) // CHARS_PER_TOKEN + 1})
        if last == "models":
            model = {"id": "scripted-model", "object": "model"}
            return JSONResponse({"object": "list", "data": [model]})
        return JSONResponse({}, status_code=200 if request.method == "HEAD" else 404)

    def _note(self, seen: Seen) -> None:
        self.seen.append(seen)
        if self._log is not None:
            entry = {
                "scenario": seen.scenario,
                "run": seen.run,
                "protocol": seen.protocol,
                "turns": seen.turns,
            }
            with self._log.open("a", encoding="utf-8") as sink:
                sink.write(json.dumps({**entry, "step": seen.step}, ensure_ascii=False) + "\n")


class SilentResponse(Response):
    """Not even headers, for a while; then nothing."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait, and end without an answer, which breaks the connection."""
        await _gone(receive, self._seconds)


class StreamedAnswer(Response):
    """Server-sent events, whole or broken on purpose."""

    def __init__(self, protocol: WireProtocol, events: Iterator[Event], fault: Step | None) -> None:
        super().__init__()
        self._protocol, self._events, self._fault = protocol, events, fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; where there is a fault, after the first few of them."""
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        named = False
        for number, (name, data) in enumerate(self._events):
            named = name is not None
            await _send(send, _event(number, name, data))
            if self._fault is not None and number + 1 == EVENTS_BEFORE_FAULT:
                break
        if self._fault is not None and not await self._break(self._fault, named, receive, send):
            return  # without the end of the body: the connection breaks
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _break(self, fault: Step, named: bool, receive: Receive, send: Send) -> bool:
        """Play the fault; True where the stream then ends in order."""
        if "midstream" in fault:
            problem = self._protocol.problem(529, str(fault["midstream"]), "Overloaded")
            await _send(send, _event(EVENTS_BEFORE_FAULT, "error" if named else None, problem))
            return True
        if "stall" not in fault:
            return False
        pings = fault["stall"] == "ping"
        ping = b'event: ping\ndata: {"type": "ping"}\n\n' if named else b": ping\n\n"
        left = _seconds(fault)
        while left > 0 and not await _gone(receive, min(left, PING_SECONDS)):
            left -= PING_SECONDS
            if pings:
                await _send(send, ping)
        return False


def _refusal(protocol: WireProtocol, step: Step) -> Response:
    status, headers = 400, {}
    kind, message = protocol.overflow
    body = protocol.problem(status, kind, message)
    if "error" in step:
        status = int(str(step["error"]))
        stated = step.get("type")
        message = str(step.get("message") or f"scripted error {status}")
        body = protocol.problem(status, str(stated) if stated else None, message)
    if "retry_after" in step:
        headers["retry-after"] = str(step["retry_after"])
    return JSONResponse(body, status_code=status, headers=headers)


def _event(number: int, name: str | None, data: object) -> bytes:
    if name is not None and isinstance(data, dict):
        counted = {"sequence_number": number} if name.startswith("response.") else {}
        data = {"type": name, **data, **counted}
    text = data if isinstance(data, str) else json.dumps(data)
    return ((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode()


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Receive, seconds: float) -> bool:
    """True when the program went away within this time."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True


def _seconds(step: Step) -> float:
    seconds = step.get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else FOR_EVER
