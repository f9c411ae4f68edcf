"""The detached child of one start: ``python -m orchestrator.deploy.runner <folder>``.

It outlives the orchestrator and needs nothing of it but the folder. What must hold:

- *One run.* The command runs only after this very process has created ``STARTED``. Whoever finds one does nothing.
- *Nothing unknown runs.* The command's process exists, paused, before the claim that names it; it is let go after the
  claim is durable. Killed before the claim: the paused process sees its gate close and ends. Killed after it: whoever
  reads the claim knows exactly which session to end.
- *A record at the end.* Exit code, time-out or kill is published durably; the first record stands. Anything but success
  first ends what is left of the command's session, so that nothing of a failed deploy works on behind its undo; where
  that cannot be proved there is no record, and whoever asks tries again.

Of a deploy of ourselves the same process then stays as its guard, and performs the prepared undo where the command has
failed or the new version does not report (:mod:`orchestrator.deploy.guard`).

Only that session is ended. A service that the command has put into a session of its own is what was deployed, and
stays. An orchestrator that stops must not disturb a deploy: polite signals are ignored here.
"""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.deploy.guard import prepare_undo, undo_is_due
from orchestrator.deploy.records import (
    ARTIFACT_FOLDER,
    EXIT_FILE,
    LOG_FILE,
    STARTED_FILE,
    TERMINATE_FILE,
    Claimant,
    ConditionalUndo,
    DeployStart,
    Ending,
    Exit,
    Started,
    exit_record,
    marker,
    read_start,
    started,
    to_bytes,
)
from orchestrator.runtime.clock import Clock, SystemClock, stamp
from orchestrator.runtime.files import publish_exclusive, trim_log
from orchestrator.runtime.paused import NOT_RUN, PausedCommand
from orchestrator.runtime.process import Processes, ProcessIdentity, SystemProcesses
from orchestrator.runtime.sessions import Sessions, SystemSessions, end_session

# What a command sees of our own environment, beside what the repository configures for it.
BASE_ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip

GRACE_S = 5.0  # between SIGTERM and SIGKILL at the time-out
KILL_S = 10.0  # a process that SIGKILL does not end within this hangs in the kernel
LOG_LIMIT = 8 * 1024 * 1024  # bytes; beyond, the log is cut to its last half
LOG_CHECK_S = 0.5
LOG_IN_NEED = 64 * 1024  # what is left of the log when there is no room for the exit record

UNCLAIMED = 3  # the runner's own exit code where there is nothing to run


