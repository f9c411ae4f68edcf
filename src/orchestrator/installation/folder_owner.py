"""Whose a state folder is. What we write there is readable for our user alone, so that a command of another user, root
above all, would leave files that the service cannot open.

Compared is whose the lock is, which every installation makes first and nobody but its owner can open, with whose a file
is that is made now. The number of the process itself says nothing: in a user namespace, on a share that makes root
nobody, or on one that gives every file to one user, it is another, and all is well. A folder in which nothing was made
yet may be its administrator's and be lent to our group, as container platforms do it; only root has to look at whose
it is.
"""

import os
import pwd
from pathlib import Path

from orchestrator.domain.errors import ForeignState
from orchestrator.runtime.files import uid_of_new

ROOT = 0


def refuse_anothers(home: Path, lock: Path) -> None:
    """Refuse a state folder that is another user's.

    :raises ForeignState: it is; nothing was written.
    """
    owner = another_owner(home, lock)
    if owner is not None:
        raise ForeignState(
            f"The state in {home} belongs to {owner}, and this runs as {_named(os.geteuid())}: what it wrote there, "
            f"{owner} could not open. Nothing was changed.",
            hint=what_to_do(home, owner),
        )


def what_to_do(home: Path, owner: str) -> str:
    """What to do about it."""
    return (
        f"Run it as {owner}, with the settings of its service: beside a systemd unit `packaging/orch` does that. "
        f"Or stop all that works there, and give {home} and everything in it to this user."
    )


def another_owner(home: Path, lock: Path) -> str | None:
    """The user to whom the state belongs, where that is not who would own what we write; None also where it cannot be
    looked at or written, which is told by whoever uses it."""
    try:
        if lock.exists():
            owner, ours = lock.stat().st_uid, uid_of_new(lock.parent)
        else:
            owner, ours = home.stat().st_uid, uid_of_new(home)
            if ours != ROOT:
                return None
    except OSError:
        return None
    return None if owner == ours else _named(owner)


def _named(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
