"""One process owns a SQLite file: an operating-system lock beside it (DESIGN §8).

The lock dies with the process, whatever kills it; no program inherits it. One that was just being started when its
owner was killed has it until it is a program of its own: for that blink a dead owner's lock is waited for.
"""

import fcntl
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.domain.errors import DatabaseError, StateInUse
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.process import pid_alive

LEFT_S = 5.0  # how long a dead owner's lock is waited for
POLL_S = 0.01


def lock_of(path: Path) -> Path:
    """The lock beside a database."""
    return path.with_name(path.name + ".lock")


@contextmanager
def own_file(path: Path, *, role: str, shared: bool = False) -> Iterator[None]:
    """Hold ``<path>.lock`` for the length of the block.

    ``shared`` is for proofs with several processes on one file, among themselves; no command offers it.

    :raises StateInUse: another process holds it; its pid and role are named.
    :raises DatabaseError: the folder is not writable.
    """
    lock = lock_of(path)
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DatabaseError(
            f"The state folder cannot be used: {error.strerror} ({lock}).",
            hint="Make it writable for this user, or name another one in ORCH_HOME.",
        ) from error
    try:
        _take(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, path)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"orch {role} (pid {os.getpid()})\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _take(handle: int, kind: int, path: Path) -> None:
    clock, never = SystemClock(), threading.Event()
    end = clock.boottime() + LEFT_S
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip()
            named = re.search(r"pid (\d+)", holder)
            if named is None or pid_alive(int(named[1])) or clock.boottime() > end:
                raise StateInUse(
                    f"The state in {path.parent} is in use by {holder or 'another process'}.",
                    hint="One process owns a state folder: stop it, or use another ORCH_HOME. Commands talk to it.",
                ) from None
        clock.wait(never, POLL_S)
