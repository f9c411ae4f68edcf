"""The long form: ``python -m tests.proofs.explore --preemptions 2 --seconds 600 [--scenario NAME] [--resume FILE]``.

With ``--database postgres`` statements are interleaved, not transactions. Goes through the scenarios one after the
other, the time shared equally, and prints a line for each. What the time did not suffice for is kept in the file given
by ``--resume`` and taken up there by the next call.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from pytest import MonkeyPatch

from tests.proofs.explorer import Report, Stage, explore, quiet
from tests.proofs.memory_ledgers import NewLedger, new_ledgers
from tests.proofs.mutations import MUTATIONS, ON_POSTGRES, Mutation
from tests.proofs.play import Run, Scenario
from tests.proofs.report import database_version
from tests.proofs.scenarios import SCENARIOS

MEMORY = Path("/dev/shm")
HEAD = "| scenario | schedules | steps | ended as seen before | preemptions | seconds | result |"
RULE = "|---|---:|---:|---:|---:|---:|---|"


def line(report: Report) -> str:
    bound = str(report.preemptions) if report.complete else f"{report.preemptions} whole, then part"
    result = "**broken**" if report.found else "clean"
    return (
        f"| {report.scenario} | {report.schedules:,} | {report.steps:,} | {report.pruned:,} | {bound} "
        f"| {report.seconds:.0f} | {result} |"
    )


def explained(stage: Stage, found: Run) -> str:
    told = stage.run(found.choices, explain=True)
    return "\n".join([*(f"BROKEN: {said}" for said in told.broken), *told.trace, json.dumps(told.choices)])


def run_scenarios(chosen: list[Scenario], new: NewLedger, arguments: argparse.Namespace) -> int:
    kept: dict[str, list[list[str]]] = {}
    if arguments.resume and arguments.resume.exists():
        kept = json.loads(arguments.resume.read_text())
        chosen = [scenario for scenario in chosen if kept.get(scenario.name)]
    broken = 0
    kept_in = database_version(arguments.database)
    print(f"Python {platform.python_version()}, {kept_in}\n\n{HEAD}\n{RULE}", flush=True)
    for scenario in chosen:
        with closing(new()) as ledger:
            stage = Stage(scenario, ledger)
            seconds = arguments.seconds / len(chosen)
            begin = kept.get(scenario.name) or [[]]
            report = explore(stage, preemptions=arguments.preemptions, seconds=seconds, begin=begin)
            kept[scenario.name] = report.frontier
            print(line(report), flush=True)
            if report.found is not None:
                broken += 1
                print(explained(stage, report.found), flush=True)
    if arguments.resume:
        arguments.resume.write_text(json.dumps(kept))
    return 1 if broken else 0


def run_mutations(mutations: Sequence[Mutation], new: NewLedger) -> int:
    print("| without its guard | attack | scenario | schedules | found |\n|---|---|---|---:|---|")
    missed = 0
    for mutation in mutations:
        with MonkeyPatch.context() as patch, closing(new()) as ledger:
            stage = mutation.stage(ledger, patch)
            report = explore(stage, preemptions=stage.scenario.budget.preemptions, seconds=600)
        found = report.found.broken[0] if report.found else "**nothing**"
        missed += report.found is None
        print(
            f"| {mutation.name} | {mutation.attack} | {mutation.scenario} | {report.schedules} | {found} |",
            flush=True,
        )
    return 1 if missed else 0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.explore", description=__doc__)
    parser.add_argument("--preemptions", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--scenario", default="", help="part of its name")
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--mutations", action="store_true", help="the seeded bugs instead")
    parser.add_argument(
        "--schedule", help="repeat one run, given as the list that is printed where something broke"
    )
    arguments = parser.parse_args(words)
    chosen = [scenario for scenario in SCENARIOS if arguments.scenario in scenario.name]
    where = MEMORY if MEMORY.is_dir() else None
    with ExitStack() as stack:
        stack.enter_context(quiet())
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=where, prefix="orch-explore-"))
        new = stack.enter_context(new_ledgers(arguments.database, Path(folder)))
        if arguments.mutations:
            return run_mutations(MUTATIONS if arguments.database == "sqlite" else ON_POSTGRES, new)
        if arguments.schedule:
            with closing(new()) as ledger:
                told = Stage(chosen[0], ledger).run(json.loads(arguments.schedule), explain=True)
            print("\n".join([*told.trace, *told.broken]))
            return 1 if told.broken else 0
        return run_scenarios(chosen, new, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
