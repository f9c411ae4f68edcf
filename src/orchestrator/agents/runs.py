"""Runs of agents, as the orchestrator sees them: start, adopt, wait, stop, revoke, and the result (law 8).

What must hold: one run folder starts one agent at most; whoever creates ``STARTED`` first decides. A run is
judged over only when its supervisor is dead, and dead without an exit record only when everything the agent
left has been ended too. What cannot be proved (another host, a container that was replaced) is waited for
until the heartbeat is so old that the supervisor, were it alive, would have ended the agent for want of
adoption.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns

import orchestrator
from orchestrator.agents.agent import Launch, Limits, Session
from orchestrator.agents.run_folder import RunFolder
from orchestrator.agents.run_records import LaunchRecord, Progress, StartedRecord, Starter
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.job import RunOutcome, RunResult, Usage
from orchestrator.runtime.clock import Clock, parse_stamp, stamp
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.files import PRIVATE_FILE, replace_durably
from orchestrator.runtime.process import Liveness, Machine, Processes, ProcessIdentity, ended_by_reboot
from orchestrator.runtime.sweep import sweep

PROGRAM = "orchestrator.agents.supervisor"
POLL_SECONDS = 0.2
TOUCH_SECONDS = 5.0  # at least so often adoption is renewed; a small part of any sensible run_orphan_ttl
LOST_MARGIN_SECONDS = 60.0  # beyond run_orphan_ttl, before an unprovable supervisor counts as gone
CALL_OFF_SECONDS = 10.0  # a killed supervisor that is not gone after this hangs in the kernel
CALLED_OFF = "The run was called off before it started."
VANISHED = "The run's folder has vanished. Whether its agent had started cannot be told any more."
SUPERVISOR_NEEDS = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A run that was started or adopted."""

    run_dir: Path
    supervisor: ProcessIdentity | None
    touch_s: float = TOUCH_SECONDS  # adoption is renewed this often


