"""The service with its addresses as a process of its own, which ends itself by SIGKILL at a waypoint: argv = name."""

import os
import signal
import sys
import threading

from orchestrator.cli.service import running
from orchestrator.config import load_settings
from orchestrator.wiring import Outside, open_app


class KillAt:
    """Dies when the waypoint is reached."""

    def reach(self, name: str, **data: object) -> None:
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGKILL)


environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
settings = load_settings({name: value for name, value in environ.items() if name.startswith("ORCH_")})
outside = Outside(environ, waypoints=KillAt())
with open_app(settings, environ, role="serve", outside=outside) as app, running(app, role="serve"):
    threading.Event().wait(600)
