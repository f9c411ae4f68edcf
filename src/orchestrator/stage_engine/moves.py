"""Commits: every way in which a task changes its stage, is held, or passes a step (law 2).

A transition is one commit: settled effects, slots, stage, event, next job, outbox rows, release. The loser does
nothing.
"""

from collections.abc import Callable, Sequence

from orchestrator.db import alerts, events, evidence, jobs, leases, mail, slots, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.errors import DatabaseError, InvariantError, LostRace
from orchestrator.domain.event import EventType
from orchestrator.domain.gate import GateResult
from orchestrator.domain.ids import JobId, Sha, TaskId, TransitionId
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, HoldCause, Holding, Task
from orchestrator.effects.ledger import Proof
from orchestrator.repo_config.records import RepoConfig
from orchestrator.rules.transitions import STAGE_STEPS, EdgeKind, Step, StepKind, allowed, next_step
from orchestrator.stage_engine import answers, serial_gate
from orchestrator.stage_engine.not_now import NotNow
from orchestrator.stage_engine.serial_gate import slots_needed
from orchestrator.stage_engine.situation import Outcome, Situation, Tools, configured, program_of

CHECK_ATTEMPTS = 3  # of the orchestrator's own checks; a crash costs one, but not a look at a place
MAX_BRIEF = 20_000  # characters of findings handed to the next agent
CALLS_A_PERSON = frozenset({Hold.ESCALATED, Hold.PERSON})
FREEING = frozenset({Stage.DEVELOPMENT, Stage.TESTING, Stage.CANCELLED, Stage.DONE})


