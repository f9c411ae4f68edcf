"""A detached command with all that it started in its own session: whether any of it still runs, and ending it.

The leader's pid names the session. The kernel does not give that number away while a member is left, so one proven
member proves them all: the leader itself (also as a zombie), or any process whose environment holds the marker that the
command was started with. What has moved into a session of its own, such as a service, is no member and is left alone.
Whatever cannot be proved is *unknown*, never *ended*. A list of processes is old when it is read: a member may have
started another and ended meanwhile. So nobody counts as left only once a newer list holds nobody who was not looked at.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from orchestrator.runtime.clock import Clock
from orchestrator.runtime.process import (
    ZOMBIE_STATES,
    ProcessIdentity,
    machine_boot_id,
    pid_namespace,
    process_state,
    start_ticks,
)

POLL_S = 0.02
LISTS = 50  # of one look; each holds only those who were started since the one before
# Fields of /proc/<pid>/stat, counted after the command's closing parenthesis.
GROUP_FIELD = 2
SESSION_FIELD = 3


class SessionState(StrEnum):
    """What can be proved about a session."""

    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Sessions(Protocol):
    """What the product may do with a detached command's session. ``marker`` is one ``NAME=value``."""

    def state(self, leader: ProcessIdentity, marker: str) -> SessionState:
        """Whether any member still runs."""
        ...

    def signal(self, leader: ProcessIdentity, marker: str, signum: int) -> SessionState:
        """Signal every member if the session is proved to be this one; returns the state found before."""
        ...


def listed() -> Iterable[int]:
    """The machine's processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


class SystemSessions:
    """The real thing, on Linux."""

    def __init__(self, processes: Callable[[], Iterable[int]] = listed) -> None:
        self._listed = processes

    def state(self, leader: ProcessIdentity, marker: str) -> SessionState:
        """Whether any member still runs; see :class:`Sessions`."""
        return self._look(leader, marker)[0]

    def signal(self, leader: ProcessIdentity, marker: str, signum: int) -> SessionState:
        """Signal every process group of the session; see :class:`Sessions`."""
        state, members = self._look(leader, marker)
        if state is SessionState.RUNNING:
            for group in sorted({member.group for member in members}):
                _signal_group(group, signum)
        return state

    def _look(self, leader: ProcessIdentity, marker: str) -> tuple[SessionState, list["_Member"]]:
        if leader.machine_boot_id != machine_boot_id() or leader.pid_namespace != pid_namespace():
            return SessionState.UNKNOWN, []
        ticks = start_ticks(leader.pid)
        if ticks is not None and ticks != leader.start_ticks:
            return SessionState.ENDED, []  # the number was given away, so nobody was left
        members, complete = self._members(leader.pid, marker)
        running = [member for member in members if member.state not in ZOMBIE_STATES]
        if not running:
            hidden = not complete or (not members and _refused(leader.pid))
            return (SessionState.UNKNOWN if hidden else SessionState.ENDED), []
        if ticks is not None or any(member.marked for member in running):
            return SessionState.RUNNING, running
        return SessionState.UNKNOWN, []

    def _members(self, session: int, marker: str) -> tuple[list["_Member"], bool]:
        """Who was found in the session, and whether nobody can be missing."""
        looked_at: set[int] = set()
        found: list[_Member] = []
        for _ in range(LISTS):
            new = set(self._listed()) - looked_at
            if not new:
                return found, True
            looked_at |= new
            found += [member for pid in sorted(new) if (member := _member(pid, session, marker)) is not None]
        return found, False


@dataclass(frozen=True, slots=True)
class _Member:
    pid: int
    state: str
    group: int
    marked: bool


def end_session(
    sessions: Sessions, clock: Clock, leader: ProcessIdentity, marker: str, *, grace_s: float, kill_s: float
) -> bool:
    """SIGTERM, ``grace_s`` seconds to comply, then SIGKILL for up to ``kill_s`` seconds; True iff the end is proved."""
    never = threading.Event()
    asked = clock.boottime()
    state = sessions.signal(leader, marker, signal.SIGTERM)
    while state is SessionState.RUNNING and clock.boottime() - asked < grace_s:
        clock.wait(never, POLL_S)
        state = sessions.state(leader, marker)
    killing = clock.boottime()
    while state is not SessionState.ENDED:
        state = sessions.signal(leader, marker, signal.SIGKILL)
        if clock.boottime() - killing >= kill_s:
            break
        if state is not SessionState.ENDED:
            clock.wait(never, POLL_S)
    return state is SessionState.ENDED


def _member(pid: int, session: int, marker: str) -> _Member | None:
    """A process as a member of the session; None where it is none, or has just ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split() if ")" in text else []
    if len(fields) <= SESSION_FIELD or int(fields[SESSION_FIELD]) != session:
        return None
    return _Member(pid, process_state(pid) or "X", int(fields[GROUP_FIELD]), _marked(pid, marker))


def _marked(pid: int, marker: str) -> bool:
    try:
        return marker.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _signal_group(group: int, signum: int) -> None:
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        return  # ended meanwhile, or another user's: the state asked for next will say so


def _refused(group: int) -> bool:
    """True where a group lives that /proc does not show and that may not be signalled."""
    try:
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False
