"""``python -m tests.model [--long] [--attacks] [NAME]``: explores, and prints a table of states, edges and seconds.

NAME chooses the configurations whose name holds it. Seconds are the processor's. Ends with 1 where a law is broken or a
task can get stuck, and says how.
"""

import argparse
import sys
import time
from dataclasses import replace

from tests.model.attacks import ATTACKS
from tests.model.configurations import LONG, SHORT, named
from tests.model.explore import CLEAN, Explored, explore
from tests.model.guards import Guards


def main() -> int:
    """The command."""
    asked = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    asked.add_argument("--long", action="store_true", help="the long form's configurations")
    asked.add_argument("--attacks", action="store_true", help="the protocol with guards taken out")
    asked.add_argument("--without", metavar="GUARD", action="append", default=[], help="take a guard out")
    asked.add_argument("--trace", action="store_true", help="say how each violation comes about")
    asked.add_argument("name", nargs="?", default="", help="only configurations whose name holds this")
    said = asked.parse_args()
    if said.attacks:
        return _attacks(said.name, trace=said.trace)
    guards = Guards()
    for guard in said.without:
        guards = guards.without(guard)
    chosen = named(said.name) if said.name else (*(LONG if said.long else SHORT),)
    print("| configuration | tasks × actors | states | edges | seconds | result |")
    print("|---|---|---:|---:|---:|---|")
    bad = 0
    for configuration in chosen:
        began = time.process_time()
        found = explore(replace(configuration, guards=guards), progress=_progress)
        took = time.process_time() - began
        size = f"{configuration.tasks} × {configuration.actors}"
        print(
            f"| {configuration.name} | {size} | {found.states:,} | {found.edges:,} | {took:.1f} | {_result(found)} |",
            flush=True,
        )
        if found.result != CLEAN:
            bad = 1
            _tell(found)
    return bad


def _attacks(name: str, *, trace: bool) -> int:
    print("| without | attack | states | steps | result |")
    print("|---|---|---:|---:|---|")
    for attack in ATTACKS:
        if name not in " ".join(attack.without):
            continue
        found = explore(attack.configuration())
        print(
            f"| {', '.join(attack.without)} | {attack.known_as} | {found.states:,} | {len(found.trace)} "
            f"| {_result(found)} |",
            flush=True,
        )
        if trace:
            _tell(found)
    return 0


def _result(found: Explored) -> str:
    return found.result if found.result == CLEAN else f"{found.result}: {found.law}"


def _tell(found: Explored) -> None:
    for number, label in enumerate(found.trace, 1):
        print(f"    {number:3}. {' '.join(str(word) for word in label)}", file=sys.stderr)


def _progress(states: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{states:,} states", end="\r", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
