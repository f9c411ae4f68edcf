"""A sweep that leaves none: ends every process whose environment holds a marker, and on request all descendants.

What must hold: a sweep that returns nothing has seen every marked process dead. One look at /proc is not enough for
that. A process shows no environment for a moment while it executes another program, and again from when its memory
is given up until it is dead; and what it starts in passing may stand in no list that was made before. So whoever shows
nothing where something should be is waited for, a list counts only when a newer one has nobody in it who has not been
looked at, and a look that found somebody is followed by another, whether or not that one was still there to be ended.
"""

import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from orchestrator.runtime.process import ZOMBIE_STATES, may_have_environment, process_state

SWEEP_SECONDS = 10.0  # a process that SIGKILL does not end within this hangs in the kernel
UNCLEAR_SECONDS = 3.0  # far longer than a process takes to execute a program, or to end
SWEEP_PAUSE = 0.02
LISTS = 50  # of one look; each holds only those who were started since the one before
PARENT_FIELD = 1  # field 4 of /proc/<pid>/stat, counted after the command's closing parenthesis


class ProcessTable(Protocol):
    """What a sweep sees and does."""

    def pids(self) -> set[int]:
        """Everybody but this process."""
        ...

    def environ(self, pid: int) -> Collection[bytes] | None:
        """Its environment; empty where it is gone or another user's: not ours to end. None: not to be told just now."""
        ...

    def ended(self, pid: int) -> bool:
        """Whether it is dead, down to its last thread."""
        ...

    def parent(self, pid: int) -> int | None:
        """Whose child it is; None where it is gone."""
        ...

    def kill(self, pid: int) -> None:
        """SIGKILL, if it is still there and ours."""
        ...


class ProcTable:
    """The machine's, from /proc."""

    def pids(self) -> set[int]:
        """Everybody but this process; see :class:`ProcessTable`."""
        return {int(name) for name in os.listdir("/proc") if name.isdecimal()} - {os.getpid()}

    def environ(self, pid: int) -> Collection[bytes] | None:
        """As the kernel shows it; see :class:`ProcessTable`."""
        try:
            text = _shown(f"/proc/{pid}")
            if not text and not may_have_environment(pid):
                return ()
            text = text or _of_a_thread(pid)
        except OSError:
            return ()
        return text.split(b"\0") if text else None

    def ended(self, pid: int) -> bool:
        """Zombies are dead; see :class:`ProcessTable`."""
        return process_state(pid) in (*ZOMBIE_STATES, None)

    def parent(self, pid: int) -> int | None:
        """As the kernel shows it; see :class:`ProcessTable`."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        return int(text[text.rindex(")") + 2 :].split()[PARENT_FIELD])

    def kill(self, pid: int) -> None:
        """SIGKILL; see :class:`ProcessTable`."""
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


def sweep(
    marker: str,
    *,
    spare: Callable[[], Collection[str]] = tuple,
    descendants: bool = False,
    reap: Callable[[], object] | None = None,
    seconds: float = SWEEP_SECONDS,
    table: ProcessTable | None = None,
) -> tuple[int, ...]:
    """SIGKILL every process whose environment holds ``marker`` (``NAME=value``) until none is left.

    :param spare: those whose environment holds one of these as well are left alone. Asked after each look, so that who
        had begun before it is among them.
    :param descendants: also everything below this process, marked or not (it must be a subreaper for that to be all).
    :param reap: collects what has ended and is a child of ours.
    :return: pids that could not be ended in time: they hang in the kernel or belong to another user.
    """
    table = table or ProcTable()
    began = time.monotonic()
    while True:
        found, unclear = _look(table, marker)
        spared = {os.fsencode(mark) for mark in spare()}
        ours = {pid for pid, environ in found.items() if spared.isdisjoint(environ)}
        below = _below(table, os.getpid()) if descendants else set()
        left = {pid for pid in ours | below if not table.ended(pid)}
        for pid in left:
            table.kill(pid)
        if reap is not None:
            reap()
        waited = time.monotonic() - began
        if not ours and not left and (not unclear or waited > min(UNCLEAR_SECONDS, seconds)):
            return ()
        if waited > seconds:
            return tuple(sorted(left))
        time.sleep(SWEEP_PAUSE)


def marked(marker: str) -> tuple[int, ...]:
    """Processes, zombies aside, whose environment holds ``marker``; whoever shows none just now is left out."""
    table = ProcTable()
    found, _ = _look(table, marker)
    return tuple(sorted(pid for pid in found if not table.ended(pid)))


def _look(table: ProcessTable, marker: str) -> tuple[dict[int, Collection[bytes]], set[int]]:
    """Those who hold the marker, with all that they hold, and those of whom it cannot be told yet.

    Also those are not to be told of who were the news of every list and gone before they could be looked at: what they
    have started may be ahead of all lists.
    """
    wanted = os.fsencode(marker)
    looked_at: set[int] = set()
    found: dict[int, Collection[bytes]] = {}
    unclear: set[int] = set()
    for _ in range(LISTS):
        new = table.pids() - looked_at
        if not new:
            return found, unclear
        looked_at |= new
        for pid in new:
            environ = table.environ(pid)
            if environ is None:
                unclear.add(pid)
            elif wanted in environ:
                found[pid] = environ
    return found, unclear | {pid for pid in new if table.ended(pid)}


def _below(table: ProcessTable, root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid in table.pids():
        parent = table.parent(pid)
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), []):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found


def _of_a_thread(pid: int) -> bytes:
    """The environment as a thread shows it whose leader has ended: the leader itself has none any more."""
    shown = (_shown(f"/proc/{pid}/task/{thread}") for thread in os.listdir(f"/proc/{pid}/task"))
    return next((text for text in shown if text), b"")


def _shown(folder: str) -> bytes:
    """Nothing where there is no memory to read: some kernels say so by an error.

    :raises OSError: it is another user's.
    """
    try:
        return Path(folder, "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