class Runner:
    """One start, from claim to exit record."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        processes: Processes,
        sessions: Sessions,
        environ: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._log = folder / LOG_FILE
        self._clock = clock
        self._processes = processes
        self._sessions = sessions
        self._environ = environ

    def run(self) -> int:
        """Claim the start and run it, or end if somebody else has; returns the runner's own exit code."""
        start = read_start(self._folder)
        if start is None:
            return UNCLAIMED
        if started(self._folder) is not None:
            return 0
        workplace = self._folder / ARTIFACT_FOLDER
        command = PausedCommand(
            start.argv, cwd=workplace, env=self._environment(start, workplace), log=self._log
        )
        if not self._claim(start, command):
            command.abandon()
            return 0
        self._carry_out(start, command, workplace)
        if start.undo is not None:
            self._guard(start, start.undo)
        return 0

    def _carry_out(self, start: DeployStart, command: "PausedCommand", workplace: Path) -> None:
        """From the claim to the exit record."""
        deadline = self._clock.boottime() + start.timeout_s
        try:
            place_artifact(start.artifact, workplace)
        except OSError as error:
            command.abandon()
            self._record(Ending.EXITED, NOT_RUN, f"The artefact could not be copied: {error}.")
            return
        command.release()
        self._supervise(start, command, deadline)

    def _guard(self, start: DeployStart, undo: ConditionalUndo) -> None:
        """Undo what failed or does not report. Without an exit record the command may still be at work: no undo is run
        beside it, and whoever asks for the end goes on from there."""
        ended = exit_record(self._folder)
        if ended is None or (ended.succeeded and not undo_is_due(self._folder, start, undo, self._clock)):
            return
        place = prepare_undo(self._folder, undo)
        if place is not None:
            Runner(
                place,
                clock=self._clock,
                processes=self._processes,
                sessions=self._sessions,
                environ=self._environ,
            ).run()

    def _claim(self, start: DeployStart, command: "PausedCommand") -> bool:
        machine = self._processes.machine()
        claim = Started(
            by=Claimant.CHILD,
            installation=start.installation,
            sequence=start.sequence,
            token=start.token,
            at=stamp(self._clock.utc()),
            host=machine.host,
            runner=self._processes.own(),
            command=command.identity,
            machine=machine.id,
        )
        return publish_exclusive(self._folder / STARTED_FILE, to_bytes(claim))

    def _supervise(self, start: DeployStart, command: "PausedCommand", deadline: float) -> None:
        """Wait for the end or the time-out, keep the log within bounds, and record the end."""
        timed_out = False
        while not command.ended_within(min(LOG_CHECK_S, max(0.0, deadline - self._clock.boottime()))):
            self._bound_log(LOG_LIMIT)
            timed_out = self._clock.boottime() >= deadline
            if timed_out:
                break
        code = None if timed_out else command.exit_code()
        terminated = (self._folder / TERMINATE_FILE).exists()
        if (terminated or code != 0) and not self._end_rest(start, command.identity):
            return
        if timed_out:
            self._record(
                Ending.TIMED_OUT, None, f"It did not end within {start.timeout_s:g} s and was ended."
            )
        elif terminated:
            self._record(Ending.KILLED, None, "It was ended on request.")
        elif code is None or code < 0:
            self._record(Ending.KILLED, None, f"It was ended by signal {-(code or 0)}.")
        else:
            self._record(Ending.EXITED, code, "" if code == 0 else f"It ended with exit code {code}.")

    def _end_rest(self, start: DeployStart, leader: ProcessIdentity) -> bool:
        """End the session while its leader is not collected: until then its number is nobody else's."""
        return end_session(self._sessions, self._clock, leader, marker(start), grace_s=GRACE_S, kill_s=KILL_S)

    def _record(self, ending: Ending, code: int | None, detail: str) -> None:
        """Publish the end; a record that is there already stands."""
        record = to_bytes(Exit(ending, code, stamp(self._clock.utc()), detail))
        self._bound_log(LOG_LIMIT)
        try:
            publish_exclusive(self._folder / EXIT_FILE, record)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._bound_log(LOG_IN_NEED)
            publish_exclusive(self._folder / EXIT_FILE, record)

    def _bound_log(self, limit: int) -> None:
        try:
            trim_log(self._log, limit, limit // 2)
        except OSError:
            return  # the log is no record; the deploy goes on without it

    def _environment(self, start: DeployStart, workplace: Path) -> dict[str, str]:
        artifact = ""
        if start.artifact is not None:
            artifact = str(workplace if start.artifact.is_dir() else workplace / start.artifact.name)
        name, _, value = marker(start).partition("=")
        return {
            **base_environment(self._environ),
            **start.env,
            "ORCH_SHA": start.sha,
            "ORCH_DIGEST": start.digest or "",
            "ORCH_ARTIFACT": artifact,
            "ORCH_ENVIRONMENT": start.environment,
            "ORCH_GENERATION": str(start.generation),
            "ORCH_DEPLOY_TOKEN": start.token,
            "ORCH_DEPLOY_KIND": start.kind.value,
            "ORCH_WORK_ITEM": start.work_item,
            name: value,
        }


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a deploy command may see."""
    return {name: environ[name] for name in BASE_ENVIRONMENT if name in environ}


def place_artifact(artifact: Path | None, workplace: Path) -> None:
    """Give the command a copy of its own, with ordinary modes: the store's must stay what its digest says.

    A folder becomes ``workplace``; a file lies in it under its own name.

    :raises OSError: it cannot be read, or there is no room.
    """
    if artifact is None or not artifact.is_dir():
        workplace.mkdir(mode=0o755, exist_ok=True)
        if artifact is not None:
            _copy_plain(str(artifact), str(workplace / artifact.name))
        return
    shutil.copytree(artifact, workplace, symlinks=True, copy_function=_copy_plain, dirs_exist_ok=True)
    for place, _, _ in os.walk(workplace):
        Path(place).chmod(0o755)


def _copy_plain(source: str, target: str) -> str:
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if os.stat(source).st_mode & 0o100 else 0o644)
    return target


def main(arguments: Sequence[str]) -> int:
    """Run the start whose folder is the only argument."""
    if len(arguments) != 1:
        return 2
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    runner = Runner(
        Path(arguments[0]),
        clock=SystemClock(),
        processes=SystemProcesses(),
        sessions=SystemSessions(),
        environ=os.environ,
    )
    return runner.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
