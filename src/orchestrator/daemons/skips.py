"""Why the reconciler leaves a task alone (F-1, FR-5, DESIGN §7): pure, so that each reason can be tried by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.lease import why_not_believed
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.runtime.process import Liveness


class Skip(StrEnum):
    """A reason not to look at a task now. Names are a contract: ``GET /queue`` counts by them."""

    OUT_OF_SCOPE = "out_of_scope"
    EPOCH = "epoch_not_believed"
    LEASED = "leased"
    LEASE_UNKNOWN = "lease_unknown"
    ESCALATED = "escalated"
    DEPENDENCIES = "unmet_dependencies"
    BLOCKED = "blocked"
    PERSON = "waits_for_person"
    JOB = "job_active"


@dataclass(frozen=True, slots=True)
class Around:
    """What the reconciler knows beside the task itself."""

    owners: Mapping[int, Liveness] | None  # of leased tasks; None: leases cannot be read
    has_job: bool = False
    depends: bool = False  # on tasks that are not done, as an earlier look has found
    mended: bool = True  # what blocks it may be gone
    covered: bool = True  # by the reconciler's scope
    # A person's word or an unsettled effect waits, or work at a lost worker: only an owner comes before that.
    urgent: bool = False


def why_skipped(task: Task, around: Around) -> Skip | None:
    """The first reason that holds; None where the task is to be looked at."""
    if not around.covered:
        return Skip.OUT_OF_SCOPE
    if why_not_believed(task.epoch) is not None:
        return Skip.EPOCH
    if around.owners is None:
        return Skip.LEASE_UNKNOWN
    owner = around.owners.get(task.id, Liveness.DEAD)
    if owner is not Liveness.DEAD:
        return Skip.LEASED if owner is Liveness.ALIVE else Skip.LEASE_UNKNOWN
    if around.urgent:
        return None
    # What is broken after its merge may be closed by what was done since.
    if task.hold is Hold.ESCALATED and task.stage is not Stage.DEPLOY:
        return Skip.ESCALATED
    # A job of a task that is held by what the forge shows does not begin: only a look can tell that it may.
    if around.has_job and task.hold_cause is None:
        return Skip.JOB
    if around.depends:
        return Skip.DEPENDENCIES
    if task.hold is Hold.BLOCKED and not around.mended:
        return Skip.BLOCKED
    # Confirm Deploy has a term, which only a look can tell; an Approved may take for ever.
    if task.hold is Hold.PERSON and task.stage is not Stage.DEPLOY_STAGING:
        return Skip.PERSON
    return None