class Runs:
    """All agent runs of this process and of the processes before it."""

    def __init__(
        self,
        processes: Processes,
        clock: Clock,
        entropy: Entropy,
        *,
        folder: Callable[[Path], RunFolder] = RunFolder,
        may_adopt: Callable[[], bool] = lambda: True,
        one_machine: bool = False,
    ) -> None:
        """``folder`` opens the folder of a run. While ``may_adopt`` says no, nothing that runs is kept adopted: what
        others would take for lost must end by itself before they do. ``one_machine``: no other machine has runs here.
        """
        self._one_machine = one_machine
        self._may_adopt = may_adopt
        self._processes, self._clock, self._entropy = processes, clock, entropy
        self._folder = folder

    def start(self, run_dir: Path, launch: Launch, limits: Limits, environ: Mapping[str, str]) -> RunHandle:
        """Write ``launch.json`` and start the run's supervisor, detached. ``environ`` is ours: the supervisor gets what
        Python needs and the launch's secrets, nothing else.

        :raises OutsideError: the run folder cannot be written or no process can be started; nothing has started then.
        """
        folder = self._folder(run_dir)
        try:
            folder.create()
            _carry_over(launch.resume, folder)
            folder.write_launch(self._entropy.token(), launch, limits)
            self._touch(folder)
            env = {name: environ[name] for name in SUPERVISOR_NEEDS if name in environ}
            env |= {**launch.secrets, "PYTHONPATH": _package_path(), "HOME": str(run_dir)}
            argv = [sys.executable, "-P", "-m", PROGRAM, str(run_dir)]
            folder.supervisor_log.touch(mode=PRIVATE_FILE)
            identity = self._processes.spawn(argv, cwd=run_dir, env=env, output=folder.supervisor_log)
            try:
                folder.write_spawned(identity)
            except OSError:
                if self._call_off(folder, identity):
                    raise
        except OSError as error:
            raise OutsideError(
                f"The agent could not be started: {error.strerror or error} ({error.filename or run_dir}). "
                "The job stays as it was.",
                hint="Free some disk space or correct the rights of the state folder, then retry the task.",
            ) from error
        return RunHandle(run_dir, identity, _touch_s(limits))

    def adopt(self, run_dir: Path) -> RunHandle | None:
        """Take over a run that another process started; None where it has ended or nothing has started.

        One of which nothing can be proved may live: it is taken over too, and ``wait`` tells when it is over.

        :raises OutsideError: the run folder cannot be written.
        """
        folder = self._folder(run_dir)
        identity = self._supervisor(folder)
        if identity is None or self._liveness(identity, folder.started()) is Liveness.DEAD:
            return None
        with _usable(run_dir):
            self._touch(folder)
        launch = folder.launch()
        return RunHandle(run_dir, identity, _touch_s(launch.limits) if launch is not None else TOUCH_SECONDS)

    def result(self, run_dir: Path) -> RunResult | None:
        """How the run ended; None while it runs, may still start, or cannot be told apart from one that runs.

        Ends what a dead supervisor left behind before it says anything.

        :raises OutsideError: the run folder cannot be written, so that its end cannot be settled.
        """
        folder = self._folder(run_dir)
        identity = self._supervisor(folder)
        started = folder.started()
        if started is not None and started.by is Starter.REVOKER:
            return folder.result() or RunResult(RunOutcome.CALLED_OFF, None, Usage(), CALLED_OFF)
        if identity is None:
            return folder.result()  # not spawned, or not noted: only revoke() can settle that
        alive = self._liveness(identity, started)
        may_run = started is not None and not self._lost(folder, started)  # else whoever is first decides
        if alive is Liveness.ALIVE or (alive is Liveness.UNKNOWN and may_run):
            return folder.result() if alive is Liveness.UNKNOWN else None
        with _usable(run_dir):
            return folder.result() or self._bury(folder, started)

    def wait(
        self, handle: RunHandle, stop: threading.Event, on_progress: Callable[[Progress], None] | None = None
    ) -> RunResult | None:
        """Block until the run has ended, keeping it adopted; None when ``stop`` was set first (the run goes on)."""
        folder, shown = self._folder(handle.run_dir), ""
        touched = self.keep(handle, None)
        while True:
            result = self.result(handle.run_dir)
            if result is not None:
                return result
            progress = folder.progress() if on_progress is not None else None
            if on_progress is not None and progress is not None and progress.at != shown:
                shown = progress.at
                on_progress(progress)
            touched = self.keep(handle, touched)
            if self._clock.wait(stop, POLL_SECONDS):
                return None

    def keep(self, handle: RunHandle, touched: float | None) -> float:
        """Renew the adoption of a run where that is due; when that was last done (CLOCK_BOOTTIME). None: it has just
        been adopted."""
        now = self._clock.boottime()
        if touched is None:
            return now
        if now - touched < handle.touch_s or not self._may_adopt():
            return touched
        with suppress(OSError):  # the run goes on; the next one may succeed
            self.touch(handle)
        return now

    def stop(self, handle: RunHandle, reason: str) -> None:
        """Ask the supervisor to end the run; ``result`` tells when it has. ``reason`` is shown to people."""
        folder = self._folder(handle.run_dir)
        with suppress(OSError):  # a full disk: the signal alone must do, without the words
            replace_durably(folder.stop_file, reason.encode())
        identity = self._supervisor(folder) or handle.supervisor
        if identity is not None:
            self._processes.signal_group(identity, signal.SIGTERM)

    def revoke(self, run_dir: Path) -> bool:
        """Make sure that nothing can start in this folder any more; False where it has started.

        A folder that has vanished proves nothing: nothing starts there, and its run counts as one that a person has to
        look at.

        :raises OutsideError: the folder cannot be written, so nothing is sure.
        """
        folder = self._folder(run_dir)
        with _usable(run_dir):
            if not run_dir.exists():
                folder.create()
                folder.write_result(RunResult(RunOutcome.NOT_STARTED, None, Usage(), VANISHED), first=True)
            host = self._processes.machine().host
            if folder.claim(StartedRecord(Starter.REVOKER, stamp(self._clock.utc()), host)):
                return True
        started = folder.started()
        return started is not None and started.by is Starter.REVOKER

    def touch(self, handle: RunHandle) -> None:
        """Say that the run is still wanted (adoption)."""
        self._touch(self._folder(handle.run_dir))

    def session_of(self, run_dir: Path) -> Session | None:
        """The conversation an ended run left, to be resumed; None where it left none."""
        folder = self._folder(run_dir)
        result = folder.result()
        if result is None or result.session_id is None or not folder.home.is_dir():
            return None
        return Session(result.session_id, folder.home, folder.session_usage())

    # --- steps --------------------------------------------------------------------------------------------------------

    def _supervisor(self, folder: RunFolder) -> ProcessIdentity | None:
        """The process that decides over the run: who says so in ``STARTED``, else who was spawned."""
        started = folder.started()
        if started is not None and started.identity is not None:
            return started.identity
        return folder.spawned()

    def _liveness(self, identity: ProcessIdentity, started: StartedRecord | None) -> Liveness:
        """As proved; and a reboot has ended every process of its machine, whatever else is not to be seen of it."""
        there = Machine(started.host, started.machine) if started is not None else None
        if there and ended_by_reboot(self._processes, identity, there, one_machine=self._one_machine):
            return Liveness.DEAD
        return self._processes.liveness(identity)

    def _call_off(self, folder: RunFolder, supervisor: ProcessIdentity) -> bool:
        """Undo a start that could not be noted; False where it is too late: the run has started, and says so itself."""
        try:
            off = self.revoke(folder.path)
        except OutsideError:  # the disk is full for us as well; a supervisor that is dead starts nothing
            self._processes.signal_group(supervisor, signal.SIGKILL)
            end, never = self._clock.boottime() + CALL_OFF_SECONDS, threading.Event()
            while self._processes.liveness(supervisor) is not Liveness.DEAD and self._clock.boottime() < end:
                self._clock.wait(never, POLL_SECONDS)
            return folder.started() is None
        if off:
            self._processes.signal_group(supervisor, signal.SIGKILL)
        return off

    def _bury(self, folder: RunFolder, started: StartedRecord | None) -> RunResult | None:
        """The supervisor is gone without an exit record."""
        if started is None:
            if not self.revoke(folder.path):
                return None  # another one started after all
            result = self._never_started(folder)
            folder.write_result(result, first=True)
            return folder.result() or result
        launch = folder.launch()
        left = sweep(launch.marker) if launch is not None else ()
        if left:
            return None  # something of it still lives: not over yet
        result = _lost_result(folder, launch)
        folder.write_result(result, first=True)
        return folder.result() or result

    def _lost(self, folder: RunFolder, started: StartedRecord) -> bool:
        """True when a supervisor that cannot be looked at has been silent for too long to be alive."""
        launch, last = folder.launch(), folder.heartbeat() or started.at
        if launch is None:
            return False
        try:
            age = (self._clock.utc() - parse_stamp(last)).total_seconds()
        except ValueError:
            return False
        return age > launch.limits.orphan_ttl_s + LOST_MARGIN_SECONDS

    def _touch(self, folder: RunFolder) -> None:
        handle = os.open(folder.adopted_file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            os.utime(handle)
        finally:
            os.close(handle)

    def _never_started(self, folder: RunFolder) -> RunResult:
        """A supervisor that fails by itself says why; one that was killed, or whose machine has gone down, does not."""
        try:
            said = folder.supervisor_log.read_bytes()[-1000:].decode(errors="replace").strip()
        except OSError:
            said = ""
        if not said:
            return RunResult(RunOutcome.CALLED_OFF, None, Usage(), CALLED_OFF)
        summary = f"The run's supervisor ended before it could start the agent. It said: {said}"
        return RunResult(RunOutcome.NOT_STARTED, None, Usage(), summary)


@contextmanager
def _usable(run_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutsideError(
            f"The run folder {run_dir} cannot be used: {error.strerror or error}. Its run is left as it is.",
            hint="Free some disk space or bring the folder back; where its agent is certainly gone, cancel the task.",
        ) from error


def _touch_s(limits: Limits) -> float:
    return min(TOUCH_SECONDS, limits.orphan_ttl_s / 4)


def _lost_result(folder: RunFolder, launch: LaunchRecord | None) -> RunResult:
    progress = folder.progress()
    asked = folder.stop_file.exists()
    return RunResult(
        outcome=RunOutcome.KILLED if asked else RunOutcome.CRASHED,
        exit_code=None,
        usage=progress.usage if progress is not None else Usage(),
        summary="The run was being stopped when its supervisor ended."
        if asked
        else "The run's supervisor was killed; the agent and everything it had started have been ended.",
        warnings=launch.warnings if launch is not None else (),
    )


def _carry_over(resume: Session | None, folder: RunFolder) -> None:
    """The transcript of the conversation to go on with lies in the home of the run that left it."""
    if resume is not None and resume.home.is_dir() and resume.home != folder.home:
        copytree(
            resume.home,
            folder.home,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=ignore_patterns("*.sock", "*.lock"),
        )


def _package_path() -> str:
    return str(Path(orchestrator.__file__).resolve().parent.parent)
