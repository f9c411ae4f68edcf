"""What an agent program is to us: how to start it, how to read what it says, how to judge how it ended.

An adapter holds no state and does no I/O of its own: ``launch`` and ``finish`` turn records into records,
``parse`` turns one line into events and never raises. Everything that runs, waits, limits or kills belongs to
the supervisor, which is the same for all programs. An adapter's verdict says how the *program* ended; whether
work was done is git's word (law 10).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from orchestrator.domain.job import RunResult, Usage
from orchestrator.domain.stage import Role
from orchestrator.repo_config.records import AgentConfig, Argv
from orchestrator.runtime.process import Processes

TOOL_STALL_FACTOR = 3.0  # a tool that runs (a build, a test suite) may be silent this much longer
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run, held by the supervisor. Seconds count only while the supervisor itself was running."""

    timeout_s: float = 3600.0
    stall_s: float = 900.0
    tool_stall_s: float = 2700.0  # silence allowed while a tool runs
    max_turns: int | None = None
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    orphan_ttl_s: float = 120.0  # without adoption for this long the run is ended (law 8)
    log_cap_bytes: int = 64 * MEBIBYTE


def limits_of(config: AgentConfig, *, orphan_ttl_s: float = 120.0) -> Limits:
    """The limits that a repository configured for an agent."""
    return Limits(
        timeout_s=config.timeout_s,
        stall_s=config.stall_s,
        tool_stall_s=config.stall_s * TOOL_STALL_FACTOR,
        max_turns=config.max_turns,
        max_cost_usd=config.max_cost_usd,
        max_tokens=config.max_tokens,
        orphan_ttl_s=orphan_ttl_s,
    )


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation that an earlier run left behind and that a new run may go on with."""

    session_id: str
    home: Path  # private home of the run that left it; the program keeps its transcript there
    usage: Usage = Usage()  # what the whole conversation had used by then: some programs count on from there


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose name the agent's commits bear."""

    name: str = "orchestrator agent"
    email: str = "agent@orchestrator.invalid"


@dataclass(frozen=True, slots=True)
class AgentTask:
    """Everything an adapter needs to know about one run."""

    role: Role
    worktree: Path
    run_dir: Path
    brief_file: Path  # brief.json
    prompt_file: Path  # prompt.md
    new_session_id: str  # a fresh UUID, for programs that let us choose
    config: AgentConfig = AgentConfig()
    limits: Limits = Limits()
    identity: Identity = Identity()
    resume: Session | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one run. ``secrets`` travel from process to process and are never written to a file."""

    agent: str  # the adapter's name
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    secrets: Mapping[str, str] = field(default_factory=dict)
    stdin_file: Path | None = None
    artifacts: Mapping[str, Path] = field(default_factory=dict)  # files the program leaves, by what they are
    resume: Session | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a program can do for us; the supervisor does the rest."""

    events: bool  # writes JSON events, one a line
    live_usage: bool  # tokens are known while it runs
    cost: bool  # says what it cost
    resume: bool
    ladder: tuple[tuple[str, float], ...]  # (signal name, seconds of grace) before SIGKILL


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The program said who it is."""

    session_id: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Turn:
    """The model answered; the same id again is the same answer."""

    id: str


@dataclass(frozen=True, slots=True)
class Text:
    """Words of the agent."""

    text: str


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer in the making: a sign of life, not worth keeping."""


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A tool began to run."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """A tool ended."""

    id: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens of one answer; a later report for the same id replaces the earlier one."""

    id: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Retry:
    """The program's call of its model failed and will be repeated."""

    status: int | None
    reason: str
    delay_s: float | None = None
    resets_at: float | None = None  # seconds since 1970, where the service said when the limit ends


@dataclass(frozen=True, slots=True)
class Denied:
    """The program refused a tool."""

    tool: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something to show to a person."""

    text: str


@dataclass(frozen=True, slots=True)
class Final:
    """The program's own closing word."""

    is_error: bool
    text: str
    reason: str = ""
    status: int | None = None  # HTTP status of the model service, where that ended it
    usage: Usage | None = None  # this run's own share
    session_usage: Usage | None = None  # of the whole conversation


@dataclass(frozen=True, slots=True)
class Raw:
    """A line that says nothing we know; kept in the log."""


Event = Started | Turn | Text | Delta | ToolStart | ToolEnd | Spent | Retry | Denied | Warned | Final | Raw


# --- the end ----------------------------------------------------------------------------------------------------------


class StopReason(StrEnum):
    """Why the supervisor ended a run that had not ended by itself."""

    TIMEOUT = "timeout"
    STALLED = "stalled"
    TURNS = "turns"
    BUDGET = "budget"
    AUTH = "auth"
    KILLED = "killed"
    ORPHANED = "orphaned"
    LINGERING = "lingering"  # it had said its closing word and did not go


@dataclass(frozen=True, slots=True)
class Stop:
    """A decision to end a run, with the words for people."""

    reason: StopReason
    message: str


@dataclass(frozen=True, slots=True)
class Tally:
    """What the events of a run added up to."""

    session_id: str | None = None
    model: str | None = None
    turns: int = 0
    usage: Usage = Usage()
    text: str = ""  # the last words
    tool: str | None = None  # a tool that is running
    retry: Retry | None = None  # the last one
    auth_failed: bool = False
    denied: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    final: Final | None = None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """An ended program, as the supervisor saw it."""

    program: str
    exit_code: int | None  # negative: ended by that signal
    stop: Stop | None
    tally: Tally
    stderr: str  # the last lines
    artifacts: Mapping[str, str]  # the text of those that were left
    resume: Session | None
    now: float  # seconds since 1970


class Agent(Protocol):
    """An agent program."""

    name: str
    capabilities: Capabilities

    def probe(self, processes: Processes, environ: Mapping[str, str], command: Argv | None) -> str | None:
        """The program's version in its own words; None where it does not run here."""
        ...

    def launch(self, task: AgentTask, environ: Mapping[str, str]) -> Launch:
        """How to start the run. ``environ`` is ours: the adapter picks what this agent may see and nothing else."""
        ...

    def parse(self, line: bytes) -> tuple[Event, ...]:
        """One line of standard output as events; pure, never raises; what is unknown is ``Raw``."""
        ...

    def finish(self, end: RunEnd) -> RunResult:
        """How the program ended."""
        ...
