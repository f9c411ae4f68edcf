"""A detached command with all that it started in its own session: whether any of it still runs, and ending it.

The leader's pid names the session. The kernel does not give that number away while a member is left, so one proven
member proves them all: the leader itself (also as a zombie), or any process whose environment holds the marker that the
command was started with. What has moved into a session of its own, such as a service, is no member and is left alone.
Whatever cannot be proved is *unknown*, never *ended*.
"""

import os
import signal
import threading
from collections.abc import Iterator
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


class SystemSessions:
    """The real thing, on Linux."""

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
        members = list(_members(leader.pid))
        running = [member for member in members if member.state not in ZOMBIE_STATES]
        if not running:
            hidden = not members and _refused(leader.pid)
            return (SessionState.UNKNOWN if hidden else SessionState.ENDED), []
        if ticks is not None or any(_marked(member.pid, marker) for member in running):
            return SessionState.RUNNING, running
        return SessionState.UNKNOWN, []


@dataclass(frozen=True, slots=True)
class _Member:
    pid: int
    state: str
    group: int


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


def _members(session: int) -> Iterator[_Member]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it has just ended
        fields = text[text.rindex(")") + 2 :].split() if ")" in text else []
        if len(fields) > SESSION_FIELD and int(fields[SESSION_FIELD]) == session:
            pid = int(entry.name)
            yield _Member(pid, process_state(pid) or "X", int(fields[GROUP_FIELD]))


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
