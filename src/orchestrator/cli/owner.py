"""How a command finds the process that owns the state folder: ``api.json`` beside the database.

What must hold: the file is 0600 and complete; it is written once the address answers and removed at the end; a file
whose writer is dead is stale and believed by nobody.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.db.file_lock import lock_of
from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.files import read_bounded, replace_durably
from orchestrator.runtime.process import Liveness, Processes, ProcessIdentity

FILE = "api.json"
_LIMIT = 16 * 1024


@dataclass(frozen=True, slots=True)
class Owner:
    """Where the owner answers, with what token, and which process it is."""

    url: str
    token: str
    role: str
    process: ProcessIdentity


def owner_of(home: Path, processes: Processes, *, shared: bool = False) -> Owner | None:
    """The owner that says where it answers; None where there is none, or the file is stale or not ours. ``shared``: the
    folder is one of several machines, and the owner is asked only if it is seen to live on this one."""
    try:
        data = json.loads(read_bounded(home / FILE, _LIMIT))
        process = ProcessIdentity(**data["process"])
        owner = Owner(str(data["url"]), str(data["token"]), str(data["role"]), process)
    except (OSError, OutsideError, ValueError, KeyError, TypeError):
        return None
    alive = processes.liveness(owner.process)
    return None if alive is Liveness.DEAD or (shared and alive is not Liveness.ALIVE) else owner


def holder_of(database: Path) -> str | None:
    """Who holds the lock on a database, by its own words; None where nobody does. Takes no lock to find out."""
    lock = lock_of(database)
    try:
        inode = lock.stat().st_ino
        held = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        words = lock.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    fields = [line.split() for line in held]
    taken = any("FLOCK" in field and f":{inode}" in field[5] for field in fields if len(field) > 5)
    return (words or "another process") if taken else None


@contextmanager
def announced(home: Path, owner: Owner) -> Iterator[None]:
    """Tell commands where this process answers, for the length of the block.

    :raises OSError: the state folder cannot be written.
    """
    path = home / FILE
    replace_durably(path, json.dumps(asdict(owner), indent=1).encode())
    try:
        yield
    finally:
        with suppress(OSError, ValueError, KeyError, TypeError):  # a left file is recognised as stale
            if json.loads(read_bounded(path, _LIMIT))["token"] == owner.token:  # another may have come since
                path.unlink()
