"""The stage engine: looks at a task under a lease and does the one next thing, until there is nothing to do (S-01).

Before a look: may anything be done for the repository at all (the installation's guard)? Order of a look: unsettled
effects first (law 3), then what people said, then holds and running jobs, then the next step of the stage, then the
edge. Every actor comes through the same door; there is no special path for recovery.
"""

from collections.abc import Callable, Mapping

import structlog

from orchestrator.db import effects, events, evidence, failures, jobs, leases, tasks
from orchestrator.db.database import Tx
from orchestrator.db.evidence import CheckResult
from orchestrator.deploy.deployer import Deployer
from orchestrator.domain.effect import EffectState
from orchestrator.domain.errors import ConfigError, LostRace, OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import JobId, RunId, TaskId
from orchestrator.domain.job import Job, JobStatus, RunResult
from orchestrator.domain.lease import Actor, Lease, why_not_believed
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.effects.deploy import prepared_undo
from orchestrator.images.store import ImageStore
from orchestrator.observability.telemetry import Metric
from orchestrator.rules.transitions import Step, StepKind, next_step
from orchestrator.stage_engine.acts import Acts
from orchestrator.stage_engine.away import Away
from orchestrator.stage_engine.closing import Closing
from orchestrator.stage_engine.edges import Edges
from orchestrator.stage_engine.failures import Failures
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.others import GATES as OTHERS
from orchestrator.stage_engine.others import OthersGates
from orchestrator.stage_engine.plans import Plans
from orchestrator.stage_engine.pull_requests import PullRequests
from orchestrator.stage_engine.resolutions import Resolutions
from orchestrator.stage_engine.signals import Signals
from orchestrator.stage_engine.situation import Outcome, Situation, Tools, judging_commit
from orchestrator.stage_engine.undone import Undone
from orchestrator.stage_engine.ways_back import WaysBack
from orchestrator.stage_engine.work import Work

log = structlog.get_logger(__name__)

EndedRun = tuple[RunId, RunResult]

MAX_LOOKS = 100  # of one call: far above what any stage needs, so that a mistake of ours ends as a warning


