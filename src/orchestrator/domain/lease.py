"""Durable ownership of a task's transition (law 1)."""

from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.domain.ids import BootId, RunId, TaskId
from orchestrator.domain.stage import Stage


class Actor(StrEnum):
    """Whoever may move a task; the ``owner`` of a lease."""

    MONITOR = "monitor"
    REAPER = "reaper"
    RECONCILER = "reconciler"
    WEBHOOK = "webhook"
    FINALIZER = "finalizer"
    RECOVERY = "recovery"
    OPERATOR = "operator"


EVERY_REPOSITORY = "*"
OWN_PART = 2 / 3  # of the TTL: the rest is the margin for clocks that drift and for answers on their way


def own_term_s(process_ttl_s: float) -> float:
    """How long after its last heartbeat a process trusts its own leases: shorter than others wait for it (law 12)."""
    return process_ttl_s * OWN_PART


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose transitions run under a lease (FR-7). Outside of it law 1 is off; laws 2 to 5 hold everywhere."""

    enabled: bool = True
    repos: frozenset[str] = frozenset({EVERY_REPOSITORY})
    self_repo: str = ""  # the repository of this very installation; all that is left where none is named

    def covers(self, repo: str) -> bool:
        """Whether a repository's tasks are leased."""
        if not self.enabled:
            return False
        return EVERY_REPOSITORY in self.repos or repo in self.named()

    def named(self) -> frozenset[str]:
        """The repositories that the setting comes down to."""
        return self.repos or frozenset({self.self_repo} - {""})

    def switches(self) -> str:
        """What all processes of a database must have alike, as ``name=value`` words (DESIGN §5)."""
        return f"transition_lease={'on' if self.enabled else 'off'} repos={','.join(sorted(self.named())) or '-'}"


@dataclass(frozen=True, slots=True)
class Lease:
    """Proof of ownership: whoever holds it may write under ``epoch`` and under no other."""

    task_id: TaskId
    owner: Actor
    boot_id: BootId
    epoch: int
    stage: Stage
    run_id: RunId | None = None
    durable: bool = True  # False: its repository is out of scope, so that no row says so
    term: int = field(default=0, compare=False)  # of its process: in a later one it is not trusted any more
