"""``./dev bench``: what the product costs, and how fast it is (``docs/explanation/performance.md``).

Without a word: :mod:`benchmarks.transitions`. Else ``webhooks`` (:mod:`benchmarks.intake`), ``service``
(:mod:`benchmarks.service`), ``recovery`` (:mod:`benchmarks.recovery`), ``kills`` (:mod:`benchmarks.kills`),
``tables`` (:mod:`benchmarks.tables`).
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import intake, kills, recovery, service, tables, transitions

ROUNDS = 15


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for, print a table, write JSON."""
    asked = _parser().parse_args(argv)
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.what == "webhooks":
        return intake.main(asked.folder, short=asked.short, rounds=asked.rounds or ROUNDS, where=asked.json)
    if asked.what == "service":
        return service.main(asked.folder, short=asked.short, where=asked.json)
    if asked.what == "recovery":
        return recovery.main(
            asked.folder,
            database=asked.database,
            short=asked.short,
            rounds=asked.rounds,
            many=asked.tasks,
            fresh=asked.fresh,
            where=asked.json,
        )
    if asked.what == "tables":
        return tables.main(asked.folder)
    if asked.what == "kills":
        return kills.main(
            asked.folder,
            database=asked.database,
            short=asked.short,
            kills=asked.kills,
            fresh=asked.fresh,
            where=asked.json,
        )
    if asked.profile:
        return transitions.profile(asked.folder, database=asked.database, short=asked.short)
    return transitions.main(
        asked.folder,
        database=asked.database,
        short=asked.short,
        sizes=asked.sizes,
        rounds=asked.rounds or ROUNDS,
        seconds=asked.seconds,
        fresh=asked.fresh,
        where=asked.json,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("transitions", "webhooks", "service", "recovery", "kills", "tables"),
        default="transitions",
        help="what is measured (default %(default)s)",
    )
    parser.add_argument(
        "--database",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="where the ledger lies: of transitions, recovery and kills (default %(default)s)",
    )
    parser.add_argument(
        "--short", action="store_true", help="small databases, two short rounds: shows that it runs"
    )
    parser.add_argument(
        "--profile", action="store_true", help="print where the time of one actor goes instead"
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=transitions.SIZES,
        help="finished tasks behind the live ones; growth is told against the smallest (default %(default)s)",
    )
    parser.add_argument("--fresh", action="store_true", help="measure again what has a result")
    parser.add_argument("--rounds", type=int, help="rounds (default: 15 per size, 7 of a recovery)")
    parser.add_argument("--kills", type=int, help="of each kind (default: 100)")
    parser.add_argument("--tasks", type=int, help="tasks in flight where many are (default: 10000)")
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
        help="where databases and results are kept (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
