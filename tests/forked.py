"""Processes of ours for tests, forked by a server that has imported everything (``fork_server.py``).

A delivery starts a supervisor for each agent and a runner for each deploy; most of what they cost is the import of the
same modules. Which is why pipelines in a test's own process have them forked. The real start is tested where it is the
subject: of runs and deploys (``tests/integration/agents``, ``tests/integration/deploy``), and by everything that starts
`orch`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.runtime.process import (
    ProcessIdentity,
    SystemProcesses,
    machine_boot_id,
    pid_namespace,
    start_ticks,
)
from tests.fork_server import PROGRAMS
from tests.waiting import PATIENCE_S, wait_until

SERVER = Path(__file__).with_name("fork_server.py")
ROOM = 16 * 1024  # bytes for an environment, and for a command line


class ForkServer:
    """Started when it is first needed; it ends with the process that it serves."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._lock = threading.Lock()
        self._link: socket.socket | None = None

    def make(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path) -> int:
        """A new process; its pid."""
        request = {"argv": list(argv), "cwd": str(cwd), "env": dict(env), "output": str(output)}
        return int(self._ask(request))

    def ended(self, pid: int) -> int | None:
        """How one has ended: its exit code, negative for a signal; None while it runs."""
        code: int | None = self._ask({"ended": pid})
        return code

    def _ask(self, request: Mapping[str, object]) -> Any:
        with self._lock:
            link = self._link = self._link or _started(self._modules)
            link.sendall(json.dumps(request).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                more = link.recv(4096)
                assert more, "the server of forks has ended"
                answer += more
            return json.loads(answer)


def _started(modules: Sequence[str]) -> socket.socket:
    ours, theirs = socket.socketpair()
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(sys.path)}
    with theirs:
        child = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), str(theirs.fileno()), "x" * ROOM, *modules],
            env={**env, "ROOM": "x" * ROOM},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        child.returncode = 0  # it ends when we do, which Popen would take for a mistake
    return ours


SMALL = ForkServer(PROGRAMS)  # what is forked often is forked from little
SERVICE = ForkServer(("orchestrator.main", "orchestrator.wiring", "orchestrator.config.environment"))


class ForkedProcesses(SystemProcesses):
    """The real thing, but that supervisors and runners are forked."""

    def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path
    ) -> ProcessIdentity:
        if list(argv[:3]) != [sys.executable, "-P", "-m"] or argv[3] not in PROGRAMS:
            return super().spawn(argv, cwd=cwd, env=env, output=output)
        pid = SMALL.make(argv, cwd=cwd, env=env, output=output)
        return ProcessIdentity(machine_boot_id(), pid_namespace(), pid, start_ticks(pid) or 0)


class ForkedChild:
    """A service as a child of the test, as far as tests need one."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path) -> None:
        self.pid = SERVICE.make(argv, cwd=cwd, env=env, output=output)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it has ended; None while it runs."""
        if self.returncode is None:
            self.returncode = SERVICE.ended(self.pid)
        return self.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """How it ends."""
        wait_until(lambda: self.poll() is not None, timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """Signal it, if it runs."""
        if self.poll() is None:
            try:
                os.kill(self.pid, signum)
            except ProcessLookupError:  # it has just ended
                return

    def kill(self) -> None:
        """End it, if it runs."""
        self.send_signal(signal.SIGKILL)
