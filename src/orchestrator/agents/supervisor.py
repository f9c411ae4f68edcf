"""The supervisor of one run: ``python -m orchestrator.agents.supervisor RUN_DIR``, detached from whoever
started it.

What must hold: nothing starts unless this process created ``STARTED``; whatever happens to the agent, an exit
record is written, and only after everything the agent started has been ended; neither the disk nor the memory
decides over the run. On failure of this process itself the run folder says so to whoever looks: no exit
record, no living supervisor.
"""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from types import FrameType

from orchestrator.agents.adapters import AGENTS
from orchestrator.agents.agent import Agent, Delta, RunEnd, Stop, StopReason, Text
from orchestrator.agents.environment import secret_values
from orchestrator.agents.kept_log import KeptLog
from orchestrator.agents.run_folder import RunFolder
from orchestrator.agents.run_records import LaunchRecord, Progress, StartedRecord, Starter
from orchestrator.agents.watch import Counter, Watched, judge
from orchestrator.domain.job import RunOutcome, RunResult, Usage
from orchestrator.runtime.clock import Clock, SystemClock, stamp
from orchestrator.runtime.process import Processes, SystemProcesses
from orchestrator.runtime.supervisor import Chunk, Source, SupervisedProgram, become_subreaper
from orchestrator.runtime.sweep import sweep

TICK_SECONDS = 0.2  # how soon a limit, a signal or the end is noticed
HEARTBEAT_SECONDS = 1.0
LONGEST_GAP = 5.0  # longer than this between two looks we were frozen ourselves; that time counts for nobody
DRAIN_SECONDS = 2.0  # for output still in the pipes when nobody is left to write
MAX_LINE = 8 * 1024 * 1024  # a longer line is kept in the log and not read
MAX_STDERR = 8 * 1024
MAX_ARTIFACT = 1024 * 1024
MAX_STOP_REASON = 500


@dataclass(slots=True)
class Watch:
    """Running times, in seconds during which this process ran itself."""

    now: float
    running: float = 0.0
    silent: float = 0.0
    unadopted: float = 0.0
    after_final: float = 0.0
    heartbeat: float = HEARTBEAT_SECONDS

    def advance(self, now: float) -> None:
        """Time has passed."""
        passed = min(max(now - self.now, 0.0), LONGEST_GAP)
        self.now = now
        self.running += passed
        self.silent += passed
        self.unadopted += passed
        self.after_final += passed
        self.heartbeat += passed


