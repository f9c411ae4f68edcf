"""One supervised program with everything it starts: output without limits on lines, signals, and a sweep that
leaves none.

Agents put each tool command into a session of its own, so a process group says little. Three ties hold the
whole tree: a marker in the environment, which every descendant inherits; the supervisor as subreaper, to
which orphans fall; and the program's own session. A sweep ends whoever hangs on any of them, also after the
supervisor itself has died (marker only).
"""

import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from orchestrator.runtime.process import (
    ZOMBIE_STATES,
    ProcessIdentity,
    machine_boot_id,
    pid_namespace,
    process_state,
    start_ticks,
)

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
READ_BYTES = 256 * 1024
SWEEP_SECONDS = 10.0  # a process that SIGKILL does not end within this hangs in the kernel
SWEEP_PAUSE = 0.02
PARENT_FIELD = 1  # field 4 of /proc/<pid>/stat, counted after the command's closing parenthesis


class Source(IntEnum):
    """Where output came from."""

    STDOUT = 1
    STDERR = 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes as they came; they may end in the middle of a line."""

    source: Source
    data: bytes


class SupervisedProgram:
    """A started program, its two pipes and its exit code."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: Path | None) -> None:
        """Start it in a session of its own.

        :raises OSError: there is no such program, folder or input file, or it may not be executed.
        """
        with (stdin or Path(os.devnull)).open("rb") as source:
            self._child = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=dict(env),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        self._selector = selectors.DefaultSelector()
        for pipe, name in ((self._child.stdout, Source.STDOUT), (self._child.stderr, Source.STDERR)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, name)
        self.identity = identity_of(self._child.pid)
        self.exit_code: int | None = None  # negative: ended by that signal

    def read(self, seconds: float) -> list[Chunk]:
        """What has come, waiting up to ``seconds`` for the first of it; at most one read of each pipe."""
        if not self._selector.get_map():
            time.sleep(seconds)  # both pipes are closed, yet it lives: this is the tick
            return []
        chunks = []
        for key, _ in self._selector.select(seconds):
            try:
                data = os.read(key.fd, READ_BYTES)
            except BlockingIOError:
                continue
            if data:
                chunks.append(Chunk(key.data, data))
            else:
                self._selector.unregister(key.fileobj)
        return chunks

    @property
    def closed(self) -> bool:
        """True when nobody holds either pipe any more."""
        return not self._selector.get_map()

    def reap(self) -> int | None:
        """Collect ended children, adopted orphans included; the program's exit code once it has one."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self._child.pid:
                self.exit_code = self._child.returncode = os.waitstatus_to_exitcode(status)
        return self.exit_code

    def signal(self, signum: int) -> None:
        """Signal the program's process group, unless it has ended."""
        if self.exit_code is None:
            try:
                os.killpg(self._child.pid, signum)
            except (ProcessLookupError, PermissionError):
                return

    def close(self) -> None:
        """Give up the pipes."""
        self._selector.close()
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()


def become_subreaper() -> bool:
    """Let orphaned descendants fall to this process instead of init; False where the kernel refuses."""
    refused: int = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return refused == 0


def identity_of(pid: int) -> ProcessIdentity:
    """One life of a process that is known to run."""
    return ProcessIdentity(machine_boot_id(), pid_namespace(), pid, start_ticks(pid) or 0)


def sweep(
    marker: str,
    *,
    spare: Collection[str] = (),
    descendants: bool = False,
    reap: Callable[[], object] | None = None,
    seconds: float = SWEEP_SECONDS,
) -> tuple[int, ...]:
    """SIGKILL every process whose environment holds ``marker`` (``NAME=value``) until none is left.

    :param spare: those whose environment holds one of these as well are left alone.
    :param descendants: also everything below this process, marked or not (it must be a subreaper for that to be all).
    :param reap: collects what has ended and is a child of ours.
    :return: pids that could not be ended in time: they hang in the kernel or belong to another user.
    """
    end = time.monotonic() + seconds
    while True:
        left = [
            pid
            for pid in _targets(marker, descendants, spare)
            if process_state(pid) not in (*ZOMBIE_STATES, None)
        ]
        if not left:
            return ()
        for pid in left:
            _kill(pid)
        if reap is not None:
            reap()
        if time.monotonic() > end:
            return tuple(left)
        time.sleep(SWEEP_PAUSE)


def marked(marker: str) -> tuple[int, ...]:
    """Processes, zombies aside, whose environment holds ``marker``."""
    return tuple(pid for pid in _targets(marker, False) if process_state(pid) not in (*ZOMBIE_STATES, None))


def _targets(marker: str, descendants: bool, spare: Collection[str] = ()) -> set[int]:
    own, wanted, spared = os.getpid(), os.fsencode(marker), {os.fsencode(mark) for mark in spare}
    pids = set(_pids())
    found = {
        pid
        for pid in pids
        if pid != own and wanted in (environ := _environ(pid)) and spared.isdisjoint(environ)
    }
    return found | (_below(own, pids) if descendants else set())


def _below(root: int, pids: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid in pids:
        parent = _parent(pid)
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


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # gone, or another user's: not ours to end


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(text[text.rindex(")") + 2 :].split()[PARENT_FIELD])


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
