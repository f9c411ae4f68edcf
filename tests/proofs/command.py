"""What the sweeps have in common: their scenarios one after the other, and the command that runs them."""

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.proofs import report
from tests.proofs.ledgers import FILES, Ledgers, ledgers_of
from tests.proofs.report import Scenario
from tests.proofs.templates import make_templates
from tests.proofs.world import World

Run = Callable[[int, World, Mapping[str, Path]], Scenario]
"""Plays the scenario of a seed in a world that is made from one of the templates."""


def sweep(
    run: Run, seeds: Sequence[int], folder: Path, *, out: Path | None = None, ledgers: Ledgers = FILES
) -> list[Scenario]:
    """Run the scenarios of these seeds in ``folder``, one after the other; what was found is kept to be looked at."""
    world = World(folder / "world", ledgers)
    templates = make_templates(world, folder / "templates")
    found = []
    for seed in seeds:
        scenario = run(seed, world, templates)
        found.append(scenario)
        report.progress(scenario)
        if out is not None:
            report.append(out, scenario)
        if scenario.findings:
            kept = folder / f"seed-{seed}"
            world.keep_as(kept)
            ledgers.write_out(kept)
    world.clear()
    return found


def main(name: str, told: str | None, run: Callable[..., Scenario], *, shapes: Sequence[str] = ()) -> int:
    """``python -m tests.proofs.<name>``: seeds that the report has already are not run again. ``shapes``: what a person
    may ask all scenarios to be."""
    asked = argparse.ArgumentParser(prog=f"python -m tests.proofs.{name}", description=told)
    asked.add_argument("--from", dest="first", type=int, default=1, metavar="SEED")
    asked.add_argument("--count", type=int, default=10, metavar="N", help="scenarios")
    asked.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    asked.add_argument("--out", type=Path, help="report that is added to")
    asked.add_argument(
        "--folder", type=Path, help="where the scenarios are played; memory is much the fastest"
    )
    if shapes:
        asked.add_argument("--shape", choices=shapes, help="of every scenario; else the seed chooses")
    said = asked.parse_args()
    folder = said.folder or Path(tempfile.mkdtemp(prefix=f"orch-{name}-"))
    out = said.out or report.of(name, said.database)
    known = {scenario.seed for scenario in report.read(out)}
    seeds = [seed for seed in range(said.first, said.first + said.count) if seed not in known]
    shape = getattr(said, "shape", None)
    with ledgers_of(said.database) as ledgers:
        playing = partial(run, shape=shape) if shape else run
        found = sweep(playing, seeds, folder, out=out, ledgers=ledgers)
    print(report.summary(f"{name} sweep", found, said.database))
    return 1 if any(scenario.findings for scenario in found) else 0
