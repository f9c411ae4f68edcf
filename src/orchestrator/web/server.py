"""One uvicorn in a thread of this process: started and stopped like any daemon, never more than one process.

What must hold: the port is bound before ``start`` returns, so that nobody is told an address that is not ours; ``stop``
ends within its budget, whatever clients keep open (background loops belong to the service, never to web workers).
"""

import socket
import threading
from typing import TYPE_CHECKING

from orchestrator.domain.errors import OutsideError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from orchestrator.web.quiet_server import QuietServer

GRACE_S = 2  # open requests have so long to end; then they are cancelled
JOIN_S = 5.0
KEEP_ALIVE_S = 5
BACKLOG = 128


class WebServer:
    """Carries one ASGI application."""

    def __init__(self, app: "ASGIApp", *, host: str, port: int) -> None:
        """``port`` 0 takes any free one; nothing is bound before ``start``."""
        self._app = app
        self._host = host
        self._port = port
        self._server: QuietServer | None = None
        self._thread: threading.Thread | None = None
        self.url = ""

    def start(self) -> str:
        """Bind, answer from now on, and return the address.

        :raises OutsideError: the address cannot be bound.
        """
        import uvicorn

        from orchestrator.web.quiet_server import QuietServer, dated

        listener = _listener(self._host, self._port)
        port = listener.getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{port}"
        config = uvicorn.Config(
            dated(self._app),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,  # the process's own log, hence its redactor
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = server = QuietServer(config)
        self._thread = threading.Thread(target=server.run, args=([listener],), name="web", daemon=True)
        self._thread.start()
        return self.url

    def stop(self) -> None:
        """Stop accepting, end what is open, and wait for the thread; not started is no error."""
        if self._thread is None or self._server is None:
            return
        self._server.end()
        self._thread.join(GRACE_S + JOIN_S)
        self._thread = None

    def __enter__(self) -> "WebServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's delay off only where it is: 40 ms an answer otherwise.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OutsideError(
            f"{host} port {port} cannot be listened on: {error.strerror}.",
            hint="Another service has it: stop that one, or set ORCH_PORT (0 takes any free port).",
        ) from error
    return listener
