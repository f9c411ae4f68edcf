"""Durable ownership of a task's transition (law 1)."""

from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.domain.ids import BootId, RunId, TaskId
from orchestrator.domain.scope import Scope
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


BELIEVABLE = 2**53  # an epoch from there on was not counted up to, and nothing can be counted on from it
OWN_PART = 2 / 3  # of the TTL: the rest is the margin for clocks that drift and for answers on their way


def own_term_s(process_ttl_s: float) -> float:
    """How long after its last heartbeat a process trusts its own leases: shorter than others wait for it (law 12)."""
    return process_ttl_s * OWN_PART


def switches(scope: Scope) -> str:
    """What all processes of a database must have alike, as ``name=value`` words (DESIGN §5)."""
    named = ",".join(sorted(scope.named())) or "-"
    return f"transition_lease={'on' if scope.enabled else 'off'} repos={named}"


def why_not_believed(epoch: int) -> str | None:
    """Why nothing is done for a task at this epoch; None where it is one like any other."""
    if epoch < BELIEVABLE:
        return None
    return f"its epoch is {epoch}, to which no counting leads: the database was changed by hand"


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
