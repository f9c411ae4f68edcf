"""A database that is put back from a copy, lives later: what the copy knew, when it happens, and who acts too early.

The copy is made and put back as ``docs/how-to/backup-and-restore.md`` tells, while the service is dead; what it has
started may still be at work. From then on, until a person has accepted, the service must do nothing outside: every way
out that a life passes before that is written down beside the world, and the oracle finds it.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.forges.local_mark import MARK
from tests.proofs import scheduler
from tests.proofs.lives import Life
from tests.proofs.outside import FORGE, STORE
from tests.proofs.people import acting
from tests.proofs.scheduler import At, First, Kill, Nth, Point, Policy, Step
from tests.proofs.world import World

TROUBLES: Mapping[str, float] = {"two": 3, "broken": 2, "again": 1.5, "cancel": 1, "outsider": 1, "early": 2}
"""What else happens in such a world."""

ACTS = frozenset(
    f"{prefix}.{name}.before" for prefix, names in (("forge", FORGE), ("store", STORE)) for name in names
)
PROGRAMS = ("spawn.", "run.")  # agents, deploys, checks and builds
CLAIMING = tuple(name for name in scheduler.NAMED if name.startswith("installation."))
ACCEPTED = "SELECT count(*) AS times FROM events WHERE type = 'installation.accepted'"
IMPATIENT = 0.15  # how often a person asks for something in a life in which nothing may be done
NEVER = 10**6  # it is put back once everything has come to its end
AGAIN = 0.2  # how often the same copy is put back once more


def accepted(world: World) -> bool:
    """Whether a person has accepted the database as it is."""
    return bool(world.rows(ACCEPTED)[0]["times"] > world.rows(ACCEPTED, of=world.backup)[0]["times"])


def not_accepted(world: World) -> bool:
    """Whether this is a copy that was put back, and nobody has accepted it yet."""
    return bool(world.lost) and not accepted(world)


class Watch:
    """Does as another policy says, and writes down what is done outside before a person has accepted."""

    def __init__(self, world: World, policy: Policy) -> None:
        self._world, self._policy = world, policy
        self._behind = not_accepted(world)

    def choose(self, point: Point) -> Step:
        if self._behind and _acts(point):
            self._behind = not_accepted(self._world)
            if self._behind:
                with (self._world.root / "acted").open("a") as note:
                    note.write(f"{point} by {point.actor}\n")
        return self._policy.choose(point)


def _acts(point: Point) -> bool:
    return point.name in ACTS or (point.name.endswith(".before") and point.name.startswith(PROGRAMS))


@dataclass
class Restores:
    """Of one scenario: the same seed makes and puts back the copy before the same lives."""

    world: World
    chance: random.Random
    copied: int  # before this life the copy is made
    back: int  # before this one, or a later one, it is put back

    @classmethod
    def of(cls, world: World, chance: random.Random, kills: int) -> "Restores":
        """Early enough that there are kills left for what comes after it."""
        copied = 0 if chance.random() < 0.3 else chance.randrange(max(1, kills // 3))
        later = NEVER if chance.random() < 0.35 else 1 + chance.randrange(max(1, kills // 2))
        return cls(world, chance, copied, copied + later)

    def before(self, life: int, *, over: bool = False) -> bool:
        """Make the copy or put it back, if it is time; ``over``: nothing else is left to be done. True where it was
        put back."""
        if not self.world.backup.exists() and (life >= self.copied or over):
            self.world.back_up()
            return False
        if self.back < 0 or not self.world.backup.exists() or not (life >= self.back or over):
            return False
        if not self._can_be_noticed():
            return False
        if self.chance.random() < 0.5:  # whoever puts it back has seen to it that nothing runs any more
            self.world.wake_programs()
            self.world.programs_have_ended()
        self.world.put_back()
        again = len(self.world.lost) == 1 and self.chance.random() < AGAIN
        self.back = life + 1 + self.chance.randrange(12) if again else -1
        return True

    def life(self, life: Life, *, free: bool) -> Life:
        """A life of such a world: watched while it may do nothing; often it ends while a person accepts, unless it is
        ``free``."""
        waits = not free and not_accepted(self.world)
        if waits and self.chance.random() < IMPATIENT:
            said = (self.chance.choice(("retry", "cancel", "file")), self.chance.choice(("S-2", "S-3")))
            life = replace(life, script=acting([said]))
        if waits and self.chance.random() < 0.5:
            occurrence = self.chance.randint(1, 2)
            early: Policy = At(self.chance.choice(CLAIMING), Kill(), occurrence)
            if self.chance.random() < 0.5:
                early = At(self.chance.choice(scheduler.COMMITS), Kill(), self.chance.randint(1, 16))
            life = replace(life, policy=First(early, Nth(int(self.chance.triangular(30, 300, 80)), Kill())))
        return replace(life, policy=Watch(self.world, life.policy))

    def _can_be_noticed(self) -> bool:
        """A life since the copy has raised the mark: one that has done nothing at all cannot be told, nor repeated."""
        mark = self.world.forge.git("cat-file", "-p", MARK, check=False).split()
        known = {
            row["start_id"]
            for row in self.world.rows("SELECT start_id FROM installation_starts", of=self.world.backup)
        }
        return bool(mark) and mark[-1] not in known
