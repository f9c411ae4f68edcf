"""``./dev bench kills``: effects that took place twice, or not at all, per 100 kills of a service that finishes tasks.

The counterpart of the peers' crash test, with the four effects that are the product's own: a merge, the ratchet's row,
an artefact, a deploy's start. Two tested tasks stand before staging. *Random*: the service is killed by SIGKILL once,
at a moment drawn uniformly from the time that it takes unhurt. *Targeted*: it dies between an effect and the commit
that settles it, each effect in turn. Then it is started again and left to itself, and what took place is counted where
it took place: commits on main, lines that the deploy command wrote, tags in the artefact store; the ratchet is a row in
the product's own database. The oracle of the kill sweep looks at each world, too (``docs/explanation/proofs.md``).

Over worlds of the proofs: real processes, git and programs, and a clock that runs ten times as fast, so that its pauses
are that much shorter. What is counted is kept after each kill: a run that was broken off goes on.
"""

import json
import random
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import keep
from tests.proofs import oracle
from tests.proofs.ledgers import ledgers_of
from tests.proofs.lives import Ending, Life, live
from tests.proofs.scheduler import At, Free, Kill, Policy
from tests.proofs.templates import TESTED, make_templates
from tests.proofs.world import World

KILLS, SHORT_KILLS = 100, 2
WARM_UP = 3  # lives that are not hurt: how long it takes
MODES = ("random", "targeted")
TARGETS = (  # between the effect and the commit that settles it; the ratchet is in the commit that settles the merge
    ("merge", "merge_pr.after_act"),
    ("ratchet", "db.before_commit"),
    ("image", "image.after_act"),
    ("deploy", "deploy_init.after_act"),
)
EFFECTS = (
    "merge",
    "ratchet",
    "image",
    "staging",
    "deploy",
)  # the start in staging comes on top of the peers' four
Notes = dict[str, list[dict[str, Any]]]


def main(
    folder: Path, *, database: str, short: bool, kills: int | None, fresh: bool, where: Path | None
) -> int:
    """Kill, count, print a table, write JSON."""
    wanted = SHORT_KILLS if short else kills or KILLS
    notes = folder / f"kills-{database}{'-short' if short else ''}.json"
    found: Notes = {mode: [] for mode in MODES}
    if notes.exists() and not fresh:
        found = json.loads(notes.read_text(encoding="utf-8"))
    if any(len(found[mode]) < wanted for mode in MODES):
        with _worlds(database) as (world, template):
            window = _unhurt(world, template, 1 if short else WARM_UP)
            print(f"Two tasks take {window:.1f} s unhurt.", flush=True)
            for mode in MODES:
                while len(found[mode]) < wanted:
                    number = len(found[mode])
                    found[mode].append(_killed_once(world, template, mode, number, window))
                    notes.write_text(json.dumps(found), encoding="utf-8")
                    if (number + 1) % 10 == 0:
                        print(f"{mode}: {number + 1} kills", flush=True)
    print(table(found))
    keep(where or notes, found)
    return 1 if any(one["findings"] for mode in MODES for one in found[mode]) else 0


def table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Per 100 kills, as a Markdown table."""
    lines = [
        "| | kills | that interrupted work | tasks | duplicates per 100 kills | lost per 100 kills | other findings |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for mode, taken in found.items():
        killed = [one for one in taken if one["killed"]]
        if not killed:
            continue
        sums = {name: sum(sum(one[name].values()) for one in killed) for name in ("duplicates", "lost")}
        cells = [f"{total * 100 / len(killed):g}" for total in sums.values()]
        hit = sum(one["interrupted"] for one in killed)
        findings = sum(len(one["findings"]) for one in killed)
        tasks = sum(one["tasks"] for one in killed)
        lines.append(f"| {mode} | {len(killed)} | {hit} | {tasks} | {' | '.join(cells)} | {findings} |")
    return "\n".join(lines)


@contextmanager
def _worlds(database: str) -> Iterator[tuple[World, Path]]:
    with ledgers_of(database) as ledgers, tempfile.TemporaryDirectory(prefix="orch-kills-") as place:
        world = World(Path(place) / "world", ledgers)
        templates = make_templates(world, Path(place) / "templates")
        yield world, templates[TESTED]
        world.clear()


def _unhurt(world: World, template: Path, times: int) -> float:
    """Seconds that a life takes which nobody hurts."""
    took = []
    for _ in range(times):
        world.come_from(template)
        lived = live(world, Life())
        if lived.ending is not Ending.REST:
            raise SystemExit(f"An unhurt life ended {lived.ending}; see {world.root}/lives.log.")
        took.append(lived.seconds)
    return statistics.median(took)


def _killed_once(world: World, template: Path, mode: str, number: int, window: float) -> dict[str, Any]:
    """One kill and the life after it; what took place."""
    chance = random.Random(f"{mode} {number}")
    world.come_from(template)
    if mode == "random":
        life = Life(kill_after=chance.uniform(0.0, window))
    else:
        life = Life(_target(*TARGETS[number % len(TARGETS)], chance))
    ending = live(world, life).ending
    interrupted = bool(world.rows("SELECT 1 FROM tasks WHERE stage NOT IN ('done', 'cancelled')"))
    after = live(world, Life(polite=True))
    if not world.programs_have_ended():
        raise SystemExit(f"A program of {world.root} does not end.")
    counts = {item: _counted(world, item) for item in _items(world)}
    findings = oracle.at_the_end(world)
    if after.ending is not Ending.REST:
        findings.append(f"life: it ended {after.ending}")
    return {
        "killed": ending is Ending.KILLED,
        "interrupted": interrupted,
        "tasks": len(counts),
        "duplicates": {name: sum(max(0, c[name] - 1) for c in counts.values()) for name in EFFECTS},
        "lost": {name: sum(c[name] == 0 for c in counts.values()) for name in EFFECTS},
        "findings": findings,
    }


def _target(effect: str, point: str, chance: random.Random) -> Policy:
    """At the point of one of the two tasks."""
    if effect == "ratchet":
        return _AfterTheProbe(chance.randint(1, 2))
    return At(point, Kill(), chance.randint(1, 4 if effect == "deploy" else 2))


class _AfterTheProbe:
    """Dies before the first commit after the probe that has shown a merge: the one that holds the ratchet's row."""

    def __init__(self, occurrence: int) -> None:
        self._left = occurrence * 2  # each merge is looked for before its act and after it
        self._seen = False

    def choose(self, point: Any) -> Any:
        if point.name == "merge_pr.after_probe":
            self._left -= 1
            self._seen = self._seen or self._left == 0
        if self._seen and point.name == "db.before_commit":
            return Kill()
        return Free().choose(point)


def _items(world: World) -> Sequence[str]:
    """The two tasks; the one that was delivered before is nobody's."""
    return [
        row["work_item"]
        for row in world.rows("SELECT work_item FROM tasks WHERE title <> 'First' ORDER BY id")
    ]


def _counted(world: World, item: str) -> Mapping[str, int]:
    """How often each effect took place for a task."""
    seen = oracle.Seen(world, end=True)
    merged = seen.merges.get(item, ())
    rows = Counter(row["merged_sha"] for row in world.rows("SELECT merged_sha FROM coverage_baseline"))
    starts = Counter(start.environment for start in seen.starts if start.work_item == item)
    tags = [path.name for path in (world.home / "images" / "tags").iterdir()]
    return {
        "merge": len(merged),
        "ratchet": sum(rows[sha] for sha in merged),
        "image": sum(tag.startswith(tuple(merged)) for tag in tags) if merged else 0,
        "staging": starts["staging"],
        "deploy": starts["production"],
    }
