"""A few hosts on one switch, and a database that they reach over it alone.

A host is a network namespace, and each program on it a process namespace of its own: nobody sees that another one has
died, or that it has not. They share the file system, as hosts of a fleet share their state folder. What is made here is
taken away again, also where a test fails.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until

HERE = Path(__file__).parent
NETWORK = "10.77.0."
DATABASE = f"{NETWORK}1"
STOP_S = 30.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass
class Host:
    """One host, and the service on it while there is one."""

    name: str
    cable: str  # its end at the switch
    switch: str
    folder: Path
    home: Path | None = None  # of a worker: its own; None: an orchestrator, which shares one with the others
    version: Path | None = None  # where the version lies that is installed on it; None: the one at hand
    service: "subprocess.Popen[bytes] | None" = None
    paused: bool = False
    cut: bool = False

    def start(self, environ: Mapping[str, str]) -> None:
        """`orch serve` or `orch worker`, which takes the host's programs with it when it is killed."""
        env = dict(environ) if self.home is None else {**environ, "ORCH_HOME": str(self.home)}
        if self.version is not None:
            env["PYTHONPATH"] = str(self.version)
        service = "serve" if self.home is None else "worker"
        command = [
            "ip",
            "netns",
            "exec",
            self.name,
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.service = subprocess.Popen(
                [*command, sys.executable, "-m", "orchestrator", service],
                env=env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """Ask the service to end, as whoever exchanges it does; its programs go with its container."""
        for pid in self._programs()[:1]:
            os.kill(pid, signal.SIGTERM)
        if self.service is not None:
            with suppress(subprocess.TimeoutExpired):
                self.service.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """Pull its plug, if it is on."""
        if self.service is not None:
            self.service.kill()
            self.service.wait()
        self.service, self.paused = None, False

    def replace(self) -> None:
        """Another machine takes this worker's place: what was on it is never heard of again."""
        self.kill()
        assert self.home is not None
        self.home = self.home.with_name(f"{self.home.name}x")

    def plug(self, *, cut: bool) -> None:
        """Cut its cable, or mend it."""
        ip("-n", self.switch, "link", "set", self.cable, "down" if cut else "up")
        self.cut = cut

    def pause(self, *, stop: bool) -> None:
        """Stop everything that runs on it, or let it go on."""
        for pid in self._programs():
            os.kill(pid, signal.SIGSTOP if stop else signal.SIGCONT)
        self.paused = stop

    def _programs(self) -> list[int]:
        found, waiting = list[int](), [self.service.pid] if self.service is not None else []
        while waiting:
            pid = waiting.pop()
            try:
                told = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
            except OSError:
                continue
            children = [int(word) for word in told.split()]
            found += children
            waiting += children
        return found


@contextmanager
def switched(count: int, folder: Path, socket: Path) -> Iterator[list[Host]]:
    """Hosts on one switch, with the database's socket at :data:`DATABASE`."""
    prefix = f"orch{os.getpid()}"
    switch, server = f"{prefix}-switch", f"{prefix}-db"
    with ExitStack() as stack:
        for name in (switch, server):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        _join(switch, server, "db", DATABASE)
        hosts = []
        for number in range(count):
            name = f"{prefix}-h{number}"
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            _join(switch, name, f"h{number}", f"{NETWORK}{number + 10}")
            host = Host(name, f"h{number}", switch, folder)
            stack.callback(host.kill)
            hosts.append(host)
        relay = subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                server,
                sys.executable,
                "-I",
                str(HERE / "relay.py"),
                DATABASE,
                str(socket),
            ]
        )
        stack.callback(relay.wait)
        stack.callback(relay.kill)
        wait_until(lambda: _listens(server))
        yield hosts


def _join(switch: str, name: str, cable: str, address: str) -> None:
    ip("-n", switch, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("-n", switch, "link", "set", cable, "master", "bridge", "up")
    ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "link", "set", "lo", "up")


def _listens(name: str) -> bool:
    """Whether anybody takes connections at port 5432 there."""
    command = ["ip", "netns", "exec", name, "cat", "/proc/net/tcp"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return any(":1538 " in line and " 0A " in line for line in told.splitlines())
