"""What people say of a task: approve, reject, cancel, retry. Bound to what was on show, answered either way (law 7)."""

from orchestrator.db import effects, evidence, leases, mail
from orchestrator.db.database import Tx
from orchestrator.db.mail import WaitingSignal
from orchestrator.domain.effect import Cause, EffectName, GivingUp
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Signal, Task
from orchestrator.rules.installation import RESTORED
from orchestrator.rules.transitions import APPROVED, CONFIRM_DEPLOY, EdgeKind, Step, StepKind, next_step
from orchestrator.runtime.clock import parse_stamp
from orchestrator.stage_engine import answers
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.not_now import NotNow
from orchestrator.stage_engine.pull_requests import PullRequests, held_for_it
from orchestrator.stage_engine.restored import Restored
from orchestrator.stage_engine.retries import Retries
from orchestrator.stage_engine.situation import Outcome, Situation, Tools
from orchestrator.stage_engine.ways_back import WaysBack

CANCEL = "cancel"
RETRY = "retry"
REJECT = "reject"
RESOLVE = "resolve"
PULL_REQUEST = "pull-request"  # the forge says that it has changed: look at it
ANSWERABLE = frozenset({Hold.ESCALATED, Hold.BLOCKED})


def subject_on_show(tx: Tx, task: Task) -> str | None:
    """What a person's approval of the task would be about now: M from deploy-staging on, before that the head."""
    if task.stage in (Stage.DEPLOY_STAGING, Stage.DEPLOY):
        candidate = evidence.candidate_of(tx, task.id)
        return candidate.sha if candidate is not None and candidate.round == task.round else None
    return task.head_sha


