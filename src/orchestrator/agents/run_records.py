"""The records of a run folder, and how they are read back. An agent can write where we write: nothing here raises."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from orchestrator.agents.agent import Limits, Session
from orchestrator.agents.fields import count, number, text
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.job import RunOutcome, Usage
from orchestrator.runtime.files import read_bounded
from orchestrator.runtime.process import ProcessIdentity

MARKER = "ORCH_RUN_ID"  # in the environment of the agent and of everything it starts
MAX_RECORD = 4 * 1024 * 1024


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
    machine: str = ""  # see :class:`orchestrator.runtime.process.Machine`; empty from earlier versions


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running agent is doing: for people; written about once a second."""

    at: str
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    tool: str | None = None
    text: str = ""
    log_bytes: int = 0


def launch_in(data: Mapping[str, object]) -> LaunchRecord | None:
    """The launch record in what was read; None where it is none."""
    limits, resume, argv = data.get("limits"), data.get("resume"), data.get("argv")
    if not isinstance(limits, dict) or not isinstance(argv, list):
        return None
    stdin = text(data, "stdin_file")
    return LaunchRecord(
        run_id=text(data, "run_id"),
        agent=text(data, "agent"),
        argv=tuple(str(word) for word in argv),
        env=_mapping(data.get("env")),
        secret_names=_strings(data.get("secret_names")),
        cwd=Path(text(data, "cwd")),
        stdin_file=Path(stdin) if stdin else None,
        artifacts={name: Path(place) for name, place in _mapping(data.get("artifacts")).items()},
        resume=session_in(resume),
        warnings=_strings(data.get("warnings")),
        limits=Limits(**{name: limits[name] for name in Limits.__slots__ if name in limits}),
    )


def outcome_in(data: Mapping[str, object]) -> RunOutcome:
    """An agent can write where we write: what is no outcome is none."""
    try:
        return RunOutcome(text(data, "outcome"))
    except ValueError:
        return RunOutcome.NO_RESULT


def session_in(data: object) -> Session | None:
    """The conversation to go on with."""
    if not isinstance(data, dict):
        return None
    return Session(text(data, "session_id"), Path(text(data, "home")), usage_in(data.get("usage")))


def identity_in(data: object) -> ProcessIdentity | None:
    """A process."""
    if not isinstance(data, dict):
        return None
    return ProcessIdentity(
        text(data, "machine_boot_id"),
        text(data, "pid_namespace"),
        count(data, "pid"),
        count(data, "start_ticks"),
    )


def usage_in(data: object) -> Usage:
    """Tokens and money."""
    if not isinstance(data, dict):
        return Usage()
    return Usage(
        count(data, "input_tokens"),
        count(data, "output_tokens"),
        count(data, "cache_read_tokens"),
        count(data, "cache_write_tokens"),
        number(data, "cost_usd"),
    )


def read_record(path: Path) -> dict[str, object] | None:
    """The JSON object in a file of ours; None where there is none, or an agent has put something else there."""
    try:
        value = json.loads(read_bounded(path, MAX_RECORD))
    except (OSError, OutsideError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def record_bytes(data: Mapping[str, object]) -> bytes:
    """A record as it is stored."""
    return json.dumps(data, ensure_ascii=False, indent=1, default=str).encode(errors="replace")


def _mapping(value: object) -> dict[str, str]:
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else {}


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
