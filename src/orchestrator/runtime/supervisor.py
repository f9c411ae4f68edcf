"""One supervised program with everything it starts: output without limits on lines, and signals.

Agents put each tool command into a session of its own, so a process group says little. Three ties hold the
whole tree: a marker in the environment, which every descendant inherits; the supervisor as subreaper, to
which orphans fall; and the program's own session. A sweep (``runtime.sweep``) ends whoever hangs on any of them, also
after the supervisor itself has died (marker only).
"""

import ctypes
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from orchestrator.runtime.process import ProcessIdentity, machine_boot_id, pid_namespace, start_ticks

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
READ_BYTES = 256 * 1024


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
