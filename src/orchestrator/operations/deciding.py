"""The deciding half of the desk: what people may ask to be done. Nothing here moves a task itself.

A decision is stored as a signal, bound to what is on show, and wakes the task; the engine applies or refuses it under
the task's lease (laws 2 and 7).
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.db import events, mail, repositories, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.domain.errors import NotFound, RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal, Task, Ticket
from orchestrator.rules.transitions import APPROVED, CONFIRM_DEPLOY
from orchestrator.runtime.entropy import Entropy
from orchestrator.stage_engine.signals import CANCEL, REJECT, RETRY, subject_on_show

TITLE_LIMIT = 5_000
BODY_LIMIT = 200_000
LABEL_LIMIT = 50
SUBJECT = re.compile(r"[0-9a-fA-F]{7,64}")  # a commit, whole or shortened; shorter ones fit too many


@dataclass(frozen=True, slots=True)
class Receipt:
    """A stored signal; ``inbox_id`` tells later what came of it. ``outcome`` is there where that is known at once."""

    inbox_id: int
    task: Task
    kind: str
    outcome: str | None = None


class Deciding:
    """Stores what people decide."""

    def __init__(
        self,
        database: Database,
        *,
        entropy: Entropy,
        wake: Callable[[Iterable[TaskId]], None],
        why_restored: Callable[[RepoName], str | None],
    ) -> None:
        """``why_restored``: what shows that the database is not the newest one, as far as anybody can tell."""
        self._database = database
        self._why_restored = why_restored
        self._entropy = entropy
        self._wake = wake

    def add_task(self, repo: str, ticket: Ticket, *, priority: int = 0) -> Task:
        """File a ticket; an open task of the same external ticket is returned instead of a second one.

        :raises NotFound: the repository is not registered, or it depends on a task that does not exist.
        :raises RequestRefused: the ticket has no title, or is too large; or the database was restored and nobody has
            accepted it: a ticket filed now would be given the number of one that the database does not know.
        """
        _check_ticket(ticket)
        why = self._why_restored(RepoName(repo))
        if why is not None:
            raise RequestRefused(f"Nothing is filed for {repo}: {why}.", hint="See `orch restore status`.")
        with self._database.write() as tx:
            known = repositories.get(tx, repo)
            if ticket.external_id is not None:
                existing = tasks.open_by_ticket(tx, ticket.tracker, ticket.external_id)
                if existing is not None:
                    return existing
            if known.left_at is not None:
                raise RequestRefused(
                    f"{repo} was disconnected at {known.left_at}: no ticket is taken any more.",
                    hint="`orch init` in its checkout connects it again.",
                )
            work_item = repositories.next_work_item(tx, known.name)
            task = tasks.add(tx, known.name, work_item, ticket, priority=priority)
            if task is None:
                raise RequestRefused(f"The ticket {ticket.external_id} has an open task already.")
            events.append(tx, EventType.TASK_CREATED, Actor.OPERATOR, task=task, data={"title": task.title})
            payload = {"stage": task.stage, "round": task.round, "reason": "filed"}
            mail.send(tx, "tracker.stage", f"stage:{task.work_item}:filed", payload, task_id=task.id)
        self._wake([task.id])
        return task

    # A decision with a ``subject``, the commit that the person saw (short or whole), is refused where another one is on
    # show (``RequestRefused``); without it, it is about what is on show when it arrives (law 7).

    def approve(
        self, work_item: str, *, person: str, reason: str = "", subject: str | None = None
    ) -> Receipt:
        """Give the approval the task waits for: Approved in analysis, Confirm Deploy in deploy-staging.

        :raises RequestRefused: nothing waits for an approval in this stage, or ``subject`` is not on show.
        """
        with self._database.read() as tx:
            stage = tasks.by_work_item(tx, work_item).stage
        kind = {Stage.ANALYSIS: APPROVED, Stage.DEPLOY_STAGING: CONFIRM_DEPLOY}.get(stage)
        if kind is None:
            raise RequestRefused(
                f"{work_item} stands in {stage}, where nothing waits for an approval; nothing was changed.",
                hint=f"`orch why {work_item}` says what it waits for.",
            )
        return self._signal(work_item, kind, person, reason, subject)

    def reject(self, work_item: str, *, person: str, reason: str, subject: str | None = None) -> Receipt:
        """Refuse what the task asks approval for; it goes back with the reason."""
        return self._signal(work_item, REJECT, person, reason, subject)

    def retry(self, work_item: str, *, person: str, reason: str = "", subject: str | None = None) -> Receipt:
        """Let an escalated or blocked task go on; its bounds begin anew."""
        return self._signal(work_item, RETRY, person, reason, subject)

    def cancel(self, work_item: str, *, person: str, reason: str = "", subject: str | None = None) -> Receipt:
        """Ask for a task to be cancelled; refused by the engine once its change is on main."""
        return self._signal(work_item, CANCEL, person, reason, subject)

    def outcome(self, receipt: Receipt) -> str | None:
        """What came of a signal, None while it waits.

        :raises NotFound: its task was never told such a thing.
        """
        with self._database.read() as tx:
            if not mail.belongs(tx, receipt.inbox_id, receipt.task.id):
                raise NotFound(f"{receipt.task.work_item} has had no signal {receipt.inbox_id}.")
            return mail.outcome_of(tx, receipt.inbox_id)

    def _signal(self, work_item: str, kind: str, person: str, reason: str, seen: str | None) -> Receipt:
        with self._database.write() as tx:
            task = tasks.held_still(tx, tasks.by_work_item(tx, work_item).id)
            if task.stage.terminal:
                raise RequestRefused(
                    f"{work_item} has ended ({task.stage}); nothing was changed.",
                    hint="What is still wanted is a new ticket: `orch task add`.",
                )
            subject = subject_on_show(tx, task)
            _check_seen(task, seen, subject)
            signal = Signal(kind, task.stage, task.round, subject, person[:200], reason[:2000])
            inbox_id = store_signal(tx, task, signal, self._entropy)
        self._wake([task.id])
        return Receipt(inbox_id, task, kind)


def store_signal(tx: Tx, task: Task, signal: Signal, entropy: Entropy) -> int:
    """Keep a person's word for the engine, with its event; the number under which it will be answered."""
    inbox_id = mail.receive(tx, task, signal, source="operator", dedup_key=entropy.uuid())
    if inbox_id is None:
        raise RequestRefused("This very signal has been received already.")
    data = {"signal": signal.kind, "person": signal.person, "reason": signal.reason, **(signal.data or {})}
    events.append(tx, EventType.SIGNAL_RECEIVED, Actor.OPERATOR, task=task, data=data)
    return inbox_id


