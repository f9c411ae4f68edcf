"""The freeze sweep: ``python -m tests.proofs.freeze --from SEED --count N``.

Two services work on one database, neither of which can look at the other's process, as in two containers. The first is
stopped by SIGSTOP at a seeded point, or one of its programs is (git between the prepare and the commit of a
transaction, a deploy's runner, an agent's supervisor), or a call of it is accepted and lands late. Meanwhile the other
finishes, or its gates change their mind, or a person cancels, or main or the branch has moved, or it is stopped as
well. Then all are woken, and the oracle has to find that all agree.
"""

import random
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.db.postgres import IDLE_S
from orchestrator.runtime.clock import SystemClock
from tests.proofs import command, oracle
from tests.proofs.kill import CHILDREN, LATE, NAMED
from tests.proofs.lives import POLL_S, Ending, Life, Living, live, nothing
from tests.proofs.people import Act, Person, acting
from tests.proofs.report import Scenario
from tests.proofs.scheduler import At, First, Freeze, Hurt, Late, Nth, Policy, Step
from tests.proofs.templates import TESTED
from tests.proofs.world import World, held

EVENTS: Mapping[str, float] = {
    "finishes": 2,
    "gate fails": 1.5,
    "cancel": 1.5,
    "head moved": 1.5,
    "both": 1.5,
}
PATIENCE_S = 12.0  # how long the other is given to come to rest beside a stopped one
# Until PostgreSQL has taken the transactions of two that stand still, of which the second waited for the first.
LET_GO_S = 2 * IDLE_S + 5.0
SHORT_TERM = {"ORCH_PROCESS_TTL_S": "15", "ORCH_HEARTBEAT_INTERVAL_S": "2"}  # by the fast clock
WRONG = frozenset({Ending.RESTLESS, Ending.FAILED})
GONE = WRONG | {Ending.REST, Ending.KILLED, Ending.NOT_STARTED}


def run(seed: int, world: World, templates: Mapping[str, Path]) -> Scenario:
    """One scenario: the same seed makes the same choices."""
    began, chance = SystemClock().boottime(), random.Random(seed)
    event = chance.choices(list(EVENTS), list(EVENTS.values()))[0]
    world.come_from(templates[TESTED])
    world.roll(seed)
    told = Scenario(seed, event)
    lives: list[Living] = []
    try:
        lives.append(Living(world, Life(_stop(chance), namespace="one", settings=SHORT_TERM)))
        lives[0].until(lambda ending: ending is not Ending.LIVING, PATIENCE_S)
        inside = world.locked()
        if inside:
            told.counts["stopped inside a write"] += 1
            if not world.ledgers.lets_go:
                lives[0].signal(signal.SIGCONT)  # the other can only wait
        lives.append(Living(world, _other(event, chance, world)))
        patience = PATIENCE_S + (LET_GO_S if inside and world.ledgers.lets_go else 0)
        there = lives[1].until(lambda ending: ending is not Ending.LIVING, patience)
        if there is Ending.LIVING and lives[0].look() is Ending.STOPPED:
            told.counts["the other waited"] += 1  # for a lock of the file system that goes with a process
        if inside and world.ledgers.lets_go:
            told.findings += _let_go(world, told)
        elif world.locked():
            told.counts["stopped inside a write"] += 1
        elif event == "both":
            lives[0].signal(signal.SIGCONT)
            lives[0].until(lambda ending: ending is not Ending.LIVING, PATIENCE_S / 2)
        told.counts["frozen"] += sum(each.look() is Ending.STOPPED for each in lives)
        told.findings += _look(world, lives)
        _wake(world, lives, told)
    finally:
        for each in lives:
            lived = each.end()
            for line in lived.told:
                told.points[line.split("#")[0] + " " + line.split()[-1]] += 1
            # It may have lost a transaction of its start, also one that had not written anything yet.
            lost = world.ledgers.lets_go and told.counts["frozen"] > 0
            if lived.ending in WRONG or (lived.ending is Ending.NOT_STARTED and not lost):
                told.findings.append(f"life: it ended {lived.ending}; {world.root}/lives.log")
    _conclude(world, told)
    told.ended = {item: row["stage"] for item, row in held(world).items()}
    told.seconds = SystemClock().boottime() - began
    return told


