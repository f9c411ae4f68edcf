"""What lies in a run folder, by name, and how it is written. The folder is 0700 and everything of ours in it
0600.

``launch.json`` how to start · ``STARTED`` who decided that it starts, or never will · ``spawned.json`` the
supervisor · ``heartbeat`` its sign of life · ``progress.json`` · ``output.log`` · ``adopted`` touched by the
orchestrator · ``stop`` a request to end, with its reason · ``exit.json`` the result · ``home``, ``tmp`` the
agent's own.
"""

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from orchestrator.agents.agent import Launch, Limits
from orchestrator.agents.fields import count, number, text
from orchestrator.agents.run_records import (
    LaunchRecord,
    Progress,
    StartedRecord,
    Starter,
    identity_in,
    launch_in,
    outcome_in,
    read_record,
    record_bytes,
    usage_in,
)
from orchestrator.domain.job import RunResult, Usage
from orchestrator.runtime.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    publish_exclusive,
    replace_durably,
    sync_folder,
)
from orchestrator.runtime.process import ProcessIdentity

RESERVE_BYTES = 64 * 1024
MAX_SUMMARY = 4000
MAX_WARNINGS = 20
MAX_WARNING = 500


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.launch_file = path / "launch.json"
        self.started_file = path / "STARTED"
        self.spawned_file = path / "spawned.json"
        self.heartbeat_file = path / "heartbeat"
        self.progress_file = path / "progress.json"
        self.adopted_file = path / "adopted"
        self.stop_file = path / "stop"
        self.exit_file = path / "exit.json"
        self.exit_reserve = path / ".exit.reserve"
        self.output_log = path / "output.log"
        self.supervisor_log = path / "supervisor.log"
        self.home = path / "home"
        self.tmp = path / "tmp"

    def create(self) -> None:
        """Make the folder and the agent's private places; existing ones stay."""
        for folder in (self.path, self.home, self.tmp):
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            folder.chmod(PRIVATE_FOLDER)

    def write_launch(self, run_id: str, launch: Launch, limits: Limits) -> LaunchRecord:
        """Store how to start, without secrets."""
        record = LaunchRecord(
            run_id,
            launch.agent,
            launch.argv,
            launch.env,
            tuple(sorted(launch.secrets)),
            launch.cwd,
            launch.stdin_file,
            launch.artifacts,
            launch.resume,
            launch.warnings,
            limits,
        )
        replace_durably(self.launch_file, record_bytes(asdict(record)))
        return record

    def launch(self) -> LaunchRecord | None:
        """The stored launch; None where there is none that can be read."""
        data = read_record(self.launch_file)
        return launch_in(data) if data is not None else None

    def claim(self, record: StartedRecord) -> bool:
        """Create ``STARTED``; True iff this call did it, and with it the right to decide (law 8)."""
        data = {
            "by": record.by.value,
            "at": record.at,
            "host": record.host,
            "identity": asdict(record.identity) if record.identity else None,
            "machine": record.machine,
        }
        return publish_exclusive(self.started_file, record_bytes(data))

    def started(self) -> StartedRecord | None:
        """Who started it, or revoked it first."""
        data = read_record(self.started_file)
        if data is None:
            return None
        by = Starter.REVOKER if data.get("by") == Starter.REVOKER else Starter.CHILD
        supervisor = identity_in(data.get("identity"))
        return StartedRecord(by, text(data, "at"), text(data, "host"), supervisor, text(data, "machine"))

    def write_spawned(self, identity: ProcessIdentity) -> None:
        """Note which process was started as supervisor, before it could say so itself."""
        replace_durably(self.spawned_file, record_bytes({"identity": asdict(identity)}))

    def spawned(self) -> ProcessIdentity | None:
        """The process that was started as supervisor."""
        data = read_record(self.spawned_file)
        return identity_in(data.get("identity")) if data else None

    def beat(self, at: str) -> None:
        """Overwrite the heartbeat in place: always the same length, so that a full disk does not matter."""
        handle = os.open(self.heartbeat_file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            os.pwrite(handle, at.encode(), 0)
        finally:
            os.close(handle)

    def heartbeat(self) -> str | None:
        """The stamp of the last heartbeat."""
        try:
            return self.heartbeat_file.read_text(encoding="ascii")
        except (OSError, ValueError):
            return None

    def write_result(
        self,
        result: RunResult,
        session_usage: Usage | None = None,
        *,
        first: bool = False,
        clean: Callable[[str], str] = str,
    ) -> None:
        """The exit record, durable. ``first``: only where there is none yet (for others than the supervisor).

        ``clean`` takes secrets out of the texts.
        """
        data = record_bytes(
            {
                "outcome": result.outcome.value,
                "exit_code": result.exit_code,
                "usage": asdict(result.usage),
                "session_usage": asdict(session_usage or result.usage),
                "summary": clean(result.summary)[:MAX_SUMMARY],
                "session_id": result.session_id,
                "model": result.model,
                "retry_after_s": result.retry_after_s,
                "warnings": [clean(warning)[:MAX_WARNING] for warning in result.warnings[:MAX_WARNINGS]],
            }
        )
        if first:
            publish_exclusive(self.exit_file, data)
            return
        try:
            self._write_exit(data)
        except OSError:  # the agent has destroyed the folder, or planted a link there
            self.create()
            replace_durably(self.exit_file, data)

    def reserve_exit(self) -> None:
        """Take the room for the exit record now: it must fit in, however full the disk gets.

        :raises OSError: there is no room.
        """
        handle = os.open(self.exit_reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            os.posix_fallocate(handle, 0, RESERVE_BYTES)
        finally:
            os.close(handle)

    def result(self) -> RunResult | None:
        """The stored result."""
        data = read_record(self.exit_file)
        if data is None:
            return None
        code, warnings = data.get("exit_code"), data.get("warnings")
        return RunResult(
            outcome=outcome_in(data),
            exit_code=code if isinstance(code, int) else None,
            usage=usage_in(data.get("usage")),
            summary=text(data, "summary"),
            session_id=text(data, "session_id") or None,
            model=text(data, "model") or None,
            retry_after_s=number(data, "retry_after_s"),
            warnings=tuple(str(item) for item in warnings) if isinstance(warnings, list) else (),
        )

    def session_usage(self) -> Usage:
        """What the whole conversation had used when the run ended."""
        data = read_record(self.exit_file)
        return usage_in(data.get("session_usage")) if data else Usage()

    def write_progress(self, progress: Progress) -> None:
        """Replace ``progress.json``; not durable, a later one comes soon."""
        aside = self.progress_file.with_suffix(".part")
        aside.write_bytes(record_bytes(asdict(progress)))
        os.replace(aside, self.progress_file)

    def progress(self) -> Progress | None:
        """The last progress that was written."""
        data = read_record(self.progress_file)
        if data is None:
            return None
        return Progress(
            at=text(data, "at"),
            turns=count(data, "turns"),
            usage=usage_in(data.get("usage")),
            tool=text(data, "tool") or None,
            text=text(data, "text"),
            log_bytes=count(data, "log_bytes"),
        )

    def _write_exit(self, data: bytes) -> None:
        """Into the reserved room, which then gets the record's name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.exit_reserve, flags, PRIVATE_FILE)
        with os.fdopen(handle, "wb", buffering=0) as target:
            target.write(data)
            target.truncate(len(data))
            os.fsync(target.fileno())
        os.replace(self.exit_reserve, self.exit_file)
        sync_folder(self.path)