class Supervisor:
    """One run, from its launch record to its exit record."""

    def __init__(
        self, folder: RunFolder, record: LaunchRecord, agent: Agent, clock: Clock, environ: Mapping[str, str]
    ) -> None:
        self._folder, self._record, self._agent, self._clock = folder, record, agent, clock
        self._secrets = {name: environ[name] for name in record.secret_names if name in environ}
        self._counter = Counter(record.warnings)
        self._log = KeptLog(folder.output_log, record.limits.log_cap_bytes, secret_values(self._secrets))
        self._watch = Watch(clock.boottime())
        self._adopted_at = -1
        self._rest = {Source.STDOUT: b"", Source.STDERR: b""}
        self._too_long = {Source.STDOUT: False, Source.STDERR: False}
        self._stderr = b""
        self.killed = False  # set by SIGTERM

    def run(self) -> None:
        """Start the agent, watch it, end what is left of it, write the exit record."""
        try:
            program = self._start()
        except OSError as error:
            rmtree(self._folder.tmp, ignore_errors=True)
            self._write(self._not_started(error))
            return
        stop = self._watch_over(program)
        if stop is not None:
            self._end(program, stop)
        self._clean_up(program)
        self._write_end(program, stop)
        program.close()

    # --- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> SupervisedProgram:
        name, _, value = self._record.marker.partition("=")
        return SupervisedProgram(
            self._record.argv,
            cwd=self._record.cwd,
            env={**self._record.env, **self._secrets, name: value},
            stdin=self._record.stdin_file,
        )

    def _not_started(self, error: OSError) -> RunResult:
        program = self._record.argv[0] or "(no command)"
        reason = error.strerror or str(error)
        if error.filename is not None and str(error.filename) != program:
            reason = f"{reason}: {error.filename}"
        return RunResult(
            RunOutcome.NOT_STARTED,
            None,
            Usage(),
            f"The agent program {program} could not be started: {reason}. Nothing was done. Install it or correct the "
            "agent's `command` in .orchestrator.toml, then retry the task; `orch doctor` says what it finds.",
            warnings=self._record.warnings,
        )

    # --- watch --------------------------------------------------------------------------------------------------------

    def _watch_over(self, program: SupervisedProgram) -> Stop | None:
        """Read, count and judge until the program has ended or has to."""
        while program.reap() is None:
            self._take(program.read(TICK_SECONDS))
            self._tick()
            if self.killed:
                return Stop(StopReason.KILLED, self._stop_reason())
            watch = self._watch
            watched = Watched(watch.running, watch.silent, watch.unadopted, watch.after_final)
            stop = judge(self._record.limits, self._counter.tally(), watched)
            if stop is not None:
                return stop
        if self.killed and program.exit_code == -signal.SIGTERM:  # just being started, in our group still
            return Stop(StopReason.KILLED, self._stop_reason())
        return None

    def _tick(self) -> None:
        self._watch.advance(self._clock.boottime())
        if self._counter.tally().final is None:
            self._watch.after_final = 0.0
        if self._watch.heartbeat >= HEARTBEAT_SECONDS:
            self._watch.heartbeat = 0.0
            self._look_for_adoption()
            self._look_for_stop()
            self._beat()

    def _look_for_adoption(self) -> None:
        try:
            touched = self._folder.adopted_file.stat().st_mtime_ns
        except OSError:
            return
        if touched != self._adopted_at:
            self._adopted_at, self._watch.unadopted = touched, 0.0

    def _look_for_stop(self) -> None:
        """The request's signal does not reach us from another pid namespace; its file does."""
        if self._folder.stop_file.exists():
            self.killed = True

    def _beat(self) -> None:
        """Show that we live and what goes on. A full disk is no reason to stop."""
        tally, at = self._counter.tally(), stamp(self._clock.utc())
        try:
            self._folder.beat(at)
            self._folder.write_progress(
                Progress(at, tally.turns, tally.usage, tally.tool, self._clean(tally.text), self._log.size)
            )
        except OSError as error:
            self._counter.warn(f"The run's progress could not be written: {error.strerror}.")

    def _stop_reason(self) -> str:
        try:
            asked = self._folder.stop_file.read_bytes()[:MAX_STOP_REASON].decode(errors="replace").strip()
        except OSError:
            asked = ""
        return asked or "The run was ended by a signal to its supervisor."

    # --- output -------------------------------------------------------------------------------------------------------

    def _take(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self._watch.silent = 0.0
            whole, newline, rest = (self._rest[chunk.source] + chunk.data).rpartition(b"\n")
            self._rest[chunk.source] = rest
            if newline:
                self._lines(chunk.source, whole + newline)
            if len(self._rest[chunk.source]) > MAX_LINE:
                self._cut(chunk.source)

    def _cut(self, source: Source) -> None:
        """A line without end: what there is goes to the log, and the line is not read."""
        self._log.write(self._rest[source])
        self._rest[source], self._too_long[source] = b"", True

    def _lines(self, source: Source, block: bytes) -> None:
        """Whole lines, at least one."""
        if self._too_long[source]:
            end, _, block = block.partition(b"\n")
            self._log.write(end + b"\n")
            self._too_long[source] = False
        if source is Source.STDERR:
            self._stderr = (self._stderr + block)[-MAX_STDERR:]
            self._log.write(block)
        elif self._agent.capabilities.events:
            for line in block.splitlines(keepends=True):
                self._read_line(line)
        elif block:
            self._log.write(block)
            self._last_words(block)

    def _read_line(self, line: bytes) -> None:
        events = self._agent.parse(line)
        for event in events:
            self._counter.add(event)
        if not any(isinstance(event, Delta) for event in events):
            self._log.write(line)

    def _last_words(self, block: bytes) -> None:
        for line in reversed(block[-MAX_STDERR:].splitlines()):
            if line.strip():
                for event in self._agent.parse(line):
                    if isinstance(event, Text):
                        self._counter.add(event)
                return

    def _flush(self) -> None:
        """The last line may lack its end."""
        for source in Source:
            if self._rest[source]:
                self._lines(source, self._rest[source] + b"\n")
                self._rest[source] = b""

    # --- end ----------------------------------------------------------------------------------------------------------

    def _end(self, program: SupervisedProgram, stop: Stop) -> None:
        """Ask, then insist; output is read meanwhile, for the closing word is in it."""
        for name, grace in self._agent.capabilities.ladder:
            program.signal(signal.Signals[name])
            if self._wait_for_end(program, grace):
                return
        program.signal(signal.SIGKILL)
        self._wait_for_end(program, DRAIN_SECONDS)

    def _wait_for_end(self, program: SupervisedProgram, seconds: float) -> bool:
        until = self._clock.boottime() + seconds
        while program.reap() is None:
            if self._clock.boottime() >= until:
                return False
            self._take(program.read(TICK_SECONDS / 4))
            self._tick()
        return True

    def _clean_up(self, program: SupervisedProgram) -> None:
        """After any end, a good one too: nobody of this run lives on, and all that was said has been read."""
        left = sweep(self._record.marker, descendants=True, reap=program.reap)
        if left:
            self._counter.warn(
                f"These processes of the agent could not be ended: {', '.join(map(str, left))}."
            )
        program.reap()
        until = self._clock.boottime() + DRAIN_SECONDS
        while not program.closed and self._clock.boottime() < until:
            self._take(program.read(TICK_SECONDS / 4))
        self._flush()
        self._log.close()
        if self._log.failed:
            self._counter.warn(self._log.failed)
        rmtree(self._folder.tmp, ignore_errors=True)

    def _write_end(self, program: SupervisedProgram, stop: Stop | None) -> None:
        tally = self._counter.tally()
        end = RunEnd(
            program=self._record.argv[0],
            exit_code=program.exit_code,
            stop=stop,
            tally=tally,
            stderr=self._stderr.decode(errors="replace"),
            artifacts=self._artifacts(),
            resume=self._record.resume,
            now=self._clock.utc().timestamp(),
        )
        session = tally.final.session_usage if tally.final is not None else None
        self._write(self._agent.finish(end), session)

    def _artifacts(self) -> dict[str, str]:
        found = {}
        for name, place in self._record.artifacts.items():
            try:
                handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue
            with os.fdopen(handle, "rb") as source:
                found[name] = source.read(MAX_ARTIFACT).decode(errors="replace")
        return found

    def _write(self, result: RunResult, session: Usage | None = None) -> None:
        self._folder.write_result(result, session, clean=self._clean)

    def _clean(self, text: str) -> str:
        return self._log.clean(text.encode(errors="replace")).decode(errors="replace")


def supervise(path: Path, processes: Processes, clock: Clock, environ: Mapping[str, str]) -> int:
    """Supervise the run in ``path``; 0 also where a revoker was first and nothing was started."""
    folder = RunFolder(path)
    record = folder.launch()
    if record is None or record.agent not in AGENTS:
        sys.stderr.write(
            "launch.json cannot be read, or was written for an agent that this version does not know.\n"
        )
        return 2
    supervisor = Supervisor(folder, record, AGENTS[record.agent], clock, environ)

    def on_signal(signum: int, frame: FrameType | None) -> None:
        supervisor.killed = True

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    become_subreaper()
    folder.reserve_exit()
    machine = processes.machine()
    started = StartedRecord(Starter.CHILD, stamp(clock.utc()), machine.host, processes.own(), machine.id)
    if not folder.claim(started):
        folder.exit_reserve.unlink(missing_ok=True)
        return 0
    supervisor.run()
    return 0


def main(argv: list[str]) -> int:
    """The entry point of the detached process."""
    os.umask(0o077)
    return supervise(Path(argv[1]), SystemProcesses(), SystemClock(), os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
