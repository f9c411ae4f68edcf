"""A command whose process exists, and can be named durably, before the command runs.

It waits behind a gate in a session of its own. Whoever holds the gate may die at any moment: a gate that closes without
a word ends the process, so nothing ever runs that nobody has written down. For single-threaded programs: it forks.
"""

import errno
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from orchestrator.runtime.process import ProcessIdentity, machine_boot_id, pid_namespace, start_ticks

# Exit codes, as a shell has them.
ABANDONED = 125  # the gate closed without a word: the command never ran
NOT_RUN = 126
NOT_FOUND = 127


class PausedCommand:
    """A process in a session of its own that becomes the command when it is released, and ends when it is not."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> None:
        """Fork it; when this returns it leads its session and waits.

        :raises OSError: no process could be made.
        """
        self._gate, inner = socket.socketpair()
        pid = os.fork()  # a process that is known before it runs cannot be had by spawning
        if pid == 0:
            self._gate.close()
            _become(inner, argv, cwd, env, log)
        inner.close()
        if self._gate.recv(1) != b"r":
            raise OSError(errno.ECHILD, "the paused process ended before it was ready")
        self._pid = pid
        self._handle = os.pidfd_open(pid)
        self.identity = ProcessIdentity(machine_boot_id(), pid_namespace(), pid, start_ticks(pid) or 0)

    def release(self) -> None:
        """Let it become the command; one that was killed meanwhile has an exit code all the same."""
        try:
            self._gate.send(b"g")
        except OSError:
            return
        finally:
            self._gate.close()

    def abandon(self) -> None:
        """Let it end without ever having run the command."""
        self._gate.close()
        os.waitpid(self._pid, 0)

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(int(seconds * 1000) + 1))

    def exit_code(self) -> int:
        """How it ended; negative where by a signal. It is not collected, so that its number stays its own."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        if ended is None:
            raise ChildProcessError(errno.ECHILD, "the command has not ended")
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _become(
    gate: socket.socket, argv: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path
) -> NoReturn:
    """In the forked process: lead a session, wait for the word, become the command. Never returns into our code."""
    code = ABANDONED
    try:
        os.setsid()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        gate.send(b"r")
        if gate.recv(1) == b"g":
            code = NOT_RUN
            os.chdir(cwd)
            os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - argv is a list, nothing is interpreted
    except FileNotFoundError as error:
        code = NOT_FOUND
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="replace"))
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="replace"))
    finally:
        os._exit(code)
