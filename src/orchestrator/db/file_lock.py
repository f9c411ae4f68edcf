"""One process owns a SQLite file: an operating-system lock beside it (DESIGN §8).

The lock dies with the process, whatever kills it; it is not inherited by children.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.domain.errors import DatabaseError, StateInUse


@contextmanager
def own_file(path: Path, *, role: str) -> Iterator[None]:
    """Hold ``<path>.lock`` for the length of the block.

    :raises StateInUse: another process holds it; its pid and role are named.
    :raises DatabaseError: the folder is not writable.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DatabaseError(
            f"The state folder cannot be used: {error.strerror} ({lock}).",
            hint="Make it writable for this user, or name another one in ORCH_HOME.",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "another process"
            raise StateInUse(
                f"The state in {path.parent} is in use by {holder}.",
                hint="One process owns it: stop that one, or let commands talk to it.",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"orch {role} (pid {os.getpid()})\n".encode(), 0)
        yield
    finally:
        os.close(handle)
