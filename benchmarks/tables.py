"""``./dev bench tables``: writes the tables of ``docs/explanation/performance.md`` anew from the results in the folder.

A table stands between ``<!-- figures: NAME -->`` and ``<!-- end -->``; one that has no result yet stays as it is.
"""

import json
import re
import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import intake, kills, recovery, service, transitions
from benchmarks.figures import beside

PAGE = Path(__file__).parents[1] / "docs/explanation/performance.md"
PLACE = re.compile(r"(<!-- figures: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
RESULTS = {  # name of the table: file
    "transitions-sqlite": "results.json",
    "transitions-postgres": "results-postgres.json",
    "webhooks": "intake.json",
    "service": "service.json",
    "recovery-sqlite": "recovery-sqlite.json",
    "recovery-postgres": "recovery-postgres.json",
    "kills-sqlite": "kills-sqlite.json",
    "kills-postgres": "kills-postgres.json",
}
Found = Mapping[str, Any]  # results, by the name of their table


def main(folder: Path, *, page: Path = PAGE) -> int:
    """Write the page anew, and say which tables are from where."""
    found = {
        name: json.loads((folder / file).read_text(encoding="utf-8"))
        for name, file in RESULTS.items()
        if (folder / file).exists()
    }

    def anew(place: re.Match[str]) -> str:
        name = place["name"]
        if name == "peers":
            return f"{place[1]}\n{peers(found, before=place[0])}\n\n{place[3]}" if found else place[0]
        if name not in found:
            print(f"{name}: no result in {folder}; left as it is")
            return place[0]
        note = beside(folder / RESULTS[name])
        machine = note.read_text(encoding="utf-8").strip() if note.exists() else "a machine that is not noted"
        print(f"{name}: {machine}")
        return f"{place[1]}\n{TABLES[name](found[name])}\n\n*{machine}.*\n\n{place[3]}"

    page.write_text(PLACE.sub(anew, page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def peers(found: Found, *, before: str = "") -> str:
    """What others' programs were measured to do, beside ours; what has no result is as it was ``before``."""
    rows = [line.strip("| ").split(" | ") for line in before.splitlines()]
    told = {row[0]: row[-1] for row in rows if len(row) == 3}
    lines = ["| measure | peers | ours |", "|---|---|---|"]
    for measure, theirs, ours in PEERS:
        cell = told.get(measure, "–")
        with suppress(KeyError):  # not measured yet
            cell = ours(found)
        lines.append(f"| {measure} | {theirs} | {cell} |")
    return "\n".join(lines)


def _per_second(found: Found, database: str, *kinds: str) -> str:
    sizes = found[f"transitions-{database}"]["sizes"]
    rates = sizes[min(1, len(sizes) - 1)]["per second"]
    return " / ".join(f"{rates[kind]:,.0f}" for kind in kinds)


def _service(found: Found, name: str) -> float:
    return float(next(iter(found["service"].values()))[name])


def _killed(found: Found, mode: str) -> str:
    taken = [one for one in found["kills-sqlite"][mode] if one["killed"]]
    rates = [
        sum(sum(one[what].values()) for one in taken) * 100 / len(taken) for what in ("duplicates", "lost")
    ]
    return f"{rates[0]:g} / {rates[1]:g} ({len(taken)} kills)"


def _recovered(found: Found) -> str:
    medians = [
        statistics.median(taken) for name, taken in found["recovery-sqlite"].items() if " tasks" not in name
    ]
    return f"{min(medians):.2f}–{max(medians):.2f} s, by what was in flight"


PEERS: tuple[tuple[str, str, Callable[[Found], str]], ...] = (
    (
        "transitions/s, SQLite, one actor",
        "bare SQL of a plainer schema 2,167; DBOS 263 steps/s",
        lambda found: _per_second(found, "sqlite", "transition"),
    ),
    (
        "transitions/s, PostgreSQL, one actor / sixteen",
        "bare SQL of a plainer schema 1,003 on one connection; DBOS 213 steps/s",
        lambda found: _per_second(found, "postgres", "transition", "sixteen"),
    ),
    (
        "claim + finish/s, SQLite, 1 / 4 processes",
        "huey 2,902 / 2,666 (one commit, at most once)",
        lambda found: _per_second(found, "sqlite", "claim", "claim of four"),
    ),
    (
        "claim + finish/s, PostgreSQL, 1 / 4 processes",
        "procrastinate 414 / 499 (2 syncs a job); pgqueuer 3,637 / 4,364 (0.2 syncs a job)",
        lambda found: _per_second(found, "postgres", "claim", "claim of four"),
    ),
    (
        "wake-up, p50 / p99",
        "pgqueuer 4.3 / 57 ms; procrastinate 5.5 / 18 ms",
        lambda found: (
            " / ".join(f"{_service(found, f'wake-up {p}, ms'):.1f}" for p in ("p50", "p99")) + " ms"
        ),
    ),
    (
        "idle CPU",
        "huey 0.1 %; procrastinate 0.3 %; DBOS 1.1 %",
        lambda found: f"{_service(found, 'idle CPU, %'):.2f} %",
    ),
    (
        "duplicates / lost per 100 random kills",
        "DBOS 75–139 / 0; procrastinate 126 / 0; huey 0 / 118",
        lambda found: _killed(found, "random"),
    ),
    (
        "duplicates / lost per 100 targeted kills",
        "DBOS 100 / 0; procrastinate 246 / 0; huey 0 / 154",
        lambda found: _killed(found, "targeted"),
    ),
    (
        "restart to converged, one task",
        "DBOS 1.6 s; procrastinate 2.2 s tuned, 31 s with defaults; huey 0.3 s, but the work is lost",
        _recovered,
    ),
)
TABLES: Mapping[str, Callable[[Any], str]] = {
    "transitions-sqlite": transitions.table,
    "transitions-postgres": transitions.table,
    "webhooks": lambda found: intake.table(found["figures"]),
    "service": lambda found: service.table({int(size): figures for size, figures in found.items()}),
    "recovery-sqlite": recovery.table,
    "recovery-postgres": recovery.table,
    "kills-sqlite": kills.table,
    "kills-postgres": kills.table,
}
