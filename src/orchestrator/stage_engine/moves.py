"""Commits: every way in which a task changes its stage, is held, or passes a step (law 2).

A transition is one commit: settled effects, slots, stage, event, next job, outbox rows, release. The loser does
nothing.
"""

from collections.abc import Callable, Sequence

from orchestrator.db import events, evidence, jobs, leases, mail, slots, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.errors import DatabaseError, InvariantError, LostRace
from orchestrator.domain.event import EventType
from orchestrator.domain.gate import GateResult
from orchestrator.domain.ids import TaskId, TransitionId
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.effects.ledger import Proof
from orchestrator.repo_config.records import RepoConfig
from orchestrator.rules.transitions import STAGE_STEPS, EdgeKind, Step, StepKind, allowed, next_step
from orchestrator.stage_engine.situation import Outcome, Situation, Tools, configured

CHECK_ATTEMPTS = 3  # of the orchestrator's own checks; each restart of the service costs one
MAX_BRIEF = 20_000  # characters of findings handed to the next agent
CALLS_A_PERSON = frozenset({Hold.ESCALATED, Hold.PERSON})
FREEING = frozenset({Stage.DEVELOPMENT, Stage.TESTING, Stage.CANCELLED, Stage.DONE})


class SlotBusy(Exception):
    """Leaves a write block without a trace; the reason becomes a hold."""

    def __init__(self, reason: str, hold: Hold = Hold.SLOT) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hold = hold


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
        hold: tuple[Hold, str] | None = None,
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

        def write(tx: Tx) -> None:
            leases.check(tx, lease)
            for proof in proofs:
                self._tools.ledger.settle(tx, lease, task, proof)
            if before is not None:
                before(tx)
            jobs.cancel_active(tx, task.id, f"the task went to {target}")
            room = self._free_slots(tx, at, target)
            if not tasks.update_task_stage_cas(tx, task.id, task.stage, target, epoch=lease.epoch):
                raise LostRace(f"{task.work_item} is no longer in {task.stage}")
            if room:  # asked once the task itself no longer stands in line
                wake.extend(tasks.first_in_line(tx))
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
                self._write_hold(tx, at, moved, *hold)
            elif kind is not EdgeKind.REQUEUE:
                self._first_job(tx, moved, config or at.config, brief)
            self._tell_tracker(tx, moved, reason, transition_id)
            if target.terminal:
                mail.close_waiting(tx, task.id, f"the task went to {target}: {reason}")
                wake.extend(tasks.dependents(tx, task.id))
            if target is Stage.DONE:
                self._lift_own_freeze(tx, at, wake)
            self._tools.ownership.release(tx, lease, epoch=moved.epoch)

        self._tools.waypoints.reach("transition.before_commit", task=task.id, target=target)
        try:
            with self._tools.database.write() as tx:
                write(tx)
        except DatabaseError:
            if not self._happened(transition_id):
                raise
        self._tools.waypoints.reach("transition.after_commit", task=task.id, target=target)
        self._tools.wake(wake)
        if target is Stage.CANCELLED:
            self._tools.stop_job(task.id)
        return Outcome.ENDED if target.terminal else Outcome.MOVED

    def enter_staging(self, at: Situation, config: RepoConfig, *, reason: str) -> Outcome:
        """Take the merge slot and staging, both or neither, in the commit testing → deploy-staging (DESIGN §3).

        ``config`` is main's as it is now: the candidate will be judged and deployed by it.
        """
        names = slots_needed(at.task, config)

        def take(tx: Tx) -> None:
            closed = _why_no_turn(tx, at.task)
            if closed is not None:
                raise closed
            busy = slots.take_all(tx, at.task.repo, at.task.id, names)
            if busy is not None:
                raise SlotBusy(f"{busy.name} is taken", Hold.SLOT)
            for name in names:
                events.append(tx, EventType.SLOT_TAKEN, at.lease.owner, task=at.task, data={"slot": name})

        try:
            return self.move(at, Stage.DEPLOY_STAGING, EdgeKind.ADVANCE, reason=reason, before=take)
        except SlotBusy as busy:
            return self.hold(at, busy.hold, busy.reason)

    def why_no_slot(self, at: Situation) -> SlotBusy | None:
        """Why it is certainly not the task's turn; None where the commit that takes the slots has to find out."""
        with self._tools.database.read() as tx:
            held = slots.get(tx, slots.merge_slot(at.task.repo))
            if held is not None and held.task_id != at.task.id:
                return _why_no_turn(tx, at.task) or SlotBusy(f"{held.name} is taken", Hold.SLOT)
            return _why_no_turn(tx, at.task)

    def hold(
        self,
        at: Situation,
        why: Hold,
        reason: str,
        *,
        proofs: Sequence[Proof] = (),
        also: Callable[[Tx], None] | None = None,
    ) -> Outcome:
        """Say why the task waits, call a person where one is needed, and let go: one commit with what belongs to it.

        Nobody waits for a person with the slots in hand: an escalation in deploy-staging frees them and queues again.
        """
        if why is Hold.ESCALATED and at.task.stage is Stage.DEPLOY_STAGING:
            self.move(
                at,
                Stage.TESTING,
                EdgeKind.REQUEUE,
                reason=reason,
                proofs=proofs,
                before=also,
                hold=(why, reason),
            )
            return Outcome.HELD
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            for proof in proofs:
                self._tools.ledger.settle(tx, at.lease, at.task, proof)
            if also is not None:
                also(tx)
            self._write_hold(tx, at, at.task, why, reason)
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
        self, at: Situation, kind: JobKind, *, subject: str | None = None, brief: str = ""
    ) -> Outcome:
        """Queue the job that the task needs next."""
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            tasks.release_hold(tx, at.task.id)
            self._enqueue(tx, at.task, kind, at.settings, subject, brief)
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

    def _free_slots(self, tx: Tx, at: Situation, target: Stage) -> bool:
        """Free what the task may not take along; True where somebody else's turn may have come."""
        before = slots.held_by(tx, at.task.id)
        if target in FREEING:
            slots.free_all(tx, at.task.id)
        elif target is Stage.DEPLOY and at.config is not None and at.config.staging is not None:
            slots.free(tx, at.task.id, slots.environment_slot(at.config.staging.name))
        freed = sorted(set(before) - set(slots.held_by(tx, at.task.id)))
        for name in freed:
            events.append(tx, EventType.SLOT_FREED, at.lease.owner, task=at.task, data={"slot": name})
        return (
            bool(freed) or at.task.hold is Hold.SLOT
        )  # whoever waited behind a waiter that gives up is next

    def _lift_own_freeze(self, tx: Tx, at: Situation, wake: list[TaskId]) -> None:
        """What was broken runs now: the freeze that it had caused has lost its reason."""
        freeze = slots.frozen(tx, at.task.repo)
        if freeze is None or freeze.task_id != at.task.id:
            return
        slots.unfreeze(tx, at.task.repo)
        data = {"repo": at.task.repo, "reason": f"{at.task.work_item} is done"}
        events.append(tx, EventType.REPO_UNFROZEN, at.lease.owner, task=at.task, data=data)
        wake.extend(task.id for task in tasks.list_open(tx) if task.repo == at.task.repo)

    def _keep_verdicts(self, tx: Tx, moved: Task) -> None:
        """Queued again for the slots: nothing about the gated SHA has changed, so nothing is judged or paid again."""
        for step in STAGE_STEPS[moved.stage]:
            evidence.mark_step(tx, moved, step.name, {"kept_from_round": moved.round - 1})

    def _first_job(self, tx: Tx, moved: Task, config: RepoConfig | None, brief: str) -> None:
        step = next_step(moved.stage, frozenset(), configured(config))
        if step is not None and step.kind is StepKind.JOB and config is not None:
            self._enqueue(tx, moved, JobKind(step.what), config, None, brief)

    def _enqueue(
        self, tx: Tx, task: Task, kind: JobKind, config: RepoConfig, subject: str | None, brief: str
    ) -> None:
        attempts = config.budget.max_attempts if kind.agent else CHECK_ATTEMPTS
        jobs.enqueue(tx, task, jobs.NewJob(kind, subject, brief[:MAX_BRIEF], attempts))
        data = {"job": kind, "subject": subject, "because": brief[:1000]}
        events.append(tx, EventType.JOB_QUEUED, "engine", task=task, data=data)

    def _write_hold(self, tx: Tx, at: Situation, task: Task, why: Hold, reason: str) -> None:
        if not tasks.hold(tx, task.id, why, reason):
            return
        events.append(tx, EventType.HELD, at.lease.owner, task=task, data={"hold": why, "reason": reason})
        if why in CALLS_A_PERSON:
            text = f"{task.work_item} {task.stage}: {reason}"
            stable = f"alert:{task.work_item}:{task.stage}:{task.round}:{why}:{at.lease.epoch}"
            mail.send(tx, "alert", stable, {"text": text, "work_item": task.work_item}, task_id=task.id)
            mail.send(tx, "tracker.comment", f"comment:{stable}", {"text": text}, task_id=task.id)

    def _tell_tracker(self, tx: Tx, moved: Task, reason: str, transition_id: TransitionId) -> None:
        mail.send(
            tx,
            "tracker.stage",
            f"stage:{transition_id}",
            {"stage": moved.stage, "round": moved.round, "reason": reason[:2000]},
            task_id=moved.id,
        )

    def _happened(self, transition_id: TransitionId) -> bool:
        """After a lost answer to COMMIT the transition's own id decides (law 2)."""
        with self._tools.database.write() as tx:
            return events.transition_happened(tx, transition_id)


def _why_no_turn(tx: Tx, task: Task) -> SlotBusy | None:
    """A freeze, or somebody who has waited longer; the reason names nobody, so that it changes only when it has to."""
    freeze = slots.frozen(tx, task.repo)
    if freeze is not None and freeze.lent_to != task.id:
        return SlotBusy(f"the repository is frozen: {freeze.reason}", Hold.FROZEN)
    if tasks.oldest_waiting_for_slot(tx, task.repo) not in (None, task.id):
        return SlotBusy("others have waited longer for the merge slot", Hold.SLOT)
    return None


def slots_needed(task: Task, config: RepoConfig) -> list[str]:
    """The shared places that a task holds in deploy-staging."""
    names = [slots.merge_slot(task.repo)]
    if config.staging is not None:
        names.append(slots.environment_slot(config.staging.name))
    return names
