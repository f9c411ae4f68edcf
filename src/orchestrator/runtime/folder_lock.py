"""An advisory lock (flock) on a file, held by a process and by the children it hands the descriptor to.

The kernel frees the lock when the last holder has ended, however it ended; whoever gets it exclusively has the proof
that none of the others lives.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.runtime.clock import Clock

POLL_S = 0.02  # flock has no waiting with a bound


@contextmanager
def locked(path: Path, clock: Clock, *, shared: bool = False, wait_s: float) -> Iterator[int | None]:
    """Hold the lock on ``path`` (created where missing); yields its descriptor, None where ``wait_s`` did not suffice.

    :raises OSError: the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield handle if _acquire(handle, clock, shared, wait_s) else None
    finally:
        os.close(handle)


def _acquire(handle: int, clock: Clock, shared: bool, wait_s: float) -> bool:
    wanted = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    deadline = clock.boottime() + wait_s
    never = threading.Event()
    while True:
        try:
            fcntl.flock(handle, wanted)
        except BlockingIOError:
            if clock.boottime() >= deadline:
                return False
            clock.wait(never, POLL_S)
        else:
            return True
