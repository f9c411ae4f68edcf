"""The service as a process of its own, which ends itself by SIGKILL at a waypoint: argv = home, name, count, role."""

import os
import signal
import sys
import threading
from pathlib import Path

from orchestrator.config.environment import load_settings
from orchestrator.config.settings import Settings
from orchestrator.main import Service
from orchestrator.wiring import Outside, open_app


class KillAt:
    """Dies when the waypoint is reached for the n-th time."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._left = name, count

    def reach(self, name: str, **data: object) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    home, point, count, role = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    settings: Settings = load_settings({n: v for n, v in environ.items() if n.startswith("ORCH_")})
    outside = Outside(environ, waypoints=KillAt(point, count))
    (home / "service.pid").write_text(str(os.getpid()))
    with open_app(settings, environ, role=role, outside=outside) as app, Service(app):
        threading.Event().wait(600)


main()
