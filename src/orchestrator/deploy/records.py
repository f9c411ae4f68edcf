"""What one start of an environment leaves on disk, and how it is read.

A start has a folder ``<state>/deploys/<environment>/<generation>-<sha>/``:

- ``start.json``  what to run, written before anything is spawned;
- ``STARTED``     who claimed the start: the detached child, or a revoker that came first. Created exclusively and
  whole, it is the fact of the effect (law 4);
- ``REPORTED``   a deploy of ourselves only: the new version runs and says so;
- ``TERMINATE``   somebody has decided to end the command: from then on its end counts as a kill, whatever its code;
- ``exit.json``   how the command ended: evidence for the gate;
- ``log``         the command's output, bounded;
- ``artifact``    the command's own copy of the artefact;
- ``LOST``        the folder in which ``STARTED`` would be was lost: that it is absent is no answer any more.

Absent is an answer, "not yet". Present and unreadable is none: it raises, and the effect is in doubt.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from orchestrator.deploy.fields import identity, mapping, number, read_record, text, unreadable, whole
from orchestrator.domain.errors import AuthorityUnreachable, ConfigError
from orchestrator.domain.ids import Digest, Sha, WorkItem
from orchestrator.runtime.process import ProcessIdentity

START_FILE = "start.json"
STARTED_FILE = "STARTED"
REPORTED_FILE = "REPORTED"
TERMINATE_FILE = "TERMINATE"
EXIT_FILE = "exit.json"
LOG_FILE = "log"
ARTIFACT_FOLDER = "artifact"
LOST_FILE = "LOST"

MARKER_NAME = "ORCH_DEPLOY_ID"

ENVIRONMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FULL_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class RecordLost(AuthorityUnreachable):
    """Whether a start has taken place was written down in a state folder that is lost: only a person can tell."""


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
    DECLARED = "declared"  # a person says that nothing of it is at work; nobody could find out how it ended


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
    undo: "ConditionalUndo | None" = (
        None  # of a deploy of ourselves, where nobody else may be left to undo it
    )

    @property
    def identity(self) -> tuple[str, int, str]:
        """What tells this start from every other: installation, ledger sequence, token."""
        return (self.installation, self.sequence, self.token)


@dataclass(frozen=True, slots=True)
class ConditionalUndo:
    """Prepared with the start of ourselves, and performed by its runner unless the new version reports in time."""

    start: DeployStart
    within_s: float  # from the command's end


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
    machine: str = ""  # see :class:`orchestrator.runtime.process.Machine`; empty from earlier versions


@dataclass(frozen=True, slots=True)
class Reported:
    """The version that a start has brought says that it runs; see ``start.identity``."""

    sha: Sha
    installation: str
    sequence: int
    token: str
    at: str
    process: ProcessIdentity | None = None

    def answers(self, start: DeployStart) -> bool:
        """Whether it speaks of this very start."""
        return self.sha == start.sha and (self.installation, self.sequence, self.token) == start.identity


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
    record = read_record(folder / START_FILE)
    if record is None:
        return None
    try:
        return start_from(record)
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(folder / START_FILE) from error


def started(folder: Path) -> Started | None:
    """Who claimed the start; None where nobody has yet.

    :raises RecordLost: the claim, if there was one, is lost.
    :raises AuthorityUnreachable: the claim is there and cannot be read, so nobody can say whether the command ran.
    """
    record = read_record(folder / STARTED_FILE)
    if record is None and (folder / LOST_FILE).exists():
        raise RecordLost(
            f"Whether {folder.parent.name}/{folder.name} was started is not known: the state folder with its record is "
            "lost.",
            hint="Look at the environment, then say what became of it with `orch effect resolve`: `ended` where that "
            "alone is not known. `orch effect list --all` has its number.",
        )
    if record is None:
        return None
    try:
        return _started_from(record)
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(folder / STARTED_FILE) from error


def reported(folder: Path) -> Reported | None:
    """What the new version said of itself; None where it has not yet.

    :raises AuthorityUnreachable: the record is there and cannot be read.
    """
    record = read_record(folder / REPORTED_FILE)
    if record is None:
        return None
    try:
        return Reported(
            sha=Sha(text(record["sha"])),
            installation=text(record["installation"]),
            sequence=whole(record["sequence"]),
            token=text(record["token"]),
            at=text(record["at"]),
            process=identity(record["process"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(folder / REPORTED_FILE) from error


def exit_record(folder: Path) -> Exit | None:
    """How the command ended; None where no end is recorded.

    :raises AuthorityUnreachable: the record is there and cannot be read.
    """
    record = read_record(folder / EXIT_FILE)
    if record is None:
        return None
    try:
        code = record["code"]
        return Exit(
            Ending(str(record["ending"])),
            None if code is None else whole(code),
            text(record["at"]),
            text(record["detail"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(folder / EXIT_FILE) from error


def set_aside_unreadable(folder: Path) -> None:
    """Make room for a person's word where the exit record cannot be read; what is there is kept beside it.

    :raises OSError: it cannot be moved.
    """
    try:
        exit_record(folder)
    except AuthorityUnreachable:
        (folder / EXIT_FILE).replace(folder / f"{EXIT_FILE}.unreadable")


def to_bytes(record: DeployStart | Started | Reported | Exit) -> bytes:
    """The record as stored."""
    return (json.dumps(asdict(record), default=str, indent=1, sort_keys=True) + "\n").encode()


def start_from(record: Mapping[str, object]) -> DeployStart:
    """The start that a record carries: the runner's ``start.json``, or an intent with what identifies it.

    :raises KeyError, TypeError, ValueError: a field is missing or no such thing.
    """
    argv, env, undo = record["argv"], mapping(record["env"]), record.get("undo")
    if not isinstance(argv, list) or not argv:
        raise TypeError("argv")
    return DeployStart(
        environment=text(record["environment"]),
        sha=Sha(text(record["sha"])),
        generation=whole(record["generation"]),
        digest=None if record["digest"] is None else Digest(text(record["digest"])),
        artifact=None if record["artifact"] is None else Path(text(record["artifact"])),
        token=text(record["token"]),
        argv=tuple(text(part) for part in argv),
        timeout_s=float(number(record["timeout_s"])),
        work_item=WorkItem(text(record["work_item"])),
        sequence=whole(record["sequence"]),
        installation=text(record["installation"]),
        kind=DeployKind(text(record["kind"])),
        env={name: text(value) for name, value in env.items()},
        undo=None if undo is None else _undo_from(mapping(undo)),
    )


def _undo_from(record: Mapping[str, object]) -> ConditionalUndo:
    return ConditionalUndo(start_from(mapping(record["start"])), float(number(record["within_s"])))


def _started_from(record: Mapping[str, object]) -> Started:
    claim = Started(
        by=Claimant(text(record["by"])),
        installation=text(record["installation"]),
        sequence=whole(record["sequence"]),
        token=text(record["token"]),
        at=text(record["at"]),
        host=text(record["host"]),
        runner=identity(record["runner"]),
        command=identity(record["command"]),
        machine=text(record.get("machine", "")),
    )
    if claim.by is Claimant.CHILD and (claim.runner is None or claim.command is None):
        raise ValueError("a child's claim names its processes")
    return claim
