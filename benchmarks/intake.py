"""``./dev bench webhooks``: taking webhooks in, against an endpoint that verifies a signature and stores nothing.

Each side is a process of its own with the same web server; they take turns in short slices, and a ratio is formed
within a round. Then a burst of deliveries is sent to a service that also deals with them, and every one is looked for.
"""

import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import keep
from benchmarks.load import Outcome, send_all
from benchmarks.senders import Pushes

CONNECTIONS = (8, 32)
AIMS = {8: 25.0, 32: 60.0}  # milliseconds that 99 of 100 answers take at most
RATE_AIM = 0.8
KINDS = ("bare", "stored", "service")
SLICE = 800  # requests, about a third of a second


@dataclass
class Figures:
    """Of one side at one number of connections: a rate for each round, and every answer's time."""

    rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.rates.append(len(outcome.seconds) / outcome.took)
        self.seconds += outcome.seconds

    @property
    def p99_ms(self) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)] * 1000


def measure(folder: Path, *, rounds: int, slice_: int) -> dict[int, dict[str, Figures]]:
    """All sides in turn, for each number of connections."""
    pushes = Pushes()
    found = {n: {kind: Figures() for kind in KINDS} for n in CONNECTIONS}
    with (
        tempfile.TemporaryDirectory(dir=folder) as scratch,
        _server("bare", scratch) as bare,
        _server("stored", scratch) as stored,
        _server("service", scratch) as service,
    ):
        urls = dict(zip(KINDS, (bare, stored, service), strict=True))
        for number in range(rounds + 1):
            for connections in CONNECTIONS:
                for kind in KINDS if number % 2 else reversed(KINDS):
                    outcome = send_all(urls[kind], pushes.take(urls[kind], slice_), connections)
                    outcome.all_taken()
                    if number:  # the first round warms up
                        found[connections][kind].add(outcome)
    return found


def burst(folder: Path, deliveries: int) -> dict[str, float]:
    """Everything at once over 32 connections; nothing may be lost, and all of it is dealt with in the end."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch, _server("service", scratch) as url:
        pushes = Pushes()
        outcome = send_all(url, pushes.take(url, deliveries), CONNECTIONS[-1])
        outcome.all_taken()
        _dealt_with(Path(scratch) / "service")
        with closing(sqlite3.connect(Path(scratch) / "service" / "orchestrator.db")) as connection:
            query = "SELECT json_extract(payload, '$.after') FROM inbox"
            there = {row[0] for row in connection.execute(query)}
        lost = pushes.sent - there
        if lost:
            raise SystemExit(f"{len(lost)} deliveries are lost.")
    return {"deliveries": deliveries, "seconds": outcome.took, "lost": 0}


def table(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Ratios and times as Markdown."""
    lines = [
        "| connections | verified only | stored | and dealt with | p99: verified only | stored | and dealt with |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for connections, figures in found.items():
        bare = figures["bare"]["rates"]
        cells = [f"{connections}", f"{statistics.median(bare):,.0f}/s"]
        for kind in KINDS[1:]:
            ratio = statistics.median(a / b for a, b in zip(figures[kind]["rates"], bare, strict=True))
            cells.append(f"{ratio:.2f} ×")
        cells += [f"{figures[kind]['p99_ms']:.0f} ms" for kind in KINDS]
        lines.append("| " + " | ".join(cells) + " |")
    aims = ", ".join(f"{aim:.0f} ms at {n}" for n, aim in AIMS.items())
    return "\n".join([*lines, "", f"Aims: stored ≥ {RATE_AIM} ×; {aims}."])


def main(folder: Path, *, short: bool, rounds: int, where: Path | None) -> int:
    """Measure, print, write."""
    found = measure(folder, rounds=2 if short else rounds, slice_=100 if short else SLICE)
    figures = {
        str(n): {k: {"rates": f.rates, "p99_ms": f.p99_ms} for k, f in of.items()} for n, of in found.items()
    }
    print(table(figures))
    told = burst(folder, 300 if short else 10_000)
    print(f"\nA burst of {told['deliveries']:,} deliveries: taken in {told['seconds']:.1f} s, none lost.")
    keep(where or folder / "intake.json", {"figures": figures, "burst": told})
    return 0


def _dealt_with(home: Path) -> None:
    """Wait until nothing is open any more, so that nobody works while another side is measured."""
    with closing(sqlite3.connect(home / "orchestrator.db")) as connection:
        query = "SELECT count(*) FROM inbox WHERE handled_at IS NULL"
        while connection.execute(query).fetchone()[0]:
            time.sleep(0.02)


@contextmanager
def _server(kind: str, scratch: str) -> Iterator[str]:
    """A process that answers; its address."""
    command = [sys.executable, "-m", "benchmarks.intake_server", kind, str(Path(scratch) / kind)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # its end is the server's
            process.wait(60)
