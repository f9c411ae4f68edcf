"""What a person has said in a ticket, made a signal for the engine, whichever tracker it was said at (S-10).

A word counts for what was on show when it came; one that is older than what is shown, or was given by somebody who may
not, is recorded and answered, not applied (law 7). It moves no task: whoever next owns that does.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.db import events, mail
from orchestrator.db.database import Tx
from orchestrator.db.inbox import Delivery
from orchestrator.domain.event import EventType
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal, Task
from orchestrator.rules.transitions import APPROVED, CONFIRM_DEPLOY
from orchestrator.runtime.clock import parse_stamp
from orchestrator.stage_engine.answers import refusal
from orchestrator.stage_engine.signals import CANCEL, REJECT, RETRY
from orchestrator.webhooks.comments import Command
from orchestrator.webhooks.fields import MalformedDelivery
from orchestrator.webhooks.handler import Handled

CLOCKS_DIFFER = timedelta(seconds=5)  # between a tracker's host and ours, at the most
APPROVALS = {Stage.ANALYSIS: APPROVED, Stage.DEPLOY_STAGING: CONFIRM_DEPLOY}


@dataclass(frozen=True, slots=True)
class Word:
    """What a person has said, before it is known whether it counts. ``said_at`` is by the tracker's clock."""

    kind: str
    person: str
    said_at: str
    reason: str = ""
    sha: str | None = None


def asked_for(delivery: Delivery, command: Command, person: str, said_at: str) -> Word:
    """What the command of a comment says; ``approve`` means what waited for an approval when it came."""
    approval = APPROVALS.get(delivery.stage, APPROVED) if delivery.stage else APPROVED
    kind = {"approve": approval, "reject": REJECT, "cancel": CANCEL, "retry": RETRY}[command.verb]
    return Word(kind, person, said_at, command.reason, command.sha)


def take(
    tx: Tx,
    delivery: Delivery,
    task: Task,
    word: Word,
    *,
    via: str,
    ahead_s: float = 0.0,
    objection: str | None = None,
) -> Handled:
    """Leave the word for whoever next owns the task; he compares it with what is true then. Moves nothing.

    ``via`` is the tracker, ``ahead_s`` how far its clock is ahead of ours; an ``objection`` is to all but a cancel,
    which asks for nothing that could go wrong.
    """
    if word.kind == CANCEL and task.stage.terminal:
        return Handled("the task has ended")  # nothing to answer: that is what was wanted
    why = _why_not(delivery, task, word, timedelta(seconds=ahead_s), objection)
    if why is not None:
        return refuse(tx, delivery, task, word, why)
    if delivery.stage is None or delivery.round is None:
        raise MalformedDelivery("The delivery is bound to no stage.")
    signal = Signal(word.kind, delivery.stage, delivery.round, delivery.subject, word.person, word.reason)
    mail.receive(tx, task, signal, source=via, dedup_key=f"{via}:word:{delivery.inbox_id}")
    data = {"signal": word.kind, "person": word.person, "reason": word.reason, "via": via}
    events.append(tx, EventType.SIGNAL_RECEIVED, Actor.WEBHOOK, task=task, data=data)
    return Handled(f"stored as {word.kind}", (task.id,))


def refuse(tx: Tx, delivery: Delivery, task: Task, word: Word, why: str, *, once: str = "") -> Handled:
    """Recorded and answered, not applied (law 7). What is answered ``once`` by this name is not said again."""
    data = {"signal": word.kind, "person": word.person, "reason": word.reason, "outcome": refusal(why)}
    events.append(tx, EventType.SIGNAL_REFUSED, Actor.WEBHOOK, task=task, data=data)
    text = f"{word.kind} by {word.person} was not applied: {why}."
    about = f"{task.id}:{once}" if once else str(delivery.inbox_id)
    mail.send(tx, "tracker.comment", f"answer:{about}", {"text": text}, task_id=task.id)
    return Handled(refusal(why))


def parsed(said: str) -> datetime:
    """A tracker's time.

    :raises MalformedDelivery: it is none.
    """
    try:
        moment = datetime.fromisoformat(said)
    except ValueError as error:
        raise MalformedDelivery("The delivery does not say when it was.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _why_not(
    delivery: Delivery, task: Task, word: Word, ahead: timedelta, objection: str | None
) -> str | None:
    if task.stage.terminal:
        return f"{task.work_item} has ended ({task.stage})"
    if word.kind == CANCEL:  # is about no commit
        return None
    if objection is not None:
        return objection
    if word.sha is not None and not (delivery.subject or "").startswith(word.sha):
        return f"{(delivery.subject or 'nothing')[:12]} was on show, not {word.sha[:12]}"
    shown = (task.stage, task.round) == (delivery.stage, delivery.round)
    said_at = parsed(word.said_at) - ahead + CLOCKS_DIFFER
    if shown and task.hold_since and said_at < parse_stamp(task.hold_since):
        return f"it was given at {word.said_at}, before what is on show now"
    return None