def _stop(chance: random.Random) -> Policy:
    """A seeded point at which to stop, a program to stop, or a call that lands late, and then to stop."""
    what = chance.random()
    last = Nth(int(chance.triangular(60, 900, 200)), Freeze())
    named = At(chance.choice((*NAMED, "db.after_commit", "db.before_commit")), Freeze(), _few(chance))
    if what < 0.65:
        return First(named, last)
    if what < 0.85:
        step: Step = Hurt(signal.SIGSTOP, chance.choice((0.0, chance.random() * 0.3)))
        name = chance.choice(CHILDREN)
    else:
        step, name = Late(0.2 + chance.random() * 3), chance.choice(LATE)
    after = At(f"{name}.after", Freeze()) if chance.random() < 0.5 else last
    return First(At(f"{name}.before", step, _few(chance)), after)


def _few(chance: random.Random) -> int:
    return min(8, int(chance.expovariate(0.7)) + 1)


def _other(event: str, chance: random.Random, world: World) -> Life:
    """What the other does while the first is stopped."""
    policy: Policy = First()
    script, fickle = nothing, None
    if event == "both":
        policy = _stop(chance)
    elif event == "gate fails":
        fickle = chance.randrange(10**6)
    elif event == "cancel":
        script = acting([("cancel", chance.choice(("S-2", "S-3")))])
    elif event == "head moved":
        branches = [
            row["branch"] for row in held(world).values() if row["stage"] not in ("done", "cancelled")
        ]
        if chance.random() < 0.6 or not branches:
            world.outsider_pushes("outside")
        else:
            world.stranger_pushes(chance.choice(branches), "by a stranger")
    return Life(policy, script, namespace="two", fickle=fickle, settings=SHORT_TERM)


def _look(world: World, lives: Sequence[Living]) -> list[str]:
    """What the oracle finds while everybody stands still: what moves on between two of its questions would agree with
    neither answer."""
    for each in lives:
        each.signal(signal.SIGSTOP)
    for each in lives:
        each.until(lambda ending: ending is not Ending.LIVING, PATIENCE_S)
    return [] if world.locked() and not world.ledgers.lets_go else oracle.at_any_moment(world)


def _let_go(world: World, told: Scenario) -> list[str]:
    """Where the server takes a transaction away from whoever does nothing in it: nobody waits for a lock for long."""
    clock, never = SystemClock(), threading.Event()
    end = clock.boottime() + LET_GO_S
    while world.locked():
        if clock.boottime() > end:
            return ["locks: a process that is stopped inside a write keeps what it has locked"]
        never.wait(POLL_S)
    told.counts["lost its transaction"] += 1
    return []


def _wake(world: World, lives: Sequence[Living], told: Scenario) -> None:
    """Let everything go on, again and again, until all have come to rest."""
    clock = SystemClock()
    end = clock.boottime() + PATIENCE_S * 2
    while clock.boottime() < end and not all(each.look() in GONE for each in lives):
        told.counts["programs stopped"] += world.wake_programs()
        for each in lives:
            if each.look() is Ending.STOPPED:
                each.signal(signal.SIGCONT)
        for each in lives:
            each.until(lambda ending: ending is not Ending.LIVING, 0.3)


def _conclude(world: World, told: Scenario) -> None:
    """People help where they are called; then nothing may be left over, and all must agree."""
    person = Person(world)
    world.wake_programs()
    acts: list[Act] | None = []
    while acts is not None and not told.findings:
        # Of those before it nobody can tell yet that they have ended.
        lived = live(world, Life(script=acting(acts), polite=True, namespace="three"))
        if lived.ending is not Ending.REST:
            told.findings.append(f"life: it ended {lived.ending}; {world.root}/lives.log")
        acts = person.next() or None
    world.wake_programs()  # also what was stopped by a life that had itself been woken
    if not world.programs_have_ended():
        told.findings.append("programs: something that was started never ends")
    told.findings += oracle.at_the_end(world) if not told.findings else []


if __name__ == "__main__":
    sys.exit(command.main("freeze", __doc__, run))
