"""The kill sweep: ``python -m tests.proofs.kill --from SEED --count N``.

Each scenario is an installation with two tasks that both want staging. Life after life of the whole service is ended by
SIGKILL at a seeded point, before or after it took effect, or anywhere; or one of its programs is: git between the
prepare and the commit of a transaction, a deploy's runner, an agent's supervisor. Some programs are stopped instead and
go on lives later; some calls are accepted, cut off, and land late. Versions are broken in production, undone, repaired
and started again; people cancel; outsiders push to main; the database is put back from a copy; the service
delivers itself; forge and tickets are at servers elsewhere. In the end the oracle has to find that all agree.
"""

import random
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from orchestrator.runtime.clock import SystemClock
from orchestrator.wiring import App
from tests.proofs import command, letters, oracle, scheduler
from tests.proofs.house import FORGES
from tests.proofs.letters import Post
from tests.proofs.lives import Ending, Life, Lived, Script, live, nothing
from tests.proofs.outside import OUTSIDE_POINTS
from tests.proofs.people import Person, acting
from tests.proofs.report import Scenario
from tests.proofs.restores import TROUBLES, Restores, not_accepted
from tests.proofs.scheduler import EFFECTS, At, First, Hurt, Kill, Late, Nth, Policy, around
from tests.proofs.selves import HOW, Selves
from tests.proofs.selves import TROUBLES as SELVES
from tests.proofs.servers import Servers, playing
from tests.proofs.templates import DELIVERED, TESTED, file_two
from tests.proofs.world import World, held

KILLS = 40  # of a scenario; then it may live
LIVES = 150
SECOND, THIRD = "change_S_2.py", "change_S_3.py"
PROGRAMS = ("git.update-ref", "git.fetch", "git.merge-tree", "git.commit-tree", "run.checks", "run.build")
LATE = ("git.update-ref", "spawn.deploy.runner")  # calls that can land when their caller is long gone
CHILDREN = ("git.update-ref", "spawn.deploy.runner", "spawn.agents.supervisor")
NAMED = (*EFFECTS, *scheduler.NAMED, *OUTSIDE_POINTS, *around(*PROGRAMS, *CHILDREN))
INBOX = ("inbox.before_handle", "inbox.after_handle")
SHAPES: Mapping[str, float] = {
    "two": 3,  # both want staging, both are delivered
    "broken": 2,  # the one that is first in production does not come up; the other is its fix
    "again": 1.5,  # it does not come up, is undone, and the same SHA is started again
    "cancel": 1.5,  # a person cancels one of them
    "outsider": 1.5,  # somebody pushes to main
    "fickle": 1,  # gates change their mind
    "early": 1,  # from the filing on
    "letters": 2,  # people are asked, and answer by tracker and forge; deliveries come twice, late, out of order
}
RESTORED, SELF, OLDER = "restored", "self", "older"
APART: Mapping[str, float] = {  # drawn apart, so that every other seed chooses what it chose without them
    RESTORED: 1.5,  # lives later the database is put back from a copy, and a person accepts it
    SELF: 1,  # production is the service itself: each deploy of it ends a life, and the next is another version
    OLDER: 1,  # neither comes up: both are undone, and people ask at any time for either to be started again
}
AT_SERVERS = tuple(
    FORGES
)  # forge and tickets are at played servers; such a world is made anew, so only where asked for
LOST = {
    "tasks": "SELECT work_item FROM tasks",
    "merges": "SELECT key FROM effects WHERE name = 'merge_pr' AND state = 'applied'",
    "starts": "SELECT key FROM effects WHERE name = 'deploy_init' AND state = 'applied'",
    "undos": "SELECT key FROM effects WHERE name = 'deploy_undo' AND state = 'applied'",
}


def run(
    seed: int,
    world: World,
    templates: Mapping[str, Path],
    *,
    kills: int = KILLS,
    shape: str | None = None,
) -> Scenario:
    """One scenario: the same seed makes the same choices."""
    with ExitStack() as stack:
        return _play(seed, world, templates, stack, kills=kills, shape=shape)