class StageEngine:
    """Drives tasks. Safe to call from many threads: the lease decides who may."""

    def __init__(self, tools: Tools, deployer: Deployer, store: ImageStore) -> None:
        self._tools = tools
        self._moves = Moves(tools)
        back = WaysBack(tools, self._moves)
        self._failures = Failures(tools.database, tools.secrets)
        plans = Plans(store, tools.entropy, tools.ours)
        self._pulls = PullRequests(tools, self._moves, back)
        self._acts = Acts(tools, self._moves, back, plans, deployer, self._failures, self._pulls)
        self._signals = Signals(tools, self._moves, back, self._pulls)
        self._resolutions = Resolutions(tools, self._acts, self._signals)
        self._closing = Closing(tools, self._moves)
        self._undone = Undone(tools, self._moves)
        self._work = Work(tools, self._moves, back, self._acts)
        self._others = OthersGates(tools, self._moves, back)
        self._edges = Edges(tools, self._moves, self._work, self._others)
        self._away = Away(tools, self._moves, self._acts, self._signals, self._resolutions, self._work)
        self._handlers: Mapping[StepKind, Callable[[Situation, Step], Outcome]] = {
            StepKind.BRANCH: self._work.branch,
            StepKind.JOB: self._work.job,
            StepKind.HARVEST: self._work.harvest,
            StepKind.RECORD: self._work.record,
            StepKind.CANDIDATE: self._work.candidate,
            StepKind.GATE: self._gate,
            StepKind.EFFECT: self._acts.take,
            StepKind.APPROVAL: self._signals.approval,
            StepKind.CALL_OFF: self._acts.call_off,
        }
        self._phase_c: set[TaskId] = set()  # tasks whose deploy has restarted us

    def advance_stage(
        self, task_id: TaskId, owner: Actor, *, run_id: RunId | None = None, job_id: JobId | None = None
    ) -> Outcome:
        """Do for the task whatever can be done now; one short lease per step, so that a cancel gets in between.

        :returns: why it stopped. A lost race or a failure outside is logged and comes back as DEFERRED or RETRY.
        """
        outcome = Outcome.MOVED
        for _ in range(MAX_LOOKS):
            if outcome is not Outcome.MOVED:
                return outcome
            outcome = self._look(task_id, owner, run_id, job_id)
        log.warning("task did not come to rest", task_id=task_id, looks=MAX_LOOKS)
        return Outcome.RETRY

    def look(self, task_id: TaskId, owner: Actor) -> Outcome:
        """Do the one next thing for the task under a lease; an unsettled effect is always the first (law 3)."""
        return self._look(task_id, owner, None, None)

    def advance_if_gate_passed(self, task_id: TaskId) -> Outcome:
        """F-1: the reconciler's way in, the same door as everyone's (S-09)."""
        return self.advance_stage(task_id, Actor.RECONCILER)

    def run_deploy_finalizer(self, task_id: TaskId) -> Outcome:
        """Phase C: after a restart by a deploy of ourselves, end it from its records and facts (S-15).

        The same door as everyone's. From now on each look of this process at the task is the finalizer's, whoever asks,
        until the task is done or its deploy is undone.
        """
        self._phase_c.add(task_id)
        return self.advance_stage(task_id, Actor.FINALIZER)

    def finish_job(
        self,
        job: Job,
        status: JobStatus,
        *,
        error: str | None = None,
        check: CheckResult | None = None,
        run: EndedRun | None = None,
    ) -> bool:
        """End a job that this process runs: status, evidence, the run's record, the step's mark, event, in one commit.

        False where the job is no longer ours (reaped, or its task has moved on): its result counts for nothing, but
        what the run cost is kept.
        """
        with self._tools.database.write() as tx:
            _keep_run(tx, job, run)
            if not jobs.finish(tx, job, self._tools.ownership.boot_id, status, error):
                return False
            task = tasks.get(tx, job.task_id)
            if (task.stage, task.round) == (job.stage, job.round) and status is JobStatus.DONE:
                if check is not None:
                    evidence.record_check(tx, task, check)
                evidence.mark_step(tx, task, f"{StepKind.JOB}:{job.kind}", {"job": job.id})
            _job_event(tx, EventType.JOB_FINISHED, task, job, {"status": status, "error": error})
        return True

    def requeue_job(
        self,
        job: Job,
        *,
        error: str,
        brief: str,
        delay_s: float = 0.0,
        free: bool = False,
        run: EndedRun | None = None,
    ) -> bool:
        """Give a job back to the queue for another attempt; ``free`` costs none. False where it is no longer ours."""
        with self._tools.database.write() as tx:
            _keep_run(tx, job, run)
            boot_id = self._tools.ownership.boot_id
            if not jobs.requeue(tx, job, boot_id, error=error, brief=brief, delay_s=delay_s, free=free):
                return False
            _job_event(tx, EventType.JOB_REQUEUED, tasks.get(tx, job.task_id), job, {"error": error})
        return True

    def _look(self, task_id: TaskId, owner: Actor, run_id: RunId | None, job_id: JobId | None) -> Outcome:
        try:
            owner = self._finalizer_or(owner, task_id)
            with self._tools.database.read() as tx:
                task = tasks.get(tx, task_id)
            # Not even a lease is taken for what is another's to act on, or may not be acted on at all (DESIGN §6).
            if self._away.leaves(task, owner):
                return Outcome.ELSEWHERE
            if self._tools.why_closed(task.repo) is not None:
                return Outcome.HELD
            with self._tools.ownership.transition(task_id, owner, run_id=run_id, job_id=job_id) as lease:
                if lease is None:
                    return self._why_busy(task_id)
                at = self._situation(lease)
                outcome = self._step(at)
            if at.failing and outcome is not Outcome.RETRY:
                self._failures.forget(task_id)
            return outcome
        except LostRace as lost:
            log.info("race lost", task_id=task_id, owner=owner.value, reason=str(lost))
            self._tools.telemetry.count(Metric.LOST_RACES, owner)
            return Outcome.DEFERRED
        except OutsideError as error:
            log.warning("step failed outside", task_id=task_id, reason=str(error))
            self._failures.note(task_id, str(error))
            return Outcome.RETRY

    def _finalizer_or(self, owner: Actor, task_id: TaskId) -> Actor:
        if task_id not in self._phase_c:
            return owner
        with self._tools.database.read() as tx:
            started = effects.self_start(tx, task_id)
            if started is not None and started.round != tasks.get(tx, task_id).round:
                started = None  # a person has it started again: that is no finalizer's
            prepared = prepared_undo(started) if started is not None else None
            undo = effects.by_sequence(tx, prepared.sequence) if prepared is not None else None
        if prepared is not None and (undo is None or undo.state is not EffectState.APPLIED):
            return Actor.FINALIZER
        self._phase_c.discard(task_id)
        return owner

    def _situation(self, lease: Lease) -> Situation:
        with self._tools.database.read() as tx:
            leases.check(tx, lease)
            task = tasks.get(tx, lease.task_id)
            passed = evidence.steps_of_round(tx, task)
            judged_by = judging_commit(task, evidence.candidate_of(tx, task.id))
            unsettled = tuple(effects.unsettled(tx, task.id))
            active = jobs.active_of_task(tx, task.id)
            failing = failures.of_task(tx, task.id) is not None
            self_start = effects.self_start(tx, task.id) if task.stage is Stage.DEPLOY else None
        place = self._tools.places.of(task.repo)
        config, unusable = None, None
        try:
            config = self._tools.configs.of(task.repo, judged_by) if judged_by is not None else None
        except (
            ConfigError
        ) as error:  # it was usable when it was taken: for another version of ours, or another clone
            unusable = error
        return Situation(lease, task, place, config, passed, unsettled, active, failing, self_start, unusable)

    def _step(self, at: Situation) -> Outcome:
        """One look. Without a usable configuration effects are settled and words answered; then a person is called."""
        try:
            return self._next(at)
        except ConfigError as error:
            if at.unsettled:
                raise OutsideError(str(error)) from error
            if at.task.hold is Hold.ESCALATED:
                return Outcome.HELD
            return self._moves.hold(at, Hold.ESCALATED, str(error))

    def _next(self, at: Situation) -> Outcome:
        if self._away.is_away(at.task):
            return self._away.look(at)
        if at.unsettled:
            resolved = self._resolutions.handle(at)
            if resolved is not None:
                return resolved
            return self._acts.drive(at, at.unsettled[0], cancelled=self._signals.waiting_cancel(at))
        said = self._signals.handle(at)
        if said is not None:
            return said
        if at.task.hold is Hold.ESCALATED:
            return (
                self._acts.undone_meanwhile(at)
                or self._undone.look(at)
                or self._closing.by_the_fix(at)
                or Outcome.HELD
            )
        step = next_step(at.task.stage, at.passed, at.has)
        if (held := self._pulls.look(at, step)) is not None:
            return held
        if at.active is not None:
            return self._away.hand_over(at)
        if step is None:
            return self._edges.take(at)
        self._tools.waypoints.reach("step.begin", task=at.task.id, step=step.name)
        return self._handlers[step.kind](at, step)

    def _gate(self, at: Situation, step: Step) -> Outcome:
        return self._others.gate(at, step) if step.what in OTHERS else self._work.gate(at, step)

    def _why_busy(self, task_id: TaskId) -> Outcome:
        with self._tools.database.read() as tx:
            task = tasks.get(tx, task_id)
        if task.stage.terminal:
            return Outcome.ENDED
        return Outcome.DEFERRED if why_not_believed(task.epoch) is None else Outcome.HELD


def _job_event(tx: Tx, type: EventType, task: Task, job: Job, data: Mapping[str, object]) -> None:
    said = {"job": job.kind, "attempt": job.attempts, **data}
    events.append(tx, type, Actor.MONITOR, task=task, data=said)


def _keep_run(tx: Tx, job: Job, run: EndedRun | None) -> None:
    if run is None or not jobs.finish_run(tx, *run):
        return
    run_id, result = run
    data = {
        "run": run_id,
        "outcome": result.outcome,
        "cost_usd": result.usage.cost_usd,
        "tokens": result.usage.total_tokens,
        "warnings": result.warnings,
    }
    _job_event(tx, EventType.RUN_FINISHED, tasks.get(tx, job.task_id), job, data)
