"""What people may ask of the service, the same for the command line, HTTP and the board.

Reading is one snapshot. Acting stores a signal, bound to what is on show, and wakes the task; the engine applies or
refuses it under the task's lease (laws 2 and 7). Nothing here moves a task itself.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.db import effects, events, evidence, jobs, leases, mail, repositories, slots, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.domain.effect import Intent
from orchestrator.domain.errors import OperatorError, RequestRefused
from orchestrator.domain.event import Event, EventType
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.job import AgentRun, Job, JobKind, Usage
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold, Signal, Task, Ticket
from orchestrator.rules.transitions import APPROVED, CONFIRM_DEPLOY, next_step
from orchestrator.runtime.entropy import Entropy
from orchestrator.stage_engine.signals import CANCEL, REJECT, RETRY, subject_on_show
from orchestrator.stage_engine.situation import Configs, configured, judging_commit
from orchestrator.transition_lease import Ownership

TITLE_LIMIT = 5_000
BODY_LIMIT = 200_000
LABEL_LIMIT = 50
NEWEST = 2**62  # above every id
SUBJECT = re.compile(r"[0-9a-fA-F]{7,64}")  # a commit, whole or shortened; shorter ones fit too many


@dataclass(frozen=True, slots=True)
class TaskStory:
    """Everything the ledger holds about a task."""

    task: Task
    jobs: tuple[Job, ...]
    runs: tuple[tuple[JobKind, AgentRun], ...]
    effects: tuple[Intent, ...]
    candidates: tuple[Candidate, ...]
    events: tuple[Event, ...]
    documents: tuple[evidence.KeptDocument, ...]
    spent: Usage


@dataclass(frozen=True, slots=True)
class Why:
    """Who owns a task, what it waits for, since when, what happens next."""

    work_item: str
    stage: Stage
    owner: str | None
    waits_for: str
    since: str
    next: str
    subject: str | None  # the commit on show, which a decision now would be about

    def line(self) -> str:
        """All of it in one line."""
        owner = f"owned by {self.owner}" if self.owner else "owned by nobody"
        waits = " ".join(self.waits_for.split())  # a reason may quote an agent's many lines
        return f"{self.work_item} {self.stage}: {owner}; {waits} since {self.since}; next: {self.next}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A stored signal; ``inbox_id`` tells later what came of it."""

    inbox_id: int
    task: Task
    kind: str


