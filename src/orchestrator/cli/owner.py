"""How a command finds the process that owns the state folder: ``api.json`` beside the database.

What must hold: the file is 0600 and complete; it is written once the address answers and removed at the end by its
writer alone, who gives it back to one that lives; a file whose writer is dead is stale and believed by nobody.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from orchestrator.db.file_lock import lock_of
from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.files import read_bounded, replace_durably
from orchestrator.runtime.process import Liveness, Processes, ProcessIdentity

log = structlog.get_logger(__name__)

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
def announced(home: Path, owner: Owner, processes: Processes) -> Iterator[Callable[[], None]]:
    """Tell commands where this process answers, for the length of the block. What is yielded, called now and then, says
    so again where the file is gone or names one that is dead: on PostgreSQL several live in one folder.

    :raises OSError: the state folder cannot be written.
    """
    place = _Place(home, owner, processes)
    place.take()
    try:
        yield place.keep
    finally:
        place.leave()


class _Place:
    """The file, as one of those who may live in its folder sees it."""

    def __init__(self, home: Path, owner: Owner, processes: Processes) -> None:
        self._home, self._owner, self._processes = home, owner, processes
        self._lock = threading.Lock()
        self._left = False
        self._before: Owner | None = None  # who was there, and has it back if it lives
        self._written: tuple[int, int] | None = None

    def take(self) -> None:
        """Write it, whoever is there: the newest answers commands."""
        self._before = owner_of(self._home, self._processes, shared=True)
        self._write(self._owner)

    def keep(self) -> None:
        """Write it again where nobody who may live is named. A look at the file's number, mostly."""
        with self._lock:
            try:
                if self._left or self._seen() == self._written:
                    return
                if owner_of(self._home, self._processes) is None:
                    self._write(self._owner)
            except (OSError, OutsideError) as error:  # the next look may do
                log.warning("where this service answers could not be written down", reason=str(error))

    def leave(self) -> None:
        """Take away what is one's own, and nothing else."""
        with self._lock:
            self._left = True
            with suppress(OSError, OutsideError, ValueError, KeyError, TypeError):  # a left file is stale
                if json.loads(read_bounded(self._home / FILE, _LIMIT))["token"] != self._owner.token:
                    return
                if self._before and self._processes.liveness(self._before.process) is Liveness.ALIVE:
                    self._write(self._before)
                else:
                    (self._home / FILE).unlink()

    def _write(self, owner: Owner) -> None:
        replace_durably(self._home / FILE, json.dumps(asdict(owner), indent=1).encode())
        self._written = self._seen()

    def _seen(self) -> tuple[int, int] | None:
        try:
            found = (self._home / FILE).stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns
