"""Processes, handed in: run to the end, start detached, ask whether one still lives.

A pid alone identifies nobody. An identity is (machine boot id, pid namespace, pid, start ticks); anything that cannot
be proved is *unknown*, and unknown is never taken for dead (DESIGN §5).
"""

import hashlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Protocol

ZOMBIE_STATES = frozenset("ZXx")
STOP_POLL_S = 0.2
ENDED_KEPT = 100
# Fields of /proc/<pid>/stat, counted after the command's closing parenthesis: 22, 9, 50 and 51.
START_TICKS_FIELD = 19
FLAGS_FIELD = 6
ENVIRONMENT_FIELDS = (47, 48)
KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD, <linux/sched.h>
MACHINE_ID_FILE = Path("/etc/machine-id")
MACHINE_ID = re.compile(r"[0-9a-f]{32}")
READ_LIMIT = 64 * 1024  # bytes of a file that is asked for one fact


class Liveness(StrEnum):
    """What can be proved about a process."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One life of one process on one machine boot."""

    machine_boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What tells a machine from others, over its boots. Names may be alike, and so are the ids of clones and of
    containers from one image: neither is believed without the other."""

    host: str
    id: str  # empty where it has none, or an earlier version has not said


@dataclass(frozen=True, slots=True)
class Completed:
    """A process that ended. Output is bytes as they came, cut at the caller's limit."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    stopped: bool = False  # ended because the caller's event was set


class Processes(Protocol):
    """What the product may do with processes. ``argv`` is always a list; there is no shell."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        output: IO[bytes] | None = None,
        pass_fds: Sequence[int] = (),
        stop: threading.Event | None = None,
    ) -> Completed:
        """Run to the end in a session of its own; on time-out its process group is killed, and so when ``stop`` is set
        (which goes with ``output`` only).

        ``output`` receives stdout and stderr together as they come; else both are returned. ``pass_fds`` stay open
        in the child: a lock held through one is held until the child has ended too, even if we die first.

        :raises FileNotFoundError: there is no such program.
        """
        ...

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: Path,
    ) -> ProcessIdentity:
        """Start detached: own session, stdin from /dev/null, output appended to a file, outlives us.

        :raises FileNotFoundError: there is no such program.
        """
        ...

    def own(self) -> ProcessIdentity:
        """This process."""
        ...

    def machine(self) -> Machine:
        """The machine of this process."""
        ...

    def liveness(self, identity: ProcessIdentity) -> Liveness:
        """Whether that very process still lives."""
        ...

    def signal_group(self, identity: ProcessIdentity, signum: int) -> bool:
        """Signal the process group led by that very process; False where it cannot be proved to be it."""
        ...


class Children(Processes, Protocol):
    """Processes of which one's own children tell how they ended."""

    def exit_of(self, identity: ProcessIdentity) -> int | None:
        """How a spawned process ended: its code, or minus the signal that ended it; None where it lives, or it is not
        known."""
        ...


class SystemProcesses:
    """The real thing, on Linux."""

    def __init__(self) -> None:
        self._children: set[int] = set()
        self._known: ProcessIdentity | None = None  # this process, once it was asked for
        self._ended: dict[
            int, int
        ] = {}  # the last ENDED_KEPT children that were collected, and how they ended

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        output: IO[bytes] | None = None,
        pass_fds: Sequence[int] = (),
        stop: threading.Event | None = None,
    ) -> Completed:
        """Run to the end; see :class:`Processes`."""
        with subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=output if output is not None else subprocess.PIPE,
            stderr=subprocess.STDOUT if output is not None else subprocess.PIPE,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        ) as child:
            try:
                if stop is not None and output is not None and stdin is None:
                    stopped = _wait_or_stop(child, timeout, stop)
                    return Completed(
                        tuple(argv), child.returncode, b"", b"", stopped is False, stopped is True
                    )
                out, err = child.communicate(stdin, timeout)
                return Completed(tuple(argv), child.returncode, out or b"", err or b"")
            except subprocess.TimeoutExpired as expired:
                _kill_group(child.pid)
                # A helper in another session may hold the pipe; what was read so far must do.
                _close(child)
                child.wait()
                return Completed(
                    tuple(argv), child.returncode, expired.stdout or b"", expired.stderr or b"", True
                )
            except BaseException:
                _kill_group(child.pid)
                raise

    def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path
    ) -> ProcessIdentity:
        """Start detached; see :class:`Processes`."""
        self._reap()
        with output.open("ab") as sink:
            child = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._ended.pop(child.pid, None)
        self._children.add(child.pid)
        child.returncode = 0  # it outlives us on purpose, which Popen would take for a mistake; see _reap
        return ProcessIdentity(machine_boot_id(), pid_namespace(), child.pid, start_ticks(child.pid) or 0)

    def own(self) -> ProcessIdentity:
        """This process."""
        return self._here()

    def machine(self) -> Machine:
        """The machine of this process."""
        return Machine(os.uname().nodename, machine_id())

    def liveness(self, identity: ProcessIdentity) -> Liveness:
        """Compare boot id, namespace and start ticks before believing a pid."""
        self._reap()
        here = self._here()
        if identity.machine_boot_id != here.machine_boot_id:
            return (
                Liveness.UNKNOWN
            )  # another machine, or this one before a reboot: only the heartbeat can tell
        if identity.pid_namespace != here.pid_namespace or identity.pid <= 0:
            return Liveness.UNKNOWN
        state = process_state(identity.pid)
        if state is None:
            return Liveness.UNKNOWN if _hidden(identity.pid) else Liveness.DEAD
        if state in ZOMBIE_STATES or start_ticks(identity.pid) != identity.start_ticks:
            return Liveness.DEAD
        return Liveness.ALIVE

    def signal_group(self, identity: ProcessIdentity, signum: int) -> bool:
        """Signal through a pidfd held open, so that the number cannot be re-used in between."""
        if identity.pid <= 1:
            return False
        try:
            handle = os.pidfd_open(identity.pid)
        except OSError:
            return False
        try:
            if self.liveness(identity) is not Liveness.ALIVE:
                return False
            os.killpg(identity.pid, signum)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def exit_of(self, identity: ProcessIdentity) -> int | None:
        """How a spawned process ended; see :class:`Children`."""
        if self.liveness(identity) is not Liveness.DEAD:
            return None
        return self._ended.get(identity.pid)

    def _here(self) -> ProcessIdentity:
        """This process, read once: none of it changes. A forked child is somebody else."""
        pid, known = os.getpid(), self._known
        if known is None or known.pid != pid:
            known = ProcessIdentity(machine_boot_id(), pid_namespace(), pid, start_ticks(pid) or 0)
            self._known = known
        return known

    def _reap(self) -> None:
        """Collect ended children, so that they do not stay as zombies."""
        for pid in tuple(self._children):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended == pid:
                    self._ended[pid] = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                ended = pid  # collected by somebody else
            for oldest in tuple(self._ended)[:-ENDED_KEPT]:
                self._ended.pop(oldest, None)
            if ended == pid:
                self._children.discard(pid)


def ended_by_reboot(
    processes: Processes, identity: ProcessIdentity, there: Machine, *, one_machine: bool
) -> bool:
    """Whether the machine of a process has been booted since, which no process outlives. False where that is not
    proved: another machine's boot says nothing.

    ``one_machine``: whoever asks knows that no other machine works here; then the name is enough where an id lacks.
    """
    now, then = processes.own().machine_boot_id, identity.machine_boot_id
    if not now or not then or now == then:
        return False
    here = processes.machine()
    return here.host == there.host and (here.id == there.id if here.id and there.id else one_machine)


def machine_id(file: Path = MACHINE_ID_FILE) -> str:
    """What a machine keeps over its boots; empty where it has none. Not the id itself, which is not for everybody's
    eyes, but one made of it."""
    said = _read(str(file))
    if not MACHINE_ID.fullmatch(said) or not said.strip("0"):
        return ""
    return hashlib.sha256(f"orchestrator {said}".encode()).hexdigest()[:32]


def machine_boot_id() -> str:
    """The kernel's boot id; empty where /proc is not readable."""
    return _read("/proc/sys/kernel/random/boot_id")


def pid_namespace() -> str:
    """The pid namespace's inode as the kernel names it."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where it is not to be seen."""
    fields = _stat_fields(pid)
    return int(fields[START_TICKS_FIELD]) if fields else None


def process_state(pid: int) -> str | None:
    """One letter as in ``ps``; None where there is no such process or it is hidden.

    A leader that has ended shows as a zombie while threads of it run on, and hold its locks: then it is one of theirs.
    """
    fields = _stat_fields(pid)
    if not fields:
        return None
    return _state_of_threads(pid) if fields[0] in ZOMBIE_STATES else fields[0]


def may_have_environment(pid: int) -> bool:
    """Whether a process that shows no environment may have one all the same.

    It shows none while it executes another program, and from when it gives up its memory until it is dead. The kernel's
    own threads, the dead, and whoever was started with an empty one have none.
    """
    fields = _stat_fields(pid)
    if not fields or int(fields[FLAGS_FIELD]) & KERNEL_THREAD or process_state(pid) in (*ZOMBIE_STATES, None):
        return False
    begin, end = (int(fields[field]) for field in ENVIRONMENT_FIELDS)
    return not 0 < begin == end


def _state_of_threads(pid: int) -> str:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # collected meanwhile
        return "X"
    states = [fields[0] for tid in threads if (fields := _stat_fields(f"{pid}/task/{tid}"))]
    return next((state for state in states if state not in ZOMBIE_STATES), "Z")


def pid_alive(pid: object) -> bool:
    """The seed's ``merge_gate.pid_alive``: False only where the number provably belongs to no running process.

    Never raises and never signals a group: anything that is no positive integer is not alive; "not permitted" is alive.
    """
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return False
    state = process_state(pid)
    if state is not None:
        return state not in ZOMBIE_STATES
    return _hidden(pid)


def _hidden(pid: int) -> bool:
    """True where a process exists that /proc does not show us."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _stat_fields(pid: int | str) -> list[str]:
    text = _read(f"/proc/{pid}/stat")
    return text[text.rindex(")") + 2 :].split() if ")" in text else []


def _read(path: str) -> str:
    try:
        with Path(path).open(encoding="ascii", errors="replace") as source:
            return source.read(READ_LIMIT).strip()
    except (OSError, ValueError):
        return ""


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _wait_or_stop(
    child: subprocess.Popen[bytes], timeout: float | None, stop: threading.Event
) -> bool | None:
    """None where the child ended by itself, True where it was ended because of ``stop``, False for its time-out."""
    end = time.monotonic() + timeout if timeout is not None else None
    while True:
        try:
            child.wait(STOP_POLL_S)
            return None
        except subprocess.TimeoutExpired:
            if not stop.is_set() and (end is None or time.monotonic() < end):
                continue
        _kill_group(child.pid)
        child.wait()
        return stop.is_set()


def _close(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
