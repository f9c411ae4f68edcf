"""Jobs, runs and what came of them."""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.ids import SHARED_HOME, BootId, Home, JobId, RunId, TaskId
from orchestrator.domain.stage import Stage

AGENT_PROGRAMS = ("claude", "codex", "command", "scripted")
UNKNOWN_PROGRAM = "unknown"  # of an agent's job that was queued before programs were noted


class JobKind(StrEnum):
    """What a job does. Six are an agent's role; the others gather evidence for the orchestrator itself."""

    ANALYST = "analyst"
    ARCHITECT = "architect"
    DEVELOPER = "developer"
    REVIEWER = "reviewer"
    TESTER = "tester"
    DEPLOYER = "deployer"
    CI = "ci"  # the repository's checks on the branch head
    CANDIDATE_CI = "candidate-ci"  # checks and coverage on M
    STAGING_HEALTH = "staging-health"
    PRODUCTION_HEALTH = "production-health"

    @property
    def agent(self) -> bool:
        """True for jobs that an agent does (they cost money and make a run)."""
        return self in _AGENT_KINDS

    @property
    def only_looks(self) -> bool:
        """True for jobs that only look at an environment: they run nothing of the change."""
        return self in (JobKind.STAGING_HEALTH, JobKind.PRODUCTION_HEALTH)


_AGENT_KINDS = frozenset(
    {
        JobKind.ANALYST,
        JobKind.ARCHITECT,
        JobKind.DEVELOPER,
        JobKind.REVIEWER,
        JobKind.TESTER,
        JobKind.DEPLOYER,
    }
)


class JobStatus(StrEnum):
    """Life of a job. ``queued → running → done | failed | cancelled``; a reaped job goes back to ``queued``."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Job:
    """One queued piece of work for a task. ``attempts`` is counted at the claim, so that a job that kills its worker
    is not retried for ever."""

    id: JobId
    task_id: TaskId
    stage: Stage
    round: int
    kind: JobKind
    status: JobStatus
    attempts: int
    max_attempts: int
    subject: str | None  # what the job is about: a SHA, or nothing
    brief: str  # findings of an earlier attempt or rejection, for the agent
    claimed_by: BootId | None
    claimed_at: str | None
    not_before: str | None
    error: str | None
    claims: int = 0  # which claim this is: what an earlier one still says counts for nothing
    undo: int | None = (
        None  # of a look at production that asks only whether this undo of the ledger has worked
    )
    priority: int = 0
    created_at: str = ""
    lane: int | None = None  # with whom it takes turns; None of one that ended before there were lanes


class RunOutcome(StrEnum):
    """How one execution of an agent ended, as told by its own record; git has the last word (law 10)."""

    DONE = "done"
    DENIED = "denied"
    LIMIT_TURNS = "limit-turns"
    LIMIT_BUDGET = "limit-budget"
    LIMIT_TIME = "limit-time"
    STALLED = "stalled"
    RATE_LIMITED = "rate-limited"  # costs no attempt; parked until the stated reset
    OVERLOADED = "overloaded"
    AUTH = "auth"
    CONTEXT_OVERFLOW = "context-overflow"
    API_ERROR = "api-error"
    KILLED = "killed"
    CRASHED = "crashed"
    NO_RESULT = "no-result"
    NOT_STARTED = "not-started"  # the program does not exist or could not be executed
    CALLED_OFF = "called-off"  # provably never started, and made impossible: whoever was to start it has died
    LOST = "lost"  # its worker was not heard of any more; what it says and has cost may still come


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money of one run. ``cost_usd`` is None where the agent's program does not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None

    @property
    def total_tokens(self) -> int:
        """Everything that was billed, cached input included."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class RunResult:
    """What an ended run left behind."""

    outcome: RunOutcome
    exit_code: int | None
    usage: Usage
    summary: str = ""  # the agent's last words, or why it ended; shown to people, believed by nobody
    session_id: str | None = None
    model: str | None = None
    retry_after_s: float | None = None  # for RATE_LIMITED: seconds until the stated reset
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentRun:
    """One row of ``agent_runs``."""

    id: RunId
    job_id: JobId
    task_id: TaskId
    attempt: int
    agent: str
    model: str | None
    run_dir: str
    outcome: RunOutcome | None
    exit_code: int | None
    usage: Usage
    summary: str
    session_id: str | None
    started_at: str
    finished_at: str | None
    home: Home = SHARED_HOME  # in whose state folder it lies
