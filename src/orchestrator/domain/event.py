"""Events: a task's whole story, in order (law 11)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.ids import EventId, TaskId
from orchestrator.domain.stage import Stage


class EventType(StrEnum):
    """What happened. The table of events is a published contract: names are added, never changed."""

    TASK_CREATED = "task.created"
    STAGE_CHANGED = "stage.changed"
    JOB_QUEUED = "job.queued"
    JOB_CLAIMED = "job.claimed"
    JOB_FINISHED = "job.finished"
    JOB_REQUEUED = "job.requeued"
    RUN_STARTED = "run.started"
    RUN_FINISHED = "run.finished"
    GATE_JUDGED = "gate.judged"
    CANDIDATE_BUILT = "candidate.built"
    EFFECT_INTENDED = "effect.intended"
    EFFECT_SETTLED = "effect.settled"
    EFFECT_IN_DOUBT = "effect.in_doubt"
    EFFECT_REVOKING = "effect.revoking"
    SLOT_TAKEN = "slot.taken"
    SLOT_FREED = "slot.freed"
    SIGNAL_RECEIVED = "signal.received"
    SIGNAL_APPLIED = "signal.applied"
    SIGNAL_REFUSED = "signal.refused"
    HELD = "task.held"
    RELEASED = "task.released"
    REPO_FROZEN = "repo.frozen"
    REPO_UNFROZEN = "repo.unfrozen"
    REPO_LENT = "repo.lent"  # the merge slot of a frozen repository is lent to the task
    DRIFT_SEEN = "drift.seen"  # an environment runs something else than what the task last brought there
    DRIFT_OVER = "drift.over"
    LEASE_RECLAIMED = "lease.reclaimed"
    INSTALLATION_CLOSED = "installation.closed"
    INSTALLATION_ACCEPTED = "installation.accepted"
    INSTALLATION_FOLDER = (
        "installation.folder"  # another state folder has taken the place of one that is lost
    )
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Event:
    """One row of ``events``."""

    id: EventId
    task_id: TaskId | None
    type: EventType
    actor: str
    stage: Stage | None
    to_stage: Stage | None
    round: int | None
    epoch: int | None
    data: Mapping[str, object]
    at: str