class Moves:
    """Writes what the engine has decided."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def move(
        self,
        at: Situation,
        target: Stage,
        kind: EdgeKind,
        *,
        reason: str,
        brief: str = "",
        proofs: Sequence[Proof] = (),
        before: Callable[[Tx], None] | None = None,
        config: RepoConfig | None = None,
        hold: Holding | None = None,
    ) -> Outcome:
        """Take an edge in one commit and give the lease back with it.

        ``before`` adds statements ahead of the stage write; ``hold`` holds the task in its new stage at once.

        :raises LostRace: another actor has moved the task; nothing was written.
        """
        task, lease = at.task, at.lease
        if not allowed(task.stage, target, kind):
            raise InvariantError(f"there is no edge {task.stage} → {target} ({kind})")
        transition_id = TransitionId(self._tools.entropy.uuid())
        wake: list[TaskId] = []
        cancelled: list[JobId] = []
        queued = False

        def write(tx: Tx) -> None:
            nonlocal queued
            leases.check(tx, lease)
            for proof in proofs:
                self._tools.ledger.settle(tx, lease, task, proof)
            held = slots.held_by(tx, task.id)
            if before is not None:
                before(tx)
            if target.terminal:  # whoever was not heard is told so
                answers.refuse_all(tx, lease, task, f"the task went to {target}: {reason}")
            cancelled.extend(jobs.cancel_active(tx, task.id, f"the task went to {target}"))
            _give_back(tx, at, target)
            if target.terminal or task.stage in (Stage.DEPLOY_STAGING, Stage.DEPLOY):
                tasks.set_work_home(tx, task.id, None)  # what an agent writes from there on is no commit
            freed = set(held) - set(slots.held_by(tx, task.id))
            if target.terminal:
                slots.end_loan(tx, task.id)
            if not tasks.update_task_stage_cas(tx, task.id, task.stage, target, epoch=lease.epoch):
                raise LostRace(f"{task.work_item} is no longer in {task.stage}")
            # Whoever waited behind a waiter that gives up is next; asked once the task itself no longer stands in line.
            if freed or task.hold in serial_gate.IN_LINE:
                wake.extend(other for other in serial_gate.whose_turn(tx, task.repo) if other != task.id)
            moved = tasks.get(tx, task.id)
            events.append(
                tx,
                EventType.STAGE_CHANGED,
                lease.owner,
                task=task,
                to_stage=target,
                epoch=moved.epoch,
                transition_id=transition_id,
                data={"kind": kind, "reason": reason, "round": moved.round},
            )
            if kind is EdgeKind.REQUEUE:
                self._keep_verdicts(tx, moved)
            if hold is not None:
                self._write_hold(tx, at, moved, hold)
            elif kind is not EdgeKind.REQUEUE:
                queued = self._first_job(tx, moved, config or at.config, brief)
            self._tell_tracker(tx, moved, reason, transition_id)
            if target.terminal:
                wake.extend(tasks.dependents(tx, task.id))
            if target is Stage.DONE:
                wake.extend(serial_gate.lift_own(tx, task, lease.owner))
                wake.extend(tasks.broken(tx, task.repo))  # they may be closed by it
            self._tools.ownership.release(tx, lease, epoch=moved.epoch)

        self._tools.waypoints.reach("transition.before_commit", task=task.id, target=target)
        try:
            with self._tools.database.write() as tx:
                write(tx)
        except DatabaseError:
            if not self._happened(task.id, transition_id):
                raise
        self._tools.waypoints.reach("transition.after_commit", task=task.id, target=target)
        if queued:
            self._tools.queued()
        self._tools.wake(wake)
        # Only now: whoever is at one finds in the database that it counts for nothing.
        for job_id in cancelled:
            self._tools.stop_job(job_id)
        return Outcome.ENDED if target.terminal else Outcome.MOVED

    def enter_staging(self, at: Situation, config: RepoConfig, *, reason: str) -> Outcome:
        """Take the merge slot and staging, both or neither, in the commit testing → deploy-staging (DESIGN §3).

        ``config`` is main's as it is now: the candidate will be judged and deployed by it.
        """
        names = slots_needed(at.task, config)

        def take(tx: Tx) -> None:
            serial_gate.take(tx, at.task, names, at.lease.owner)

        try:
            return self.move(at, Stage.DEPLOY_STAGING, EdgeKind.ADVANCE, reason=reason, before=take)
        except NotNow as busy:
            return self.hold(at, busy.hold, busy.reason)

    def hold(
        self,
        at: Situation,
        why: Hold,
        reason: str,
        *,
        proofs: Sequence[Proof] = (),
        also: Callable[[Tx], None] | None = None,
        cause: HoldCause | None = None,
    ) -> Outcome:
        """Say why the task waits, call a person where one is needed, and let go: one commit with what belongs to it.

        Nobody waits for a person with the slots in hand: an escalation in deploy-staging frees them and queues again.
        """
        wanted = Holding(why, reason, cause)
        if why is Hold.ESCALATED and at.task.stage is Stage.DEPLOY_STAGING:
            self.move(
                at,
                Stage.TESTING,
                EdgeKind.REQUEUE,
                reason=reason,
                proofs=proofs,
                before=also,
                hold=wanted,
            )
            return Outcome.HELD
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            for proof in proofs:
                self._tools.ledger.settle(tx, at.lease, at.task, proof)
            held = slots.held_by(tx, at.task.id)
            if also is not None:
                also(tx)
            self._write_hold(tx, at, at.task, wanted)
            left_the_line = at.task.hold in serial_gate.IN_LINE and why not in (at.task.hold, Hold.SLOT)
            freed = held != slots.held_by(tx, at.task.id)
            wake = serial_gate.whose_turn(tx, at.task.repo) if freed or left_the_line else []
        self._tools.wake(wake)
        return Outcome.HELD

    def mark(
        self,
        at: Situation,
        step: Step,
        facts: dict[str, object] | None = None,
        *,
        event: EventType | None = None,
        proofs: Sequence[Proof] = (),
        also: Callable[[Tx], None] | None = None,
    ) -> Outcome:
        """Record that a step is behind the task, with what belongs to it, in one commit."""
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            for proof in proofs:
                self._tools.ledger.settle(tx, at.lease, at.task, proof)
            if also is not None:
                also(tx)
            evidence.mark_step(tx, at.task, step.name, facts)
            if tasks.release_hold(tx, at.task.id):
                events.append(tx, EventType.RELEASED, at.lease.owner, task=at.task, data={"step": step.name})
            if event is not None:
                data = {"step": step.name, **(facts or {})}
                events.append(tx, event, at.lease.owner, task=at.task, epoch=at.lease.epoch, data=data)
        return Outcome.MOVED

    def enqueue(
        self,
        at: Situation,
        kind: JobKind,
        *,
        subject: str | None = None,
        brief: str = "",
        also: Callable[[Tx], None] | None = None,
    ) -> Outcome:
        """Queue the job that the task needs next."""
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            if also is not None:
                also(tx)
            tasks.release_hold(tx, at.task.id)
            self._enqueue(tx, at.task, kind, at.settings, subject, brief)
        self._tools.queued()
        return Outcome.WORKING

    def look_after(self, at: Situation, undo: int, wanted: Sha) -> Outcome:
        """Queue a look at whether production runs ``wanted`` since an undo; the task goes on waiting for a person."""
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            kind, brief = JobKind.PRODUCTION_HEALTH, "after an undo"
            self._enqueue(tx, at.task, kind, at.settings, wanted, brief, undo=undo)
        self._tools.queued()
        return Outcome.WORKING

    def judged(self, at: Situation, gate: str, result: GateResult) -> None:
        """Keep a gate's answer in the task's story; an unchanged "not yet" is told once, as a hold."""
        data = {
            "gate": gate,
            "verdict": result.verdict,
            "reason": result.reason,
            "findings": [str(finding) for finding in result.findings],
            "evidence": result.evidence,
        }
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            events.append(
                tx, EventType.GATE_JUDGED, at.lease.owner, task=at.task, epoch=at.lease.epoch, data=data
            )

    def _keep_verdicts(self, tx: Tx, moved: Task) -> None:
        """Queued again for the slots: nothing about the gated SHA has changed, so nothing is judged or paid again."""
        for step in STAGE_STEPS[moved.stage]:
            evidence.mark_step(tx, moved, step.name, {"kept_from_round": moved.round - 1})

    def _first_job(self, tx: Tx, moved: Task, config: RepoConfig | None, brief: str) -> bool:
        step = next_step(moved.stage, frozenset(), configured(config))
        if step is None or step.kind is not StepKind.JOB or config is None:
            return False
        self._enqueue(tx, moved, JobKind(step.what), config, None, brief)
        return True

    def _enqueue(
        self,
        tx: Tx,
        task: Task,
        kind: JobKind,
        config: RepoConfig,
        subject: str | None,
        brief: str,
        *,
        undo: int | None = None,
    ) -> None:
        attempts = config.budget.max_attempts if kind.agent else CHECK_ATTEMPTS
        program = program_of(kind, config)
        jobs.enqueue(tx, task, jobs.NewJob(kind, subject, brief[:MAX_BRIEF], attempts, undo, program))
        data = {"job": kind, "subject": subject, "because": brief[:1000]}
        events.append(tx, EventType.JOB_QUEUED, "engine", task=task, data=data)

    def _write_hold(self, tx: Tx, at: Situation, task: Task, held: Holding) -> None:
        why, reason = held.hold, held.reason
        if not tasks.hold(tx, task.id, why, reason, held.cause):
            return
        events.append(tx, EventType.HELD, at.lease.owner, task=task, data={"hold": why, "reason": reason})
        if why in CALLS_A_PERSON:
            text = f"{task.work_item} {task.stage}: {reason}"
            about = (task.work_item, task.stage, task.round, why, at.lease.epoch)
            alerts.call_and_comment(tx, task, text, *about)

    def _tell_tracker(self, tx: Tx, moved: Task, reason: str, transition_id: TransitionId) -> None:
        mail.send(
            tx,
            "tracker.stage",
            f"stage:{transition_id}",
            {"stage": moved.stage, "round": moved.round, "reason": reason[:2000]},
            task_id=moved.id,
        )

    def _happened(self, task_id: TaskId, transition_id: TransitionId) -> bool:
        """After a lost answer to COMMIT the transition's own id decides, under the row's lock, which a COMMIT that is
        still on its way holds (law 2)."""
        with self._tools.database.write() as tx:
            leases.lock_epoch(tx, task_id)
            return events.transition_happened(tx, transition_id)


def _give_back(tx: Tx, at: Situation, target: Stage) -> None:
    """Free what the task may not take along."""
    if target in FREEING:
        serial_gate.give_back(tx, at.task, at.lease.owner)
    elif target is Stage.DEPLOY:
        config = at.config
        kept = serial_gate.slots_of_deploy(at.task, config) if config else [slots.merge_slot(at.task.repo)]
        for name in slots.held_by(tx, at.task.id):
            if name not in kept:
                serial_gate.give_back(tx, at.task, at.lease.owner, only=name)
