"""What one start of an environment leaves on disk, and how it is read.

A start has a folder ``<state>/deploys/<environment>/<generation>-<sha>/``:

- ``start.json``  what to run, written before anything is spawned;
- ``STARTED``     who claimed the start: the detached child, or a revoker that came first. Created exclusively and
  whole, it is the fact of the effect (law 4);
- ``TERMINATE``   somebody has decided to end the command: from then on its end counts as a kill, whatever its code;
- ``exit.json``   how the command ended: evidence for the gate;
- ``log``         the command's output, bounded;
- ``artifact``    the command's own copy of the artefact.

Absent is an answer, "not yet". Present and unreadable is none: it raises, and the effect is in doubt.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from orchestrator.domain.errors import AuthorityUnreachable, ConfigError, OutsideError
from orchestrator.domain.ids import Digest, Sha, WorkItem
from orchestrator.runtime.files import UnreadableFile, read_bounded
from orchestrator.runtime.process import ProcessIdentity

START_FILE = "start.json"
STARTED_FILE = "STARTED"
TERMINATE_FILE = "TERMINATE"
EXIT_FILE = "exit.json"
LOG_FILE = "log"
ARTIFACT_FOLDER = "artifact"

MARKER_NAME = "ORCH_DEPLOY_ID"

RECORD_LIMIT = (
    256 * 1024
)  # bytes; ours are far smaller, the argv and env of a configuration are what could grow

ENVIRONMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FULL_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class DeployKind(StrEnum):
    """Forward, or back again."""

    DEPLOY = "deploy"
    UNDO = "undo"


class Claimant(StrEnum):
    """Who created ``STARTED``."""

    CHILD = "child"
    REVOKER = "revoker"


class Ending(StrEnum):
    """How a started command ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class DeployStart:
    """One start: its key (environment, SHA, generation), its fence, and what to run."""

    environment: str
    sha: Sha
    generation: int
    digest: Digest | None  # None where the repository builds no artefact
    artifact: Path | None  # in the image store; the command gets a copy
    token: str  # of the environment, never of the task
    argv: tuple[str, ...]
    timeout_s: float
    work_item: WorkItem
    sequence: int
    installation: str
    kind: DeployKind = DeployKind.DEPLOY
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """The claim of a start. ``runner`` and ``command`` are None where a revoker made it."""

    by: Claimant
    installation: str
    sequence: int
    token: str
    at: str
    host: str
    runner: ProcessIdentity | None = None
    command: ProcessIdentity | None = None  # leads the command's own session and process group


@dataclass(frozen=True, slots=True)
class Exit:
    """How the command ended. ``code`` is its exit code; None where it was killed or never ran."""

    ending: Ending
    code: int | None
    at: str
    detail: str = ""

    @property
    def succeeded(self) -> bool:
        """Exit code 0, in time and of its own accord."""
        return self.ending is Ending.EXITED and self.code == 0


def marker(start: DeployStart) -> str:
    """The line in the command's environment by which its processes are known again."""
    return f"{MARKER_NAME}={start.installation}-{start.sequence}"


def start_folder(root: Path, environment: str, sha: str, generation: int) -> Path:
    """The folder of one start under ``<state>/deploys``.

    :raises ConfigError: a part is not fit to be a file name.
    """
    if not ENVIRONMENT_NAME.fullmatch(environment):
        raise ConfigError(
            f"The environment name {environment!r} cannot name a folder; nothing was started.",
            hint="Use up to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit.",
        )
    if not FULL_SHA.fullmatch(sha) or generation < 1:
        raise ConfigError(
            f"A start needs a full SHA and a generation from 1 on, not {sha!r} and {generation}."
        )
    return root / environment / f"{generation}-{sha}"


def read_start(folder: Path) -> DeployStart | None:
    """What the start was to run; None where no start was ever written.

    :raises AuthorityUnreachable: the record is unreadable.
    """
    record = _read(folder / START_FILE)
    if record is None:
        return None
    try:
        return _start_from(record)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(folder / START_FILE) from error


def started(folder: Path) -> Started | None:
    """Who claimed the start; None where nobody has yet.

    :raises AuthorityUnreachable: the claim is there and cannot be read, so nobody can say whether the command ran.
    """
    record = _read(folder / STARTED_FILE)
    if record is None:
        return None
    try:
        return _started_from(record)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(folder / STARTED_FILE) from error


def exit_record(folder: Path) -> Exit | None:
    """How the command ended; None where no end is recorded.

    :raises AuthorityUnreachable: the record is there and cannot be read.
    """
    record = _read(folder / EXIT_FILE)
    if record is None:
        return None
    try:
        code = record["code"]
        return Exit(
            Ending(str(record["ending"])),
            None if code is None else _whole(code),
            _text(record["at"]),
            _text(record["detail"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(folder / EXIT_FILE) from error


def to_bytes(record: DeployStart | Started | Exit) -> bytes:
    """The record as stored."""
    return (json.dumps(asdict(record), default=str, indent=1, sort_keys=True) + "\n").encode()


def _read(path: Path) -> dict[str, object] | None:
    try:
        data = read_bounded(path, RECORD_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (UnreadableFile, OSError) as error:
        raise _unreadable(path) from error
    try:
        record = json.loads(data)
    except ValueError as error:
        raise _unreadable(path) from error
    if not isinstance(record, dict):
        raise _unreadable(path)
    return record


def _start_from(record: Mapping[str, object]) -> DeployStart:
    argv, env = record["argv"], record["env"]
    if not isinstance(argv, list) or not argv or not isinstance(env, dict):
        raise TypeError("argv and env")
    return DeployStart(
        environment=_text(record["environment"]),
        sha=Sha(_text(record["sha"])),
        generation=_whole(record["generation"]),
        digest=None if record["digest"] is None else Digest(_text(record["digest"])),
        artifact=None if record["artifact"] is None else Path(_text(record["artifact"])),
        token=_text(record["token"]),
        argv=tuple(_text(part) for part in argv),
        timeout_s=float(_number(record["timeout_s"])),
        work_item=WorkItem(_text(record["work_item"])),
        sequence=_whole(record["sequence"]),
        installation=_text(record["installation"]),
        kind=DeployKind(_text(record["kind"])),
        env={_text(name): _text(value) for name, value in env.items()},
    )


def _started_from(record: Mapping[str, object]) -> Started:
    claim = Started(
        by=Claimant(_text(record["by"])),
        installation=_text(record["installation"]),
        sequence=_whole(record["sequence"]),
        token=_text(record["token"]),
        at=_text(record["at"]),
        host=_text(record["host"]),
        runner=_identity(record["runner"]),
        command=_identity(record["command"]),
    )
    if claim.by is Claimant.CHILD and (claim.runner is None or claim.command is None):
        raise ValueError("a child's claim names its processes")
    return claim


def _identity(value: object) -> ProcessIdentity | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise TypeError("process identity")
    return ProcessIdentity(
        _text(value["machine_boot_id"]),
        _text(value["pid_namespace"]),
        _whole(value["pid"]),
        _whole(value["start_ticks"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text expected")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("number expected")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("whole number expected")
    return value


def _unreadable(path: Path) -> OutsideError:
    return AuthorityUnreachable(
        f"The deploy record {path} exists but cannot be read, so it is unknown whether the command ran.",
        hint="Look at the environment by hand, then use 'orch effect resolve'.",
    )
