"""Few packs instead of hundreds: git gets slower with each pack and loose object that it has to look through.

Must hold: no object is ever dropped, reachable or not, for agents' repositories borrow them. Packs are joined whole and
loose objects packed whatever names them (geometric repacking asks for no reachability); what git removes afterwards is
in the new pack. No writer of ours moves references meanwhile: the repository's own lock is held exclusively, by git
too, so that it is held for as long as git lives. Who writes or reads objects alone is not in the way: git looks for
packs anew where it misses an object.

On failure the repository is as before but for a pack too many; the next pass removes it.
"""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.runtime.clock import Clock
from orchestrator.runtime.files import untouched_for
from orchestrator.runtime.folder_lock import locked
from orchestrator.runtime.git import Git
from orchestrator.runtime.git_refs import LOCK_FILE, LOCK_WAIT_S

PACK_LIMIT = 50  # where git itself would collect (gc.autoPackLimit)
LOOSE_LIMIT = 1000  # a few dozen tasks; git's own 6,700 is meant for one person's clone
BUSY_WAIT_S = 5.0  # for writers of ours, who are done within milliseconds; else the next pass tries
REPACK_S = 0.75 * LOCK_WAIT_S  # writers wait for our lock no longer than that limit before they give up
LEFTOVER_S = 24 * 3600.0  # no git is at work on a pack for that long
LEFTOVERS = (".tmp-*", "tmp_*")  # what a killed git leaves among the packs
FACTOR = (
    2  # each pack at least twice the next: a large old one is not written anew for the sake of small ones
)


@dataclass(frozen=True, slots=True)
class Clutter:
    """How many places git has to look into for an object."""

    packs: int
    loose: int

    @property
    def much(self) -> bool:
        """Whether repacking is worth its while."""
        return self.packs > PACK_LIMIT or self.loose > LOOSE_LIMIT


def clutter(git_dir: Path) -> Clutter:
    """What lies in the object folder.

    :raises OSError: it cannot be read.
    """
    objects = git_dir / "objects"
    loose = sum(1 for folder in objects.glob("[0-9a-f][0-9a-f]") for _ in folder.iterdir())
    return Clutter(sum(1 for _ in (objects / "pack").glob("*.pack")), loose)


def repack(git: Git, git_dir: Path, clock: Clock) -> bool:
    """Join packs and loose objects if there are many; False where there are few or the repository is in use.

    Takes at most :data:`BUSY_WAIT_S` and :data:`REPACK_S` seconds.

    :raises GitError: git failed or took too long.
    :raises OSError: the repository cannot be read or written.
    """
    if not clutter(git_dir).much:
        return False
    with locked(git_dir / LOCK_FILE, clock, wait_s=BUSY_WAIT_S) as handle:
        if handle is None:
            return False
        for left in untouched_for(git_dir / "objects" / "pack", LEFTOVERS, LEFTOVER_S):
            left.unlink(missing_ok=True)
        git.run(
            ["repack", "-d", "-q", "-n", f"--geometric={FACTOR}"],
            git_dir=git_dir,
            timeout=REPACK_S,
            pass_fds=[handle],
        )
    return True
