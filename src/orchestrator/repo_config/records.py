"""The records of ``.orchestrator.toml``. Times are seconds, money is US dollars, percentages are 0–100.

Commands are argument lists, never shell text. There are no placeholders in them: values travel in the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.domain.stage import Role

Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CiConfig:
    """How the repository checks itself: run in a clean checkout of the exact SHA."""

    command: Argv
    timeout_s: float = 1800.0
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoverageConfig:
    """Where the CI command leaves its coverage report, relative to the checkout."""

    report: str
    format: str  # "coverage.py" | "cobertura" | "lcov"
    tolerance: float = 0.0  # how far below the baseline M may be, in percentage points
    minimum: float = 0.0


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """How the artefact is built: a command in a clean checkout of M that leaves it at ``artifact``."""

    command: Argv
    artifact: str  # file or folder, relative to the checkout
    timeout_s: float = 1800.0
    rebuild: bool = False  # rebuild for production instead of promoting the tested digest


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """How an environment says which SHA it runs: a URL answering JSON or text, or a command printing it."""

    url: str | None = None
    command: Argv | None = None
    field: str = "sha"  # JSON key, dotted; ignored for plain text
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class EnvironmentConfig:
    """Staging or production. The commands run detached with ORCH_SHA, ORCH_DIGEST, ORCH_ARTIFACT, ORCH_ENVIRONMENT,
    ORCH_GENERATION and ORCH_DEPLOY_TOKEN in their environment."""

    name: str  # key of the slot and of ``environment_epoch``; the same name is the same place for all repositories
    deploy: Argv
    probe: ProbeConfig
    undo: Argv | None = None
    timeout_s: float = 600.0
    healthy_times: int = 3
    interval_s: float = 2.0
    stable_for_s: float = 10.0
    env: Mapping[str, str] = field(default_factory=dict)
    honours_token: bool = False  # the target compares ORCH_DEPLOY_TOKEN itself (said in `orch doctor`)


@dataclass(frozen=True, slots=True)
class ApprovalsConfig:
    """Where a person must agree."""

    analysis: bool = False  # Approved
    deploy: bool = False  # Confirm Deploy
    confirm_timeout_s: float = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ForgeConfig:
    """What others have to say at the forge before a change is merged; a local forge has nobody to say it."""

    required_checks: tuple[str, ...] = ()  # by the names under which the forge shows them
    checks_timeout_s: float = 3600.0  # a check that is not there, or not done, for longer calls a person
    required_reviews: int = 0  # approvals by people, of the commit that was tested

    @property
    def asks(self) -> bool:
        """Whether anybody is asked."""
        return bool(self.required_checks) or self.required_reviews > 0


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Who does a role, within which bounds."""

    kind: str = "claude"  # "claude" | "codex" | "command" | "scripted"
    command: Argv | None = None  # for kind "command"; the program's own path for the others
    model: str | None = None
    timeout_s: float = 3600.0
    stall_s: float = 900.0
    max_turns: int | None = None
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    env: tuple[str, ...] = ()  # names of variables that this agent may see, beyond the common list
    prompt: str | None = None  # path of a prompt template in the repository


@dataclass(frozen=True, slots=True)
class PathPolicy:
    """Paths an agent may not change unless the ticket's label allows it. Globs are matched on the whole path."""

    protected: tuple[str, ...] = (
        ".orchestrator.toml",
        ".gitea/**",
        ".forgejo/**",
        ".github/**",
        ".gitlab-ci.yml",
        ".ci/**",
        ".coveragerc",
        "setup.cfg",
        "tox.ini",
    )
    allow_label: str = "allow-protected"


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """Bounds per task, over all its runs."""

    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_rounds: int = 3  # rejections per edge before the task escalates
    max_attempts: int = 3  # runs per job
    max_candidates: int = 5


@dataclass(frozen=True, slots=True)
class RepoConfig:
    """All of it."""

    default_branch: str
    ci: CiConfig
    coverage: CoverageConfig | None = None
    image: ImageConfig | None = None
    staging: EnvironmentConfig | None = None
    production: EnvironmentConfig | None = None
    approvals: ApprovalsConfig = ApprovalsConfig()
    forge: ForgeConfig = ForgeConfig()
    agent: AgentConfig = AgentConfig()
    agents: Mapping[Role, AgentConfig] = field(default_factory=dict)
    paths: PathPolicy = PathPolicy()
    budget: BudgetConfig = BudgetConfig()
    language: str | None = None

    def agent_for(self, role: Role) -> AgentConfig:
        """The role's own settings, else the repository's."""
        return self.agents.get(role, self.agent)
