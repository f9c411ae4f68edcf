"""Finalises a run: what its record says becomes the job's end, another attempt, or a call for a person (S-06)."""

from dataclasses import dataclass

from orchestrator.domain.ids import RunId
from orchestrator.domain.job import Job, JobStatus, RunOutcome, RunResult
from orchestrator.domain.lease import Actor
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.situation import Outcome

RATE_LIMIT_PAUSE_S = 300.0  # where the service did not say when its limit ends
RETRY_PAUSE_S = 15.0  # times the attempts so far, after a failure of the service
FREE_STARTS = 5  # so often a job may go back free of charge; it might be what kills whoever starts it
NOT_REPEATED = frozenset({RunOutcome.AUTH, RunOutcome.NOT_STARTED, RunOutcome.LIMIT_BUDGET})
SERVICE_FAILED = frozenset({RunOutcome.OVERLOADED, RunOutcome.API_ERROR})


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from an ended run."""

    status: JobStatus  # DONE, FAILED, or QUEUED for another attempt
    delay_s: float = 0.0
    free: bool = False  # the attempt does not count


def decide(job: Job, result: RunResult) -> Decision:
    """Pure: an outcome and the attempts so far → what follows.

    A usage limit parks the job until the stated reset and costs no attempt, nor does a run that provably never started
    because its owner died; what a person must correct is not repeated.
    """
    outcome = result.outcome
    if outcome is RunOutcome.DONE:
        return Decision(JobStatus.DONE)
    if outcome is RunOutcome.RATE_LIMITED:
        return Decision(JobStatus.QUEUED, result.retry_after_s or RATE_LIMIT_PAUSE_S, free=True)
    if outcome is RunOutcome.CALLED_OFF and job.claims - job.attempts < FREE_STARTS:
        return Decision(JobStatus.QUEUED, free=True)
    if outcome in NOT_REPEATED or job.attempts >= job.max_attempts:
        return Decision(JobStatus.FAILED)
    delay = RETRY_PAUSE_S * job.attempts if outcome in SERVICE_FAILED else 0.0
    return Decision(JobStatus.QUEUED, delay)


class Monitor:
    """Ends jobs after their runs and drives their tasks on."""

    def __init__(self, engine: StageEngine) -> None:
        self._engine = engine

    def conclude(self, job: Job, run_id: RunId, result: RunResult) -> Outcome:
        """Store the run and end or requeue its job in one commit, then look at the task."""
        decision = decide(job, result)
        said = f"{result.outcome}: {result.summary}"[:2000]
        run = (run_id, result)
        if decision.status is JobStatus.QUEUED:
            brief = (
                job.brief
                if decision.free
                else f"{job.brief}\n\nThe attempt before this one ended: {said}".strip()
            )
            self._engine.requeue_job(
                job, error=said, brief=brief, delay_s=decision.delay_s, free=decision.free, run=run
            )
        else:
            error = None if decision.status is JobStatus.DONE else said
            self._engine.finish_job(job, decision.status, error=error, run=run)
        return self._engine.advance_stage(job.task_id, Actor.MONITOR, run_id=run_id, job_id=job.id)