class Signals:
    """Applies or refuses a task's waiting signals, in order."""

    def __init__(self, tools: Tools, moves: Moves, back: WaysBack, pulls: PullRequests) -> None:
        self._tools = tools
        self._moves = moves
        self._back = back
        self._pulls = pulls
        self._retries = Retries(tools, moves)
        self._restored = Restored(tools, moves)

    def waiting_resolution(self, at: Situation) -> WaitingSignal | None:
        """A person's word on an effect; unlike the others it is for while one is not settled."""
        return next((waiting for waiting in self._waiting(at) if waiting.signal.kind == RESOLVE), None)

    def waiting_cancel(self, at: Situation) -> GivingUp | None:
        """A cancel, or an accepted restore, that nobody has dealt with: it turns an intended merge (law 3)."""
        for waiting in self._waiting(at):
            if waiting.signal.kind == CANCEL:
                return GivingUp(Cause.CANCELLED, _cancelled_by(waiting))
            if waiting.signal.kind == RESTORED:
                return GivingUp(Cause.RESTORED, _taken_out(waiting))
        return None

    def handle(self, at: Situation) -> Outcome | None:
        """Deal with the first waiting signal; None where there is none."""
        waiting = self._waiting(at)
        if not waiting:
            return None
        try:
            return self._dealt_with(at, waiting[0])
        except ConfigError as error:
            return self.refuse(at, waiting[0], str(error))

    def _dealt_with(self, at: Situation, first: WaitingSignal) -> Outcome:
        kind = first.signal.kind
        if kind in (APPROVED, CONFIRM_DEPLOY):
            return self._approve(at, first)
        if kind == CANCEL:
            return self._cancel(at, first)
        if kind == RETRY:
            return self._retry(at, first)
        if kind == REJECT:
            return self._reject(at, first)
        if kind == RESTORED:
            return self._take_out(at, first)
        if kind == RESOLVE:
            return self.refuse(at, first, "the effect is settled already")
        if kind == PULL_REQUEST:
            return self._look_at_pull_request(at, first)
        return self.refuse(at, first, f"there is no signal {kind}")

    def approval(self, at: Situation, step: Step) -> Outcome:
        """Pass the step if exactly what is on show has been approved; else call a person and wait."""
        with self._tools.database.read() as tx:
            subject = subject_on_show(tx, at.task) or ""
            person = mail.approved(tx, at.task, step.what, subject)
        if person is not None:
            return self._moves.mark(
                at, step, {"person": person, "subject": subject}, event=EventType.SIGNAL_APPLIED
            )
        if at.task.hold is Hold.PERSON and step.what == CONFIRM_DEPLOY and self._too_late(at):
            why = "nobody confirmed the deploy in time; it queues again"
            return self._back.requeue(at, why)
        what = "the deploy of" if step.what == CONFIRM_DEPLOY else "the analysis at"
        return self._moves.hold(
            at,
            Hold.PERSON,
            f"{what} {subject[:12]} waits for a person: orch task approve {at.task.work_item}",
        )

    def _approve(self, at: Situation, waiting: WaitingSignal) -> Outcome:
        signal, task = waiting.signal, at.task
        with self._tools.database.read() as tx:
            subject = subject_on_show(tx, task)
        step = next_step(task.stage, at.passed, at.has)
        if not _same_round(signal, task) or signal.subject != subject:
            return self.refuse(at, waiting, _moved_on(signal))
        if step is None or step.kind is not StepKind.APPROVAL or step.what != signal.kind or subject is None:
            return self.refuse(at, waiting, "nothing waits for this approval")
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            mail.approve(tx, task, signal.kind, subject, signal.person)
            self.close(tx, at, waiting, "applied", EventType.SIGNAL_APPLIED)
        return Outcome.MOVED

    def _cancel(self, at: Situation, waiting: WaitingSignal) -> Outcome:
        with self._tools.database.read() as tx:
            merged = effects.applied(tx, at.task.id, EffectName.MERGE_PR) is not None
            candidates = evidence.candidates(tx, at.task.id)
        if merged or (candidates and at.place.forge.landed(candidates) is not None):
            return self.refuse(
                at, waiting, "the change is on main already; from there the task only goes forward"
            )
        reason = _cancelled_by(waiting)
        return self._moves.move(
            at,
            Stage.CANCELLED,
            EdgeKind.CANCEL,
            reason=reason,
            before=lambda tx: self.close(tx, at, waiting, "applied", EventType.SIGNAL_APPLIED),
        )

    def _retry(self, at: Situation, waiting: WaitingSignal) -> Outcome:
        if at.task.hold not in ANSWERABLE:
            return self.refuse(at, waiting, "the task does not wait for a decision")
        if not _same_round(waiting.signal, at.task):
            return self.refuse(at, waiting, _moved_on(waiting.signal))
        if (shut := self._pulls.shut(at)) is not None:
            return self.refuse(at, waiting, shut)
        try:
            return self._retries.go_on(
                at, lambda tx: self.close(tx, at, waiting, "applied", EventType.SIGNAL_APPLIED)
            )
        except NotNow as why:
            return self.refuse(at, waiting, why.reason)

    def _reject(self, at: Situation, waiting: WaitingSignal) -> Outcome:
        signal = waiting.signal
        step = next_step(at.task.stage, at.passed, at.has)
        if step is None or step.kind is not StepKind.APPROVAL or signal.stage != at.task.stage:
            return self.refuse(at, waiting, "nothing waits for this decision")
        with self._tools.database.read() as tx:
            subject = subject_on_show(tx, at.task)
        if not _same_round(signal, at.task) or signal.subject != subject:
            return self.refuse(at, waiting, _moved_on(signal))
        reason = f"{signal.person} rejected it: {signal.reason or 'no reason was given'}"
        return self._back.reject(
            at,
            reason,
            brief=reason,
            also=lambda tx: self.close(tx, at, waiting, "applied", EventType.SIGNAL_APPLIED),
        )

    def _take_out(self, at: Situation, waiting: WaitingSignal) -> Outcome:
        return self._restored.settle(
            at,
            _taken_out(waiting),
            lambda tx: self.close(tx, at, waiting, "applied", EventType.SIGNAL_APPLIED),
        )

    def _look_at_pull_request(self, at: Situation, waiting: WaitingSignal) -> Outcome:
        """Believe the forge, not the message; what is closed holds the task at once, whatever it is doing."""
        state, why = self._pulls.state(at), self._pulls.shut(at)
        found = f"pull request {at.task.pr_number} is {state}" if state else "nothing depends on it now"

        def answer(tx: Tx) -> None:
            self.close(tx, at, waiting, found, EventType.NOTE)

        if why is not None and not held_for_it(at.task) and at.task.hold is not Hold.ESCALATED:
            return self._pulls.hold(at, why, also=answer)
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            answer(tx)
            if state == "merged":
                text = f"{found}, by hand. The gates go on, and only what has passed them is deployed."
                stable = f"answer:{waiting.inbox_id}"
                mail.send(tx, "tracker.comment", stable, {"text": text}, task_id=at.task.id)
        return Outcome.MOVED

    def refuse(self, at: Situation, waiting: WaitingSignal, why: str) -> Outcome:
        """Close a signal without having done what it asks for, and answer."""
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            answers.refuse(tx, at.lease, at.task, waiting, why)
        return Outcome.MOVED

    def close(self, tx: Tx, at: Situation, waiting: WaitingSignal, outcome: str, event: EventType) -> None:
        """Close a signal with what came of it, in the commit that does it."""
        answers.close(tx, at.lease, at.task, waiting, outcome, event)

    def _too_late(self, at: Situation) -> bool:
        since = parse_stamp(at.task.hold_since) if at.task.hold_since else self._tools.clock.utc()
        return (self._tools.clock.utc() - since).total_seconds() > at.settings.approvals.confirm_timeout_s

    def _waiting(self, at: Situation) -> list[WaitingSignal]:
        with self._tools.database.read() as tx:
            return mail.waiting_signals(tx, at.task.id)


def _same_round(signal: Signal, task: Task) -> bool:
    return (signal.stage, signal.round) == (task.stage, task.round)


def _moved_on(signal: Signal) -> str:
    return f"it was given for {signal.stage} round {signal.round}; the task has moved on since"


def _cancelled_by(waiting: WaitingSignal) -> str:
    return f"cancelled by {waiting.signal.person}: {waiting.signal.reason}".rstrip(": ")


def _taken_out(waiting: WaitingSignal) -> str:
    return f"restored: {waiting.signal.reason}"
