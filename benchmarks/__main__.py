"""``./dev bench``: product against bare SQL, and how both fare as finished tasks pile up; ``./dev bench webhooks``: see
:mod:`benchmarks.intake`; ``./dev bench service``: see :mod:`benchmarks.service`.

Results are kept per size, so that a run that was broken off goes on with the next one; ``--fresh`` measures anew.
"""

import argparse
import cProfile
import json
import platform
import pstats
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import intake, service
from benchmarks.database import copied, movers, prepared
from benchmarks.measure import REFERENCE, TURNS, Samples, alone, compare
from benchmarks.product import Product

SIZES = (1_000, 100_000, 1_000_000)
SHORT_SIZES = (100, 1_000)
AIMS = {"one actor": 0.8, "sixteen actors": 2.0, "claim + finish": 0.8}
Result = dict[str, object]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for, print a table, write JSON."""
    asked = _parser().parse_args(argv)
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.what == "webhooks":
        return intake.main(asked.folder, short=asked.short, rounds=asked.rounds, where=asked.json)
    if asked.what == "service":
        return service.main(asked.folder, short=asked.short, where=asked.json)
    sizes = SHORT_SIZES if asked.short else SIZES
    if asked.profile:
        return _profile(prepared(asked.folder, sizes[0]), 0.5 if asked.short else 5.0)
    rounds, seconds = (2, 0.05) if asked.short else (asked.rounds, asked.seconds)
    results = [_measured(asked, size, sizes[0], rounds, seconds) for size in sizes]
    print(table(results))
    where = asked.json or asked.folder / "results.json"
    machine = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    where.write_text(json.dumps({**machine, "sizes": results}, indent=1) + "\n", encoding="utf-8")
    print(f"\nThe figures are in {where}.")
    return 0


def table(results: Sequence[Result]) -> str:
    """The ratios as a Markdown table."""
    lines = [
        "| finished tasks | one actor | sixteen actors | claim + finish | transitions, growth | claims, growth |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        cells = [f"{result[name]:.2f} ×" for name in AIMS]
        growth = [f"{result[name]:+.0%}" for name in ("transition growth", "claim growth")]
        lines.append(f"| {result['finished']:,} | " + " | ".join([*cells, *growth]) + " |")
    aims = ", ".join(f"{name} ≥ {aim}" for name, aim in AIMS.items())
    return "\n".join(
        [*lines, "", f"Medians of ratios to bare SQL, one at a time. Aims: {aims}, growth within ±15 %."]
    )


def _measured(asked: argparse.Namespace, size: int, smallest: int, rounds: int, seconds: float) -> Result:
    kept = asked.folder / f"samples-{size}-{rounds}-{seconds}.json"
    if kept.exists() and not asked.fresh:
        return _result(size, Samples(json.loads(kept.read_text(encoding="utf-8"))))
    print(f"{size:,} finished tasks: {rounds} rounds …", flush=True)
    originals = prepared(asked.folder, size), prepared(asked.folder, smallest)
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
        path, reference = (
            copied(each, Path(scratch) / name) for each, name in zip(originals, "ab", strict=True)
        )
        samples = compare(path, reference, rounds=rounds, seconds=seconds, turns=1 if asked.short else TURNS)
    kept.write_text(json.dumps(samples.rates), encoding="utf-8")
    return _result(size, samples)


def _result(size: int, samples: Samples) -> Result:
    return {
        "finished": size,
        "one actor": samples.ratio("transition", "bare transition"),
        "sixteen actors": samples.ratio("sixteen", "bare transition"),
        "claim + finish": samples.ratio("claim", "bare claim"),
        "transition growth": samples.ratio("transition", REFERENCE + "transition") - 1,
        "claim growth": samples.ratio("claim", REFERENCE + "claim") - 1,
        "per second": {kind: samples.median(kind) for kind in samples.rates},
        "samples": {kind: [round(rate, 1) for rate in rates] for kind, rates in samples.rates.items()},
    }


def _profile(path: Path, seconds: float) -> int:
    product, profile = Product(path), cProfile.Profile()
    profile.runcall(alone, product.transition, movers(path), seconds)
    product.close()
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("transitions", "webhooks", "service"),
        default="transitions",
        help="what is measured (default %(default)s)",
    )
    parser.add_argument(
        "--short", action="store_true", help="small files, two short rounds: shows that it runs"
    )
    parser.add_argument(
        "--profile", action="store_true", help="print where the time of one actor goes instead"
    )
    parser.add_argument("--fresh", action="store_true", help="measure sizes again that have a result")
    parser.add_argument("--rounds", type=int, default=15, help="rounds per size (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="seconds per figure and round (default %(default)s)"
    )
    parser.add_argument(
        "--json", type=Path, help="where the figures go (default: results.json in the folder)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "orchestrator-bench",
        help="where the files with finished tasks are kept (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
