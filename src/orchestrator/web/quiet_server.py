"""A uvicorn that sleeps until somebody asks for something.

Its own loop wakes ten times a second to see whether it should end and to renew the ``Date`` that every answer carries.
An idle service would spend more on that than on all of its own duties. Here the end is an event, and ``Date`` is told
when an answer begins.
"""

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class QuietServer(uvicorn.Server):
    """Runs in a thread; :meth:`end` is called from another one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Ask for the end, as a signal would; at any time, also before the server has started."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """Wait for the end."""
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:  # asked only now: an end that was asked for before has nobody to wake
            await self._ending.wait()


def dated(app: "ASGIApp") -> "ASGIApp":
    """The same application; its answers say when they were made (RFC 9110, 6.6.1)."""

    async def answering(scope: "Scope", receive: "Receive", send: "Send") -> None:
        async def sending(message: "Message") -> None:
            if message["type"] == "http.response.start":
                date = (b"date", formatdate(usegmt=True).encode())
                message = {**message, "headers": [*message.get("headers", ()), date]}
            await send(message)

        await app(scope, receive, sending)

    return answering
