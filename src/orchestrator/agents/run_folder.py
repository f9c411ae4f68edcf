"""What lies in a run folder, by name, and how it is written. The folder is 0700 and everything of ours in it
0600.

``launch.json`` how to start · ``STARTED`` who decided that it starts, or never will · ``spawned.json`` the
supervisor · ``heartbeat`` its sign of life · ``progress.json`` · ``output.log`` · ``adopted`` touched by the
orchestrator · ``stop`` a request to end, with its reason · ``exit.json`` the result · ``home``, ``tmp`` the
agent's own.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from orchestrator.agents.agent import Launch, Limits, Session
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.job import RunOutcome, RunResult, Usage
from orchestrator.runtime.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    publish_exclusive,
    read_bounded,
    replace_durably,
    sync_folder,
)
from orchestrator.runtime.process import ProcessIdentity

MARKER = "ORCH_RUN_ID"  # in the environment of the agent and of everything it starts
MAX_RECORD = 4 * 1024 * 1024
RESERVE_BYTES = 64 * 1024
MAX_SUMMARY = 4000
MAX_WARNINGS = 20
MAX_WARNING = 500


class Starter(StrEnum):
    """Who created ``STARTED``."""

    CHILD = "child"
    REVOKER = "revoker"


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """``launch.json``: all that the supervisor needs. Of secrets only the names: it has their values."""

    run_id: str
    agent: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    secret_names: tuple[str, ...]
    cwd: Path
    stdin_file: Path | None
    artifacts: Mapping[str, Path]
    resume: Session | None
    warnings: tuple[str, ...]
    limits: Limits

    @property
    def marker(self) -> str:
        """What every process of the run carries in its environment."""
        return f"{MARKER}={self.run_id}"


@dataclass(frozen=True, slots=True)
class StartedRecord:
    """``STARTED``."""

    by: Starter
    at: str
    host: str = ""
    identity: ProcessIdentity | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running agent is doing: for people; written about once a second."""

    at: str
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    tool: str | None = None
    text: str = ""
    log_bytes: int = 0


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
        replace_durably(self.launch_file, _bytes(asdict(record)))
        return record

    def launch(self) -> LaunchRecord | None:
        """The stored launch; None where there is none that can be read."""
        data = _read(self.launch_file)
        return _launch_record(data) if data is not None else None

    def claim(self, record: StartedRecord) -> bool:
        """Create ``STARTED``; True iff this call did it, and with it the right to decide (law 8)."""
        identity = asdict(record.identity) if record.identity else None
        data = {"by": record.by.value, "at": record.at, "host": record.host, "identity": identity}
        return publish_exclusive(self.started_file, _bytes(data))

    def started(self) -> StartedRecord | None:
        """Who started it, or revoked it first."""
        data = _read(self.started_file)
        if data is None:
            return None
        by = Starter.REVOKER if data.get("by") == Starter.REVOKER else Starter.CHILD
        return StartedRecord(by, _text(data, "at"), _text(data, "host"), _identity(data.get("identity")))

    def write_spawned(self, identity: ProcessIdentity) -> None:
        """Note which process was started as supervisor, before it could say so itself."""
        replace_durably(self.spawned_file, _bytes({"identity": asdict(identity)}))

    def spawned(self) -> ProcessIdentity | None:
        """The process that was started as supervisor."""
        data = _read(self.spawned_file)
        return _identity(data.get("identity")) if data else None

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
        data = _bytes(
            {
                "outcome": result.outcome.value,
                "exit_code": result.exit_code,
                "usage": asdict(result.usage),
                "session_usage": asdict(session_usage or result.usage),
                "summary": clean(result.summary)[:MAX_SUMMARY],
                "session_id": result.session_id,
                "model": result.model,
                "retry_after_s": result.retry_after_s,
                "warnings": [clean(text)[:MAX_WARNING] for text in result.warnings[:MAX_WARNINGS]],
            }
        )
        if first:
            publish_exclusive(self.exit_file, data)
        else:
            self._write_exit(data)

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
        data = _read(self.exit_file)
        if data is None:
            return None
        code, warnings, retry = data.get("exit_code"), data.get("warnings"), data.get("retry_after_s")
        return RunResult(
            outcome=_outcome(data),
            exit_code=code if isinstance(code, int) else None,
            usage=_usage(data.get("usage")),
            summary=_text(data, "summary"),
            session_id=_text(data, "session_id") or None,
            model=_text(data, "model") or None,
            retry_after_s=float(retry) if isinstance(retry, int | float) else None,
            warnings=tuple(str(item) for item in warnings) if isinstance(warnings, list) else (),
        )

    def session_usage(self) -> Usage:
        """What the whole conversation had used when the run ended."""
        data = _read(self.exit_file)
        return _usage(data.get("session_usage")) if data else Usage()

    def write_progress(self, progress: Progress) -> None:
        """Replace ``progress.json``; not durable, a later one comes soon."""
        aside = self.progress_file.with_suffix(".part")
        aside.write_bytes(_bytes(asdict(progress)))
        os.replace(aside, self.progress_file)

    def progress(self) -> Progress | None:
        """The last progress that was written."""
        data = _read(self.progress_file)
        if data is None:
            return None
        return Progress(
            at=_text(data, "at"),
            turns=_number(data, "turns"),
            usage=_usage(data.get("usage")),
            tool=_text(data, "tool") or None,
            text=_text(data, "text"),
            log_bytes=_number(data, "log_bytes"),
        )

    def _write_exit(self, data: bytes) -> None:
        """Into the reserved room, which then gets the record's name."""
        handle = os.open(self.exit_reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(handle, "wb", buffering=0) as target:
            target.write(data)
            target.truncate(len(data))
            os.fsync(target.fileno())
        os.replace(self.exit_reserve, self.exit_file)
        sync_folder(self.path)


def _launch_record(data: Mapping[str, object]) -> LaunchRecord | None:
    limits, resume, argv = data.get("limits"), data.get("resume"), data.get("argv")
    if not isinstance(limits, dict) or not isinstance(argv, list):
        return None
    stdin = _text(data, "stdin_file")
    return LaunchRecord(
        run_id=_text(data, "run_id"),
        agent=_text(data, "agent"),
        argv=tuple(str(word) for word in argv),
        env=_mapping(data.get("env")),
        secret_names=_strings(data.get("secret_names")),
        cwd=Path(_text(data, "cwd")),
        stdin_file=Path(stdin) if stdin else None,
        artifacts={name: Path(place) for name, place in _mapping(data.get("artifacts")).items()},
        resume=_session(resume),
        warnings=_strings(data.get("warnings")),
        limits=Limits(**{name: limits[name] for name in Limits.__slots__ if name in limits}),
    )


def _outcome(data: Mapping[str, object]) -> RunOutcome:
    """An agent can write where we write: what is no outcome is none."""
    try:
        return RunOutcome(_text(data, "outcome"))
    except ValueError:
        return RunOutcome.NO_RESULT


def _session(data: object) -> Session | None:
    if not isinstance(data, dict):
        return None
    return Session(_text(data, "session_id"), Path(_text(data, "home")), _usage(data.get("usage")))


def _identity(data: object) -> ProcessIdentity | None:
    if not isinstance(data, dict):
        return None
    return ProcessIdentity(
        _text(data, "machine_boot_id"),
        _text(data, "pid_namespace"),
        _number(data, "pid"),
        _number(data, "start_ticks"),
    )


def _usage(data: object) -> Usage:
    if not isinstance(data, dict):
        return Usage()
    cost = data.get("cost_usd")
    return Usage(
        _number(data, "input_tokens"),
        _number(data, "output_tokens"),
        _number(data, "cache_read_tokens"),
        _number(data, "cache_write_tokens"),
        float(cost) if isinstance(cost, int | float) else None,
    )


def _read(path: Path) -> dict[str, object] | None:
    """The JSON object in a file of ours; None where there is none, or an agent has put something else there."""
    try:
        value = json.loads(read_bounded(path, MAX_RECORD))
    except (OSError, OutsideError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _bytes(data: Mapping[str, object]) -> bytes:
    return json.dumps(data, ensure_ascii=False, indent=1, default=str).encode(errors="replace")


def _text(data: Mapping[str, object], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _number(data: Mapping[str, object], key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else 0


def _mapping(value: object) -> dict[str, str]:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else {}


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
