"""The reading half of the desk: what people may look at, each answer one snapshot."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from orchestrator.db import (
    effects,
    events,
    evidence,
    failures,
    inbox,
    installation,
    jobs,
    leases,
    mail,
    repositories,
    slots,
    tasks,
)
from orchestrator.db.database import Database, Tx
from orchestrator.domain.effect import Intent
from orchestrator.domain.errors import OperatorError, OutsideError
from orchestrator.domain.event import Event
from orchestrator.domain.ids import RepoName, Sha, short_names
from orchestrator.domain.job import AgentRun, Job, JobKind, Usage
from orchestrator.domain.lease import why_not_believed
from orchestrator.domain.shares import Shares
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Task
from orchestrator.effects.deploy import prepared_undo
from orchestrator.operations import gates
from orchestrator.operations.queueing import queueing, row, what_it_does
from orchestrator.repo_config.records import RepoConfig
from orchestrator.rules.transitions import next_step
from orchestrator.stage_engine.signals import subject_on_show
from orchestrator.stage_engine.situation import Configs, configured, judging_commit
from orchestrator.transition_lease import Ownership

INITIATED = "INITIATED"  # for people: a deploy of ourselves is stored with its undo, and may have begun
NEWEST = 2**62  # above every id

BLOCKS: Mapping[str, str] = {
    "queued": "Jobs that wait for a worker, with what else they wait for (`waits_for`).",
    "running": "Jobs that run.",
    "shares": "Caps on agents and how many run under each, in all processes of the database.",
    "held": "Tasks that do not move, why and since when.",
    "serial_gate": "Frozen repositories with their loans (`frozen`), and who waits for slots, in order (`waiters`).",
    "merge_gate": "Slots that are taken: by whom, since when, and to whom a freeze has lent them.",
    "installation": "For each repository whether it is closed after a restore or a copy, and why.",
    "effects": "What is being done outside and is not settled.",
    "inbox": "How much of what trackers and forges have sent is open, deferred and parked.",
    "outbox": "How many messages wait to be sent (`waiting`, the `oldest` since when) and were given up (`parked`).",
    "transition_lease": "Who owns which task's transition (`holders`, with age and liveness), how often each actor "
    "stood back (`deferred`), `stale_reclaims` from the dead and `forced_reclaims` from the hung or by a person, "
    "`enabled` and `scope`, jobs whose end is being worked on (`finalizing`), and the process's own `term`.",
    "queue_worker": "What the queue's worker is at.",
    "driver": "How many tasks are looked at, and how many are due.",
    "drift": "What environments run, once their deploys are over; `enabled` and `scope` of the watch.",
    "reaper": "Jobs that were ended, by tier, and why others were left alone; `enabled` and `scope`.",
    "reconciler": "Passes, looks, and why tasks were left alone; `enabled` and `scope`.",
}
"""The blocks of ``GET /queue``. The names are a contract: added, never changed."""


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
    failed: str | None = None  # what keeps failing outside, how often and since when

    def line(self) -> str:
        """All of it in one line."""
        owner = f"owned by {self.owner}" if self.owner else "owned by nobody"
        waits = short_names(" ".join(self.waits_for.split()))  # a reason may quote an agent's many lines
        failed = f"; {self.failed}" if self.failed else ""
        return (
            f"{self.work_item} {self.stage}: {owner}; {waits} since {self.since}{failed}; next: {self.next}"
        )


class Reading:
    """Answers what people ask; changes nothing."""

    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        configs: Configs,
        *,
        extra: Callable[[], Mapping[str, object]],
        shares: Shares,
    ) -> None:
        """``extra`` gives the blocks of ``GET /queue`` that daemons keep in memory."""
        self._database = database
        self._ownership = ownership
        self._configs = configs
        self._extra = extra
        self._shares = shares

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
            judged_by = judging_commit(task, evidence.candidate_of(tx, task.id))
        config = self._config(task, judged_by)  # between two looks: it may have to be fetched
        with self._database.read() as tx:
            task = tasks.by_work_item(tx, work_item)
            held = leases.get(tx, task.id)
            owner = f"{held.owner} (pid {held.owner_pid})" if held else None
            waits, since = self._waits_for(tx, task)
            following, subject = self._next(tx, task, config), subject_on_show(tx, task)
            failed = _failed(failures.of_task(tx, task.id)) if not task.stage.terminal else None
            return Why(task.work_item, task.stage, owner, waits, since, following, subject, failed)

    def baseline(self, repo: str) -> slots.Baseline | None:
        """The coverage baseline in force."""
        with self._database.read() as tx:
            return slots.baseline(tx, RepoName(repo))

    def queue(self) -> dict[str, object]:
        """``GET /queue``: jobs, slots, freezes, ownership, daemons (FR-6). Keys are only ever added."""
        with self._database.read() as tx:
            open_tasks = {task.id: task for task in tasks.list_open(tx, limit=1000)}
            at = queueing(tx, self._shares, self._worker())
            view: dict[str, object] = {
                "queued": [row(job, open_tasks, at) for job in jobs.queued(tx)],
                "running": [row(job, open_tasks, at) for job in jobs.running(tx)],
                "shares": at.shown(),
                "held": [
                    {"task": t.work_item, "hold": t.hold, "reason": t.hold_reason, "since": t.hold_since}
                    for t in open_tasks.values()
                    if t.hold is not None
                ],
                "serial_gate": gates.serial_gate(tx),
                "merge_gate": gates.merge_gate(tx),
                "installation": [
                    {
                        "repo": state.repo,
                        "generation": state.generation,
                        "closed": state.closed.cause if state.closed is not None else None,
                        "reason": state.closed.reason if state.closed is not None else None,
                        "since": state.closed_at,
                    }
                    for state in installation.states(tx)
                ],
                "effects": [
                    {"task_id": e.task_id, "effect": e.name, "state": e.state, "since": e.intent_at}
                    for e in effects.all_unsettled(tx)
                ],
                "inbox": asdict(inbox.counts(tx)),
                "outbox": asdict(mail.lying(tx)),
            }
        return {**view, "transition_lease": self._ownership.snapshot(), **self._extra()}

    def _worker(self) -> object:
        return self._extra().get("queue_worker")

    def _waits_for(self, tx: Tx, task: Task) -> tuple[str, str]:
        unsettled = effects.unsettled(tx, task.id)
        active = jobs.active_of_task(tx, task.id)
        if task.stage.terminal:
            return "waits for nothing", task.updated_at
        closed = next((one for one in installation.states(tx) if one.repo == task.repo and one.closed), None)
        if closed is not None and closed.closed is not None:
            why = f"waits for a person (orch restore status): {closed.closed.reason}"
            return why, closed.closed_at or task.updated_at
        if (odd := why_not_believed(task.epoch)) is not None:
            return f"waits for a person: {odd}", task.updated_at
        if unsettled:
            first = unsettled[0]
            marker = f"{INITIATED}, " if prepared_undo(first) else ""
            return f"drives {first.name} ({marker}{first.state})", first.intent_at
        if task.hold is not None:
            gate = gates.at_the_gate(tx, task)
            return f"waits ({task.hold}): {task.hold_reason}{gate}", task.hold_since or task.updated_at
        if active is not None:
            doing = what_it_does(active, task, queueing(tx, self._shares, self._worker()))
            return doing, active.claimed_at or task.updated_at
        at = queueing(tx, self._shares, self._worker())
        if lies := at.at_a_worker(task):
            return f"waits for the worker in {lies}", task.updated_at
        return "waits for the engine", task.updated_at

    def _config(self, task: Task, judged_by: Sha | None) -> RepoConfig | None:
        try:
            return self._configs.of(task.repo, judged_by) if judged_by and not task.stage.terminal else None
        except (OperatorError, OutsideError):
            return None

    def _next(self, tx: Tx, task: Task, config: RepoConfig | None) -> str:
        if task.stage.terminal:
            return "nothing"
        own = task.stage is Stage.DEPLOY and effects.self_start(tx, task.id) is not None
        has = configured(config, of_ourselves=own)
        step = next_step(task.stage, evidence.steps_of_round(tx, task), has)
        return step.name if step else f"leave {task.stage}"


def _failed(failing: failures.OutsideFailure | None) -> str | None:
    if failing is None:
        return None
    times = f"{failing.attempts} times" if failing.attempts > 1 else "once"
    return f"failed outside {times} since {failing.since}: {failing.reason}"
