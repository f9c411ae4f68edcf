"""How the places for agents are shared: the caps that all processes of one database keep together.

What must hold: a cap counts agents' jobs that run, in whichever process; a job may be under several caps and starts
only where each of them has room. A cap of 0 starts nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.domain.job import AGENT_PROGRAMS
from orchestrator.domain.stage import Stage

OTHERS = "*"  # the name under which a cap counts for each that has none of its own
AGENT_STAGES = (
    Stage.ANALYSIS,
    Stage.ARCHITECTURE,
    Stage.DEVELOPMENT,
    Stage.REVIEW,
    Stage.TESTING,
    Stage.DEPLOY_STAGING,
)
PRIORITY_STEP_S = 3600.0  # seconds of waiting that are worth one step of priority

Caps = tuple[tuple[str, int], ...]  # names and how many agents they may have at once


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a job counts; ``agent`` is the program it starts, empty for the orchestrator's own checks."""

    repo: str
    stage: str
    agent: str

    @property
    def shares(self) -> tuple[str, ...]:
        """The names of what this lane's agents count for; the claiming statement uses the same."""
        if not self.agent:
            return ()
        return "all", f"repo/{self.repo}", f"stage/{self.stage}", f"agent/{self.agent}"


@dataclass(frozen=True, slots=True)
class Shares:
    """What an operator has set."""

    total: int | None = None
    by_repo: Caps = ()
    by_stage: Caps = ()
    by_kind: Caps = ()

    def limits(self, repos: Iterable[str]) -> dict[str, int]:
        """Every cap by the name of its share; ``repos`` are those that work may be done for."""
        found = {} if self.total is None else {"all": self.total}
        found |= _expanded("repo", self.by_repo, repos)
        found |= _expanded("stage", self.by_stage, AGENT_STAGES)
        found |= _expanded("agent", self.by_kind, AGENT_PROGRAMS)
        return found


NO_CAPS = Shares()


@dataclass(frozen=True, slots=True)
class Share:
    """One cap and how much of it is taken."""

    name: str
    running: int
    limit: int

    @property
    def full(self) -> bool:
        """Whether nothing more starts under it."""
        return self.running >= self.limit

    def __str__(self) -> str:
        kind, _, name = self.name.partition("/")
        which = {
            "all": ("agents", "TOTAL"),
            "repo": (f"agents of repository {name}", "BY_REPO"),
            "stage": (f"agents in stage {name}", "BY_STAGE"),
            "agent": (f"agents of kind {name}", "BY_KIND"),
        }
        what, setting = which[kind]
        return f"{self.running} of {self.limit} {what} run (ORCH_MAX_AGENTS_{setting})"


def taken(limits: Mapping[str, int], running: Mapping[Lane, int]) -> dict[str, Share]:
    """How much of each cap is used, given how many jobs run in each lane."""
    used = dict.fromkeys(limits, 0)
    for lane, jobs in running.items():
        for name in lane.shares:
            if name in used:
                used[name] += jobs
    return {name: Share(name, used[name], limit) for name, limit in limits.items()}


def _expanded(kind: str, caps: Caps, names: Iterable[str]) -> dict[str, int]:
    given = dict(caps)
    every = dict.fromkeys(names, given[OTHERS]) if OTHERS in given else {}
    return {f"{kind}/{name}": most for name, most in {**every, **given}.items() if name != OTHERS}