class Operations:
    """The operator's desk."""

    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        configs: Configs,
        *,
        entropy: Entropy,
        wake: Callable[[Iterable[TaskId]], None],
        extra: Callable[[], Mapping[str, object]],
    ) -> None:
        """``extra`` gives the blocks of ``GET /queue`` that daemons keep in memory."""
        self._database = database
        self._ownership = ownership
        self._configs = configs
        self._entropy = entropy
        self._wake = wake
        self._extra = extra

    # --- tickets ------------------------------------------------------------------------------------------------------

    def add_task(self, repo: str, ticket: Ticket, *, priority: int = 0) -> Task:
        """File a ticket; an open task of the same external ticket is returned instead of a second one.

        :raises NotFound: the repository is not registered, or it depends on a task that does not exist.
        :raises RequestRefused: the ticket has no title, or is too large.
        """
        _check_ticket(ticket)
        with self._database.write() as tx:
            known = repositories.get(tx, repo)
            if ticket.external_id is not None:
                existing = tasks.open_by_ticket(tx, ticket.tracker, ticket.external_id)
                if existing is not None:
                    return existing
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
            raise RequestRefused(f"{work_item} is in {stage}: nothing there waits for an approval.")
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
        """What came of a signal, None while it waits."""
        with self._database.read() as tx:
            return mail.outcome_of(tx, receipt.inbox_id)

    def unfreeze(self, repo: str, *, person: str, reason: str = "") -> bool:
        """Lift a repository's freeze; False where there is none.

        :raises RequestRefused: an undo in the repository is not settled yet.
        """
        with self._database.write() as tx:
            known = repositories.get(tx, repo)
            undoing = effects.undo_under_way(tx, known.name)
            if undoing is not None:
                raise RequestRefused(
                    f"The undo of {undoing} is not settled yet; the freeze stays.",
                    hint=f"`orch why {undoing}` says what it waits for.",
                )
            lifted = slots.unfreeze(tx, known.name)
            if lifted:
                data = {"repo": repo, "person": person, "reason": reason}
                events.append(tx, EventType.REPO_UNFROZEN, Actor.OPERATOR, data=data)
            waiting = [task.id for task in tasks.list_open(tx) if task.repo == known.name]
        self._wake(waiting)
        return lifted

    # --- reading ------------------------------------------------------------------------------------------------------

    def repositories(self) -> list[repositories.Repository]:
        """Every registered repository."""
        with self._database.read() as tx:
            return repositories.all_repositories(tx)

    def tasks(
        self, *, before: int = NEWEST, after: int = 0, limit: int = 100, open_only: bool = False
    ) -> list[Task]:
        """Tasks ``before`` an id, newest first; with ``open_only`` those not ended, ``after`` an id, oldest first.

        :raises OperatorError: a page of the other list is asked for.
        """
        if (before != NEWEST) if open_only else (after != 0):
            raise OperatorError(
                "`after` goes through open tasks, oldest first; `before` through all tasks, newest first.",
                hint="Give the one that belongs to the list you ask for.",
            )
        with self._database.read() as tx:
            if open_only:
                return tasks.list_open(tx, after=after, limit=limit)
            return tasks.list_recent(tx, before=before, limit=limit)

    def task(self, work_item: str) -> Task:
        """One task.

        :raises NotFound: there is none.
        """
        with self._database.read() as tx:
            return tasks.by_work_item(tx, work_item)

    def story(self, work_item: str, *, events_after: int = 0) -> TaskStory:
        """Everything about one task.

        :raises NotFound: there is none.
        """
        with self._database.read() as tx:
            task = tasks.by_work_item(tx, work_item)
            return TaskStory(
                task=task,
                jobs=tuple(jobs.of_task(tx, task.id)),
                runs=tuple(jobs.runs_of_task(tx, task.id)),
                effects=tuple(effects.of_task(tx, task.id)),
                candidates=tuple(evidence.candidates(tx, task.id)),
                events=tuple(events.of_task(tx, task.id, after=events_after)),
                documents=tuple(evidence.documents(tx, task.id)),
                spent=jobs.spent(tx, task.id),
            )

    def why(self, work_item: str) -> Why:
        """Who owns the task, what it waits for, since when, and what happens next.

        :raises NotFound: there is none.
        """
        with self._database.read() as tx:
            task = tasks.by_work_item(tx, work_item)
            held = leases.get(tx, task.id)
            owner = f"{held.owner} (pid {held.owner_pid})" if held else None
            waits, since = self._waits_for(tx, task)
            following, subject = self._next(tx, task), subject_on_show(tx, task)
            return Why(task.work_item, task.stage, owner, waits, since, following, subject)

    def baseline(self, repo: str) -> slots.Baseline | None:
        """The coverage baseline in force."""
        with self._database.read() as tx:
            return slots.baseline(tx, RepoName(repo))

    def queue(self) -> dict[str, object]:
        """``GET /queue``: jobs, slots, freezes, ownership, daemons (FR-6). Keys are only ever added."""
        with self._database.read() as tx:
            open_tasks = {task.id: task for task in tasks.list_open(tx, limit=1000)}
            view: dict[str, object] = {
                "queued": [_job(job, open_tasks) for job in jobs.queued(tx)],
                "running": [_job(job, open_tasks) for job in jobs.running(tx)],
                "held": [
                    {"task": t.work_item, "hold": t.hold, "reason": t.hold_reason, "since": t.hold_since}
                    for t in open_tasks.values()
                    if t.hold is not None
                ],
                "serial_gate": {
                    "frozen": [
                        {"repo": f.repo, "reason": f.reason, "task": f.work_item, "since": f.frozen_at}
                        for f in slots.freezes(tx)
                    ],
                    "waiting": [
                        open_tasks[i].work_item for i in tasks.waiting_for_slot(tx) if i in open_tasks
                    ],
                },
                "merge_gate": {
                    "slots": [
                        {"slot": s.name, "task": s.work_item or "(freeze)", "since": s.taken_at}
                        for s in slots.all_slots(tx)
                    ]
                },
                "effects": [
                    {"task_id": e.task_id, "effect": e.name, "state": e.state, "since": e.intent_at}
                    for e in effects.all_unsettled(tx)
                ],
            }
        return {**view, "transition_lease": self._ownership.snapshot(), **self._extra()}

    # --- steps --------------------------------------------------------------------------------------------------------

    def _signal(self, work_item: str, kind: str, person: str, reason: str, seen: str | None) -> Receipt:
        with self._database.write() as tx:
            task = tasks.by_work_item(tx, work_item)
            if task.stage.terminal:
                raise RequestRefused(f"{work_item} has ended ({task.stage}); nothing was changed.")
            subject = subject_on_show(tx, task)
            _check_seen(task, seen, subject)
            signal = Signal(kind, task.stage, task.round, subject, person[:200], reason[:2000])
            inbox_id = mail.receive(tx, task, signal, source="operator", dedup_key=self._entropy.uuid())
            if inbox_id is None:
                raise RequestRefused("This very signal has been received already.")
            data = {"signal": kind, "person": signal.person, "reason": signal.reason}
            events.append(tx, EventType.SIGNAL_RECEIVED, Actor.OPERATOR, task=task, data=data)
        self._wake([task.id])
        return Receipt(inbox_id, task, kind)

    def _waits_for(self, tx: Tx, task: Task) -> tuple[str, str]:
        unsettled = effects.unsettled(tx, task.id)
        active = jobs.active_of_task(tx, task.id)
        if task.stage.terminal:
            return "waits for nothing", task.updated_at
        if unsettled:
            return f"drives {unsettled[0].name} ({unsettled[0].state})", unsettled[0].intent_at
        if task.hold is not None:
            holder = slots.get(tx, slots.merge_slot(task.repo)) if task.hold is Hold.SLOT else None
            by = f", held by {holder.work_item or 'the freeze'}" if holder is not None else ""
            return f"waits ({task.hold}): {task.hold_reason}{by}", task.hold_since or task.updated_at
        if active is not None:
            doing = "runs" if active.claimed_at else "waits for a free worker:"
            return (
                f"{doing} {active.kind}, attempt {max(active.attempts, 1)}",
                active.claimed_at or task.updated_at,
            )
        return "waits for the engine", task.updated_at

    def _next(self, tx: Tx, task: Task) -> str:
        if task.stage.terminal:
            return "nothing"
        try:
            judged_by = judging_commit(task, evidence.candidates(tx, task.id))
            config = self._configs.of(task.repo, judged_by) if judged_by else None
        except OperatorError:
            config = None
        step = next_step(task.stage, evidence.steps_of_round(tx, task), configured(config))
        return step.name if step else f"leave {task.stage}"


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


def _job(job: Job, open_tasks: Mapping[TaskId, Task]) -> dict[str, object]:
    task = open_tasks.get(job.task_id)
    return {
        "task": task.work_item if task else job.task_id,
        "repo": task.repo if task else None,
        "kind": job.kind,
        "status": job.status,
        "attempt": job.attempts,
        "since": job.claimed_at,
        "not_before": job.not_before,
    }
