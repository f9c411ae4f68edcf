"""What becomes of a person's word: stored, told in the task's story, and said to the person (law 7)."""

from orchestrator.db import events, mail
from orchestrator.db.database import Tx
from orchestrator.db.mail import WaitingSignal
from orchestrator.domain.event import EventType
from orchestrator.domain.lease import Lease
from orchestrator.domain.task import Task

_REFUSED = "refused: "


def refusal(why: str) -> str:
    """The outcome of what was not done."""
    return f"{_REFUSED}{why}"


def was_refused(outcome: str | None) -> bool:
    """Whether an outcome is a refusal; one that is not there yet is none."""
    return outcome is not None and outcome.startswith(_REFUSED)


def close(tx: Tx, lease: Lease, task: Task, waiting: WaitingSignal, outcome: str, event: EventType) -> None:
    """Close a signal with what came of it, in the commit that does it."""
    mail.handled(tx, waiting.inbox_id, outcome)
    signal = waiting.signal
    data = {
        "signal": signal.kind,
        "person": signal.person,
        "reason": signal.reason,
        "subject": signal.subject,
        "outcome": outcome,
    }
    events.append(tx, event, lease.owner, task=task, epoch=lease.epoch, data=data)


def done(tx: Tx, lease: Lease, task: Task, kind: str) -> None:
    """Close the first waiting signal of a kind as applied, in the commit that does what it asks for."""
    waiting = next((one for one in mail.waiting_signals(tx, task.id) if one.signal.kind == kind), None)
    if waiting is not None:
        close(tx, lease, task, waiting, "applied", EventType.SIGNAL_APPLIED)


def refuse(tx: Tx, lease: Lease, task: Task, waiting: WaitingSignal, why: str) -> None:
    """Close a signal without having done what it asks for, and answer."""
    close(tx, lease, task, waiting, refusal(why), EventType.SIGNAL_REFUSED)
    text = f"{waiting.signal.kind} by {waiting.signal.person} was not applied: {why}."
    mail.send(tx, "tracker.comment", f"answer:{waiting.inbox_id}", {"text": text}, task_id=task.id)


def refuse_all(tx: Tx, lease: Lease, task: Task, why: str) -> None:
    """Answer everybody who still waits for something of a task that ends."""
    while page := mail.waiting_signals(tx, task.id):
        for waiting in page:
            refuse(tx, lease, task, waiting, why)
