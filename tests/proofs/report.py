"""The report of a sweep: one JSON line for each scenario, and the summary for people."""

import json
import platform
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.postgres_server import postgres_version

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "proofs"  # not committed


@dataclass
class Scenario:
    """What one scenario was and how it ended."""

    seed: int
    shape: str
    counts: Counter[str] = field(default_factory=Counter)  # lives, kills, …
    points: Counter[str] = field(default_factory=Counter)  # what was done where
    ended: dict[str, str] = field(default_factory=dict)  # work item → stage
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0


def of(name: str, database: str) -> Path:
    """Where the report of a sweep lies; each database has its own."""
    return FOLDER / (f"{name}.jsonl" if database == "sqlite" else f"{name}-{database}.jsonl")


def append(path: Path, scenario: Scenario) -> None:
    """Add a line, so that an interrupted sweep has lost nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as report:
        report.write(json.dumps(vars(scenario), sort_keys=True) + "\n")


def read(path: Path) -> list[Scenario]:
    """What a report holds; of a seed that was run again the newest counts."""
    found: dict[int, Scenario] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        for name in ("counts", "points"):
            record[name] = Counter(record[name])
        found[record["seed"]] = Scenario(**record)
    return list(found.values())


def summary(name: str, scenarios: Sequence[Scenario], database: str = "sqlite") -> str:
    """Figures, seeds, versions, duration."""
    counts: Counter[str] = Counter()
    points: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for scenario in scenarios:
        counts += scenario.counts
        points += scenario.points
        ended += Counter(scenario.ended.values())
    seeds = sorted(scenario.seed for scenario in scenarios)
    broken = [scenario for scenario in scenarios if scenario.findings]
    seconds = sum(scenario.seconds for scenario in scenarios)
    lines = [
        f"{name}: {len(scenarios)} scenarios, seeds {seeds[0]} … {seeds[-1]}"
        if seeds
        else f"{name}: nothing",
        "  " + ", ".join(f"{what} {n:,}" for what, n in sorted(counts.items())),
        f"  different points {len(points)}; tasks ended: "
        + ", ".join(f"{s} {n}" for s, n in sorted(ended.items())),
        f"  {seconds:,.0f} s; {versions(database)}",
        f"  findings: {sum(len(s.findings) for s in broken)} in {len(broken)} scenarios",
    ]
    for scenario in broken:
        lines += [f"    seed {scenario.seed} ({scenario.shape}): {finding}" for finding in scenario.findings]
    return "\n".join(lines)


def versions(database: str = "sqlite") -> str:
    """What it was run with."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return (
        f"commit {commit or '?'}, Python {platform.python_version()}, {database_version(database)}, git {git}, "
        f"Linux {platform.release().split('-')[0]}"
    )


def database_version(database: str) -> str:
    """As in "SQLite 3.40.1"."""
    return f"SQLite {sqlite3.sqlite_version}" if database == "sqlite" else postgres_version()


def progress(scenario: Scenario) -> None:
    """One line a scenario, where somebody looks."""
    if sys.stderr.isatty() or scenario.findings:
        said = "; ".join(scenario.findings) or "agrees"
        print(f"seed {scenario.seed} {scenario.shape}: {dict(scenario.counts)} {said}", file=sys.stderr)