def _check_seen(task: Task, seen: str | None, subject: str | None) -> None:
    """A decision about another commit than the one on show is nobody's decision about this one (law 7)."""
    if seen is None:
        return
    if not SUBJECT.fullmatch(seen):
        raise RequestRefused(
            f"{ascii(seen[:80])} names no commit: it takes at least 7 hexadecimal digits. Nothing was changed.",
            hint=f"`orch why {task.work_item} --json` gives the one on show as `subject`.",
        )
    if subject is None or not subject.startswith(seen.lower()):
        shown = f"shows {subject[:12]} now" if subject else "shows no commit now"
        raise RequestRefused(
            f"{task.work_item} {shown}, not {seen[:12].lower()}; nothing was changed.",
            hint=f"Look at it again (`orch why {task.work_item}`), then decide about that one.",
        )


def _check_ticket(ticket: Ticket) -> None:
    if not ticket.title.strip():
        raise RequestRefused(
            "The ticket has no title; nothing was filed.", hint="Say in a few words what is wanted."
        )
    if len(ticket.title) > TITLE_LIMIT or len(ticket.body) > BODY_LIMIT or len(ticket.labels) > LABEL_LIMIT:
        raise RequestRefused(
            f"The ticket is too large ({len(ticket.title)} and {len(ticket.body)} characters); nothing was filed.",
            hint=f"At most {TITLE_LIMIT} and {BODY_LIMIT} characters and {LABEL_LIMIT} labels.",
        )
    if "\0" in ticket.title + ticket.body:
        raise RequestRefused("The ticket holds a NUL character; nothing was filed.", hint="Take it out.")
