"""``./dev bench service``: what a running `orch serve` costs while nothing happens, how soon it starts what comes, and
how long a command takes that only says its version. These are the machine's times, not ratios: let nothing else run.
"""

import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.figures import keep
from benchmarks.files import fill

SIZES = (1_000, 1_000_000)
SHORT_SIZES = (100,)
SETTLE_S, IDLE_S = 15.0, 30.0
COMMANDS = 21  # of which the median is told
TICKETS = 200
PAUSES_S = (0.5, 2.5)  # between them, as the peers were asked: what the last one began has calmed down
CONFIG = """\
default_branch = "main"
[ci]
command = ["true"]
[agent]
kind = "command"
command = ["sleep", "600"]
"""
AIMS = {
    "idle CPU, %": 0.1,
    "memory, MiB": 120.0,
    "orch --version, ms": 150.0,
    "wake-up p50, ms": 4.0,
    "wake-up p99, ms": 18.0,
}
Figures = dict[str, float]


def main(folder: Path, *, short: bool, where: Path | None) -> int:
    """Measure, print a table, write JSON."""
    sizes = SHORT_SIZES if short else SIZES
    found: dict[int, Figures] = {}
    for size in sizes:
        print(f"{size:,} finished tasks …", flush=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            found[size] = _measured(Path(scratch), size, short=short)
    print(table(found))
    keep(where or folder / "service.json", found)
    return 0


def table(found: Mapping[int, Figures]) -> str:
    """The figures as a Markdown table, with what was aimed at."""
    lines = [
        "| | aim | " + " | ".join(f"{size:,} finished tasks" for size in found) + " |",
        "|---|---:|" + "---:|" * len(found),
    ]
    for name, aim in AIMS.items():
        cells = [f"{figures[name]:.2f}" for figures in found.values()]
        lines.append(f"| {name} | {aim:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _measured(scratch: Path, size: int, *, short: bool) -> Figures:
    home, environ = scratch / "home", environ_in(scratch)
    repository(scratch / "sample", environ)
    orch(environ, "init", "--name", "sample", "--prefix", "SMP", cwd=scratch / "sample")
    fill(home / "orchestrator.db", size)
    version = _median(lambda: orch(environ, "--version", cwd=scratch), 3 if short else COMMANDS)
    with _serving(environ, scratch) as (pid, api):
        time.sleep(1.0 if short else SETTLE_S)
        before, began = _cpu_s(pid), time.monotonic()
        time.sleep(1.0 if short else IDLE_S)
        idle = (_cpu_s(pid) - before) / (time.monotonic() - began)
        memory = _resident_mib(pid)
        waits = sorted(_wake_ups_ms(home, api, short=short))
    return {
        "idle CPU, %": idle * 100,
        "memory, MiB": memory,
        "orch --version, ms": version * 1000,
        "wake-up p50, ms": statistics.median(waits),
        "wake-up p99, ms": waits[int(len(waits) * 0.99)],
    }


def _wake_ups_ms(home: Path, api: Mapping[str, Any], *, short: bool) -> Iterator[float]:
    pauses = random.Random(TICKETS)
    for number in range(3 if short else TICKETS):
        time.sleep(0.0 if short else pauses.uniform(*PAUSES_S))
        yield _wake_up_ms(home, api, number)


def _wake_up_ms(home: Path, api: Mapping[str, Any], number: int) -> float:
    """From the commit that queues a ticket's first agent to the one that claims its job, by the ledger's stamps."""
    item = _ask(api, "POST", "/tasks", {"repo": "sample", "title": f"Ticket {number}"})["work_item"]
    try:
        query = (
            "SELECT events.type, events.at FROM events JOIN tasks ON tasks.id = task_id "
            "WHERE work_item = ? AND events.type IN ('job.queued', 'job.claimed') ORDER BY events.id"
        )
        while True:
            with closing(sqlite3.connect(f"file:{home}/orchestrator.db?mode=ro", uri=True)) as connection:
                rows = connection.execute(query, (item,)).fetchall()
            if len(rows) >= 2:
                queued, claimed = (datetime.fromisoformat(row[1]) for row in rows[:2])
                return (claimed - queued).total_seconds() * 1000
            time.sleep(0.05)
    finally:
        _ask(api, "POST", f"/tasks/{item}/cancel", {})
        while _ask(api, "GET", f"/tasks/{item}", None)["task"]["stage"] != "cancelled":
            time.sleep(0.05)


def _ask(api: Mapping[str, Any], method: str, path: str, body: Mapping[str, Any] | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {api['token']}", "content-type": "application/json"}
    with urlopen(Request(api["url"] + path, data, headers, method=method), timeout=60) as answer:
        return json.load(answer)


@contextmanager
def _serving(environ: Mapping[str, str], cwd: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    told = Path(environ["ORCH_HOME"]) / "api.json"
    with (cwd / "serve.log").open("wb") as log:
        service = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "serve"], env=environ, cwd=cwd, stdout=log, stderr=log
        )
    try:
        while not told.exists():
            if service.poll() is not None:
                raise RuntimeError((cwd / "serve.log").read_text())
            time.sleep(0.05)
        yield service.pid, json.loads(told.read_text())
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(60)


def environ_in(scratch: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(scratch),
        "ORCH_HOME": str(scratch / "home"),
        "ORCH_PORT": "0",
    }


def repository(place: Path, environ: Mapping[str, str]) -> None:
    place.mkdir()
    (place / ".orchestrator.toml").write_text(CONFIG)
    who = ["-c", "user.name=Person", "-c", "user.email=person@example.org"]
    for args in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *args], cwd=place, env=environ, check=True)


def orch(environ: Mapping[str, str], *args: str, cwd: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "orchestrator", *args], env=environ, cwd=cwd, check=True, capture_output=True
    )


def _median(act: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        began = time.monotonic()
        act()
        took.append(time.monotonic() - began)
    return statistics.median(took)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the service has ended")
