"""``./dev bench``: product against bare SQL, and how both fare as finished tasks pile up, on either database.

Results are kept per size, so that a run that was broken off goes on with the next one.
"""

import cProfile
import json
import platform
import pstats
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.claimers import PROCESSES, team
from benchmarks.database import Shelf, Store
from benchmarks.figures import keep
from benchmarks.files import Files
from benchmarks.measure import TURNS, Figure, Samples, alone, alternate, drain, fsyncs, together
from benchmarks.product import Product
from benchmarks.servers import serving

SIZES = (1_000, 100_000, 1_000_000)
SHORT_SIZES = (100, 1_000)
SHORT_ROUNDS, SHORT_SECONDS = 2, 0.05
REFERENCE = "reference "  # the smallest database, measured beside a larger one in the same rounds
RATIOS = {  # measure: what is measured, and against what
    "one actor": ("transition", "bare transition"),
    "sixteen actors": ("sixteen", "bare transition"),
    "claim + finish": ("claim", "bare claim"),
    "four processes": ("claim of four", "bare claim of four"),
}
GROWTH = {"transition growth": "transition", "claim growth": "claim"}
Result = dict[str, object]


def main(
    folder: Path,
    *,
    database: str,
    short: bool,
    sizes: Sequence[int],
    rounds: int,
    seconds: float,
    fresh: bool,
    where: Path | None,
) -> int:
    """Measure, print a table, write JSON."""
    sizes = SHORT_SIZES if short else sorted(sizes)
    rounds, seconds = (SHORT_ROUNDS, SHORT_SECONDS) if short else (rounds, seconds)
    with shelf(folder, database) as kept:
        results = []
        for size in sizes:
            notes = folder / f"samples-{database}-{size}-{rounds}-{seconds}.json"
            if fresh or not notes.exists():
                print(f"{size:,} finished tasks: {rounds} rounds …", flush=True)
                turns = 1 if short else TURNS
                samples = _compare(kept, size, sizes[0], folder, rounds=rounds, seconds=seconds, turns=turns)
                notes.write_text(json.dumps(samples.rates), encoding="utf-8")
            results.append(_result(size, Samples(json.loads(notes.read_text(encoding="utf-8")))))
        told = {
            "python": platform.python_version(),
            "database": kept.version,
            "sixteen aim": kept.sixteen_aim,
        }
    found = {**told, "sizes": results}
    print(table(found))
    path = where or folder / ("results.json" if database == "sqlite" else f"results-{database}.json")
    keep(path, found)
    return 0


def profile(folder: Path, *, database: str, short: bool) -> int:
    """Print where the time of one actor goes."""
    with shelf(folder, database) as kept:
        store = kept.copied(kept.prepared((SHORT_SIZES if short else SIZES)[0]), "profiled")
        product, seen = Product(store.open()), cProfile.Profile()
        seen.runcall(alone, product.transition, store.movers(), 0.5 if short else 5.0)
        product.close()
        kept.discard(store)
    pstats.Stats(seen).sort_stats("tottime").print_stats(25)
    return 0


@contextmanager
def shelf(folder: Path, database: str) -> Iterator[Shelf]:
    """Where databases of a kind are kept, for the length of the block."""
    with ExitStack() as stack:
        if database == "sqlite":
            scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
            yield Files(folder, Path(scratch))
        else:
            yield stack.enter_context(serving(folder))


def table(found: Mapping[str, object]) -> str:
    """The ratios as a Markdown table."""
    lines = [
        "| finished tasks | one actor | sixteen actors | claim + finish | claim + finish, "
        f"{PROCESSES} processes | transitions, growth | claims, growth |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    results = found["sizes"]
    assert isinstance(results, Sequence)
    for result in results:
        cells = [f"{result[name]:.2f} ×" for name in RATIOS]
        growth = [f"{result[name]:+.0%}" for name in GROWTH]
        lines.append(f"| {result['finished']:,} | " + " | ".join([*cells, *growth]) + " |")
    lines += ["", "| finished tasks | " + " | ".join(f"{kind}/s" for kind in results[0]["per second"]) + " |"]
    lines.append("|---:|" + "---:|" * len(results[0]["per second"]))
    for result in results:
        rates = [f"{rate:,.0f}" for rate in result["per second"].values()]
        lines.append(f"| {result['finished']:,} | " + " | ".join(rates) + " |")
    lines += [
        "",
        f"{found['database']}. Medians of ratios to bare SQL, in the same rounds. Aims: one actor ≥ 0.8, sixteen "
        f"actors ≥ {found['sixteen aim']} of one bare connection, claim + finish ≥ 0.8, growth within ±15 %.",
    ]
    return "\n".join(lines)


def _compare(
    kept: Shelf, size: int, smallest: int, folder: Path, *, rounds: int, seconds: float, turns: int
) -> Samples:
    """Measure everything on a database of one size, and the product once more on the smallest."""
    with ExitStack() as stack:
        store = kept.copied(kept.prepared(size), "measured")
        stack.callback(kept.discard, store)
        reference = kept.copied(kept.prepared(smallest), "reference")
        stack.callback(kept.discard, reference)
        bare, product, small = store.bare(), Product(store.open()), Product(reference.open())
        for each in (bare, product, small):
            stack.callback(each.close)
        four, bare_four = (stack.enter_context(team(store, bare=one)) for one in (False, True))
        tasks, small_tasks, slice_ = store.movers(), reference.movers(), seconds / turns
        kinds: dict[str, Callable[[], Figure]] = {
            "bare transition": lambda: alone(bare.transition, tasks, slice_),
            "transition": lambda: alone(product.transition, tasks, slice_),
            REFERENCE + "transition": lambda: alone(small.transition, small_tasks, slice_),
            "sixteen": lambda: together(product.transition, tasks, slice_),
            "bare claim": lambda: _refilled(store, bare.claim_and_finish, slice_),
            "claim": lambda: _refilled(store, product.claim_and_finish, slice_),
            REFERENCE + "claim": lambda: _refilled(reference, small.claim_and_finish, slice_),
            "bare claim of four": lambda: bare_four.claim(slice_),
            "claim of four": lambda: four.claim(slice_),
        }
        return alternate(kinds, rounds, turns, partial(fsyncs, folder, slice_))


def _refilled(store: Store, claim_and_finish: Callable[[], bool], seconds: float) -> Figure:
    store.refill()
    return drain(claim_and_finish, seconds)


def _result(size: int, samples: Samples) -> Result:
    return {
        "finished": size,
        **{name: samples.ratio(*pair) for name, pair in RATIOS.items()},
        **{name: samples.ratio(kind, REFERENCE + kind) - 1 for name, kind in GROWTH.items()},
        "per second": {kind: samples.median(kind) for kind in samples.rates},
        "samples": {kind: [round(rate, 1) for rate in rates] for kind, rates in samples.rates.items()},
    }