def _play(
    seed: int,
    world: World,
    templates: Mapping[str, Path],
    stack: ExitStack,
    *,
    kills: int,
    shape: str | None,
) -> Scenario:
    began, chance = SystemClock().boottime(), random.Random(seed)
    drawn = chance.choices(list(SHAPES), list(SHAPES.values()))[0]
    shape = shape or _drawn_apart(seed) or drawn
    told, restores, selves, servers = Scenario(seed, shape), None, None, None
    if shape == RESTORED:
        restores = Restores.of(world, random.Random(f"restores of {seed}"), kills)
        shape = chance.choices(list(TROUBLES), list(TROUBLES.values()))[0]
    elif shape == SELF:
        selves = Selves(world, random.Random(f"selves of {seed}"))
        shape = chance.choices(list(SELVES), list(SELVES.values()))[0]
    elif shape in AT_SERVERS:
        servers = stack.enter_context(playing(world, shape, random.Random(f"servers of {seed}")))
    early = shape == "early" or (shape == "letters" and chance.random() < 0.3)
    if servers is None:
        world.come_from(templates[DELIVERED if early else TESTED])
    world.roll(seed)
    post = Post(world, random.Random(seed)) if shape == "letters" else None
    if post is not None:
        post.open()
    if shape in ("broken", "again"):
        first = chance.choice((SECOND, THIRD))
        cure = {SECOND: THIRD, THIRD: SECOND}[first] if shape == "broken" else "-"
        how = chance.choice(("shown", "fails") if selves is None else HOW)
        world.sicken(f"{first} {cure} {how}")
    elif shape == OLDER:
        world.sicken(*(f"{file} - {chance.choice(('shown', 'fails'))}" for file in (SECOND, THIRD)))
    if selves is not None:
        selves.begin()
    person, wanted, over = Person(world, post), file_two if early else nothing, False
    while told.counts["lives"] < LIVES and not told.findings:
        if restores is not None and restores.before(told.counts["lives"], over=over):
            told.counts["restores"] += 1
            told.counts.update(_lost(world))
            wanted, kills = nothing, max(kills, told.counts["kills"] + kills // 3)
        elif over:
            break
        over, free = False, told.counts["kills"] >= kills
        if free or chance.random() < 0.3:
            told.counts["programs stopped"] += world.wake_programs()
        life = Life(polite=chance.random() < 0.5) if free else _life(shape, chance, world)
        if restores is not None:
            life = restores.life(life, free=free)
        for dressed in (selves, servers):
            life = dressed.life(life, free=free) if dressed is not None else life
        script = _both(wanted, life.script)
        if post is not None:
            post.meanwhile()
            script = _both(post.taking_in(everything=free), script)
        lived = live(world, replace(life, script=script))
        _count(told, lived)
        told.counts["kills before a restore was accepted"] += lived.ending is Ending.KILLED and not_accepted(
            world
        )
        if chance.random() < 0.3 or lived.ending is not Ending.KILLED:
            told.findings += oracle.at_any_moment(world)
        if lived.ending is Ending.REST:
            told.findings += letters.unheard(world)
            acts = person.next()
            if not acts and not (post is not None and post.waiting()):
                over = True
                continue
            wanted = acting(acts)
        elif lived.ending is not Ending.KILLED:
            told.findings.append(f"life: it ended {lived.ending}; {world.root}/lives.log")
    told.findings += _last_look(world, selves or servers) if not told.findings else []
    for counted in (selves, servers):
        told.counts.update(counted.counts if counted is not None else ())
    told.ended = {item: row["stage"] for item, row in held(world).items()}
    told.seconds = SystemClock().boottime() - began
    return told


def _drawn_apart(seed: int) -> str | None:
    rest = sum(SHAPES.values())
    drawn = (n for n, w in APART.items() if random.Random(f"{n} {seed}").random() < w / (w + rest))
    return next(drawn, None)


def _lost(world: World) -> dict[str, int]:
    """What the copy that was put back does not know."""
    seen = oracle.Seen(world)
    return {f"lost {what}": len(seen.of_lost_time(question)) for what, question in LOST.items()}


def _last_look(world: World, more: Selves | Servers | None) -> list[str]:
    """Once every stopped program has been woken and every late call has landed, and the service has seen it."""
    world.wake_programs()
    if not world.programs_have_ended():
        return ["programs: something that was started never ends"]
    if isinstance(more, Servers):
        more.settle()
    last = Life(polite=True)
    lived = live(world, last if more is None else more.life(last, free=True))
    if isinstance(more, Servers):
        more.settle()
    return (
        oracle.at_the_end(world)
        if lived.ending is Ending.REST
        else [f"life: the last one ended {lived.ending}"]
    )


def _both(one: Script, other: Script) -> Script:
    def script(app: App) -> None:
        one(app)
        other(app)

    return script


def _life(shape: str, chance: random.Random, world: World) -> Life:
    """A life and how it ends."""
    policy, kill_after = _end(chance)
    meanwhile, script = None, nothing
    if shape == "cancel" and chance.random() < 0.1:
        script = _asking("cancel", chance.choice(("S-2", "S-3")), chance.random() * 0.3)
    if shape == OLDER and chance.random() < 0.3:
        script = _asking("retry", chance.choice(("S-2", "S-3")), chance.random() * 0.3)
    if shape in ("outsider", OLDER) and chance.random() < 0.1:
        name = f"outside-{chance.randrange(10**6)}"
        meanwhile = (chance.random() * 0.5, lambda: world.outsider_pushes(name))
    if shape == "letters" and chance.random() < 0.3:
        policy = First(At(chance.choice(INBOX), Kill(), _few(chance)), policy)
    fickle = chance.randrange(10**6) if shape == "fickle" and chance.random() < 0.2 else None
    return Life(policy, script, kill_after=kill_after, meanwhile=meanwhile, fickle=fickle)


def _asking(verb: str, item: str, after: float) -> Script:
    """A person asks for something after so many seconds."""

    def script(app: App) -> None:
        threading.Event().wait(after)
        acting([(verb, item)])(app)

    return script


def _end(chance: random.Random) -> tuple[Policy, float | None]:
    """A seeded point, anywhere, or the end of one of its programs; where that is not reached, a later point of all."""
    what = chance.random()
    soon = Nth(int(chance.triangular(10, 220, 50)), Kill())
    later = Nth(int(chance.triangular(30, 400, 100)), Kill())
    if what < 0.4:
        return First(At(chance.choice(NAMED), Kill(), _few(chance)), later), None
    if what < 0.6:
        return At(chance.choice(scheduler.COMMITS), Kill(), chance.randint(1, 25)), None
    if what < 0.75:
        signum = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
        and_us = chance.random() < 0.5 or signum == signal.SIGSTOP
        hurt = Hurt(signum, chance.choice((0.0, chance.random() * 0.3)), and_us=and_us)
        return First(At(f"{chance.choice(CHILDREN)}.before", hurt, _few(chance)), later), None
    if what < 0.85:
        late = At(f"{chance.choice(LATE)}.before", Late(0.1 + chance.random()), _few(chance))
        return First(late, later), None
    return soon, 0.05 + chance.random() * 0.4


def _few(chance: random.Random) -> int:
    return min(5, int(chance.expovariate(0.8)) + 1)


def _count(told: Scenario, lived: Lived) -> None:
    told.counts["lives"] += 1
    told.counts["programs hit"] += sum(line.endswith("Hurt") for line in lived.told)
    told.counts["late calls"] += sum(line.endswith("Late") for line in lived.told)
    if lived.ending is Ending.KILLED:
        told.counts["kills"] += 1
    for line in lived.told:
        told.points[f"{line.split('#')[0]} {line.split()[-1]}"] += 1
    if lived.ending is Ending.KILLED and not lived.told:
        told.points["anywhere"] += 1


if __name__ == "__main__":
    sys.exit(command.main("kill", __doc__, run, shapes=(*SHAPES, *APART, *AT_SERVERS)))
