"""Tasks: rows in, values out. ``tasks.stage`` is written by the two functions at the end and by nothing else."""

import json
from collections.abc import Iterator

from orchestrator.db import leases
from orchestrator.db.database import Row, Tx
from orchestrator.domain.errors import InvariantError, NotFound
from orchestrator.domain.ids import Home, RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.stage import Stage, Track
from orchestrator.domain.task import Hold, HoldCause, Task, Ticket

PAGE = 200


def add(tx: Tx, repo: RepoName, work_item: WorkItem, ticket: Ticket, *, priority: int = 0) -> Task | None:
    """File a task in stage *created*; None where an open task for the same ticket exists (nothing is written)."""
    row = tx.one(
        "tasks.add",
        work_item=work_item,
        repo=repo,
        tracker=ticket.tracker,
        external_id=ticket.external_id,
        title=ticket.title,
        body=ticket.body,
        labels=json.dumps(ticket.labels, ensure_ascii=False),
        priority=priority,
    )
    if row is None:
        return None
    task_id = TaskId(row["id"])
    tx.execute("tasks.add_epoch", task_id=task_id)
    for other in dict.fromkeys(ticket.depends_on):
        # Its own number was nobody's when the ticket was written.
        if other == work_item or tx.execute("tasks.add_dependency", task_id=task_id, depends_on=other) != 1:
            raise NotFound(f"The ticket depends on {other}, which does not exist.", hint="Nothing was filed.")
    return get(tx, task_id)


def get(tx: Tx, task_id: TaskId) -> Task:
    """One task.

    :raises NotFound: there is none.
    """
    row = tx.one("tasks.get", task_id=task_id)
    if row is None:
        raise NotFound(f"There is no task with id {task_id}.")
    return _task(row)


def held_still(tx: Tx, task_id: TaskId) -> Task:
    """The task, which nobody moves until this transaction has ended: for who leaves something for its next owner.

    Whoever ends a task answers all that waits for it, and would not see what is being left there at the same time.

    :raises NotFound: there is none.
    """
    leases.lock_epoch(tx, task_id)
    return get(tx, task_id)


def by_work_item(tx: Tx, work_item: str) -> Task:
    """One task by the number people see.

    :raises NotFound: there is none.
    """
    row = tx.one("tasks.get_by_work_item", work_item=work_item)
    if row is None:
        raise NotFound(f"There is no task {work_item}.", hint="`orch task list` shows the ones there are.")
    return _task(row)


def open_by_ticket(tx: Tx, tracker: str, external_id: str) -> Task | None:
    """The open task of a ticket."""
    row = tx.one("tasks.get_open_by_ticket", tracker=tracker, external_id=external_id)
    return _task(row) if row else None


def newest_by_ticket(tx: Tx, tracker: str, external_id: str) -> Task | None:
    """The task of a ticket that was filed last: the open one, if there is one."""
    row = tx.one("tasks.newest_by_ticket", tracker=tracker, external_id=external_id)
    return _task(row) if row else None


def newest_by_branch(tx: Tx, repo: RepoName, branch: str) -> Task | None:
    """The task that works on a branch."""
    row = tx.one("tasks.newest_by_branch", repo=repo, branch=branch)
    return _task(row) if row else None


def newest_by_pull_request(tx: Tx, repo: RepoName, number: int) -> Task | None:
    """The task whose pull request has a number."""
    row = tx.one("tasks.newest_by_pull_request", repo=repo, pr_number=number)
    return _task(row) if row else None


def open_at_commit(tx: Tx, repo: RepoName, sha: Sha) -> Task | None:
    """The open task whose head, or candidate of this round, is a commit."""
    row = tx.one("tasks.open_at_commit", repo=repo, sha=sha)
    return _task(row) if row else None


def before_the_merge(tx: Tx, repo: RepoName, *, limit: int = PAGE) -> list[TaskId]:
    """Tasks for which it matters where the default branch stands: what they start from, and what they merge into."""
    return [TaskId(row["id"]) for row in tx.all("tasks.before_the_merge", repo=repo, limit=limit)]


def list_open(tx: Tx, *, after: int = 0, limit: int = PAGE) -> list[Task]:
    """Tasks that have not ended, oldest first, one page."""
    return [_task(row) for row in tx.all("tasks.list_open", after=after, limit=limit)]


def open_ids(tx: Tx, repo: RepoName | None = None) -> list[TaskId]:
    """The numbers of all tasks that have not ended, of one repository or of all, oldest first."""
    return [TaskId(row["id"]) for row in tx.all("tasks.open_ids", repo=repo)]


def every_open(tx: Tx, repo: RepoName | None = None) -> Iterator[Task]:
    """All tasks that have not ended, of one repository or of all, oldest first; read page by page."""
    after = 0
    while page := list_open(tx, after=after):
        yield from (task for task in page if repo in (None, task.repo))
        after = page[-1].id


def list_recent(tx: Tx, *, before: int = 2**62, limit: int = PAGE) -> list[Task]:
    """All tasks, newest first, one page."""
    return [_task(row) for row in tx.all("tasks.list_recent", before=before, limit=limit)]


def unmet_dependencies(tx: Tx, task_id: TaskId) -> list[tuple[WorkItem, Stage]]:
    """What the task still waits for."""
    rows = tx.all("tasks.waiting_for_dependencies", task_id=task_id)
    return [(WorkItem(row["work_item"]), Stage(row["stage"])) for row in rows]


def dependents(tx: Tx, task_id: TaskId) -> list[TaskId]:
    """Tasks that wait for this one."""
    return [TaskId(row["task_id"]) for row in tx.all("tasks.dependents", task_id=task_id)]


def oldest_waiting_for_slot(tx: Tx, repo: RepoName) -> TaskId | None:
    """Who has waited longest for the repository's slots."""
    row = tx.one("tasks.oldest_waiting_for_slot", repo=repo)
    return TaskId(row["id"]) if row else None


def first_in_line(tx: Tx) -> list[TaskId]:
    """Of each repository the one that has waited longest for its slots: who is woken when one is freed."""
    return [TaskId(row["id"]) for row in tx.all("tasks.first_in_line")]


def between_starts(tx: Tx) -> list[TaskId]:
    """Tasks on their way to staging or production that nothing on record keeps: one that lacks an environment's place
    is among them, and is tried again by and by."""
    return [TaskId(row["id"]) for row in tx.all("tasks.between_starts")]


def held_up(tx: Tx, repo: RepoName) -> list[TaskId]:
    """Whom a freeze of the repository holds up, or who waits for its slots: all are looked at when it is lifted."""
    return [TaskId(row["id"]) for row in tx.all("tasks.held_up", repo=repo)]


def broken(tx: Tx, repo: RepoName) -> list[TaskId]:
    """Tasks of a repository that are broken after their merge: the next one that is done may close them."""
    return [TaskId(row["id"]) for row in tx.all("tasks.broken", repo=repo)]


def broken_beside(tx: Tx, task: Task) -> Task | None:
    """The newest other task of the repository that is broken after its merge, or whose undo is not settled."""
    row = tx.one("tasks.broken_beside", repo=task.repo, task_id=task.id)
    return _task(row) if row else None


def waiting_for_slot(tx: Tx) -> list[TaskId]:
    """Everyone who waits for a slot, oldest first."""
    return [TaskId(row["id"]) for row in tx.all("tasks.waiting_for_slot")]


def hold(tx: Tx, task_id: TaskId, why: Hold, reason: str, cause: HoldCause | None = None) -> bool:
    """Say why the task does not move; False where that already stands there."""
    return tx.execute("tasks.set_hold", task_id=task_id, hold=why, reason=reason, cause=cause) == 1


def release_hold(tx: Tx, task_id: TaskId) -> bool:
    """Let it move again; False where nothing held it."""
    return tx.execute("tasks.clear_hold", task_id=task_id) == 1


def set_branch(tx: Tx, task_id: TaskId, branch: str, base: Sha) -> None:
    """Name the branch and the commit it starts from, once."""
    tx.execute("tasks.set_branch", task_id=task_id, branch=branch, base_sha=base)


def set_config(tx: Tx, task_id: TaskId, commit: Sha) -> None:
    """The commit of main whose configuration judges the task from now on."""
    tx.execute("tasks.set_config", task_id=task_id, config_sha=commit)


def set_work_home(tx: Tx, task_id: TaskId, home: Home | None) -> None:
    """Where work of the task lies that its forge does not have; None: the forge has all of it."""
    tx.execute("tasks.set_work_home", task_id=task_id, home=home)


def away_at(tx: Tx, home: Home) -> list[TaskId]:
    """Open tasks of which work lies in a home."""
    return [TaskId(row["id"]) for row in tx.all("tasks.away_at", home=home)]


def at_lost_homes(tx: Tx) -> list[TaskId]:
    """Open tasks of which work lies at a worker that was silent for so long that it counts as lost."""
    return [TaskId(row["id"]) for row in tx.all("tasks.at_lost_homes")]


def set_head(tx: Tx, task_id: TaskId, head: Sha) -> None:
    """The branch's own head as the ledger knows it."""
    tx.execute("tasks.set_head", task_id=task_id, head_sha=head)


def set_gated(tx: Tx, task_id: TaskId, gated: Sha | None) -> None:
    """The SHA that verdicts are about (DESIGN §3)."""
    tx.execute("tasks.set_gated", task_id=task_id, gated_sha=gated)


def set_track(tx: Tx, task_id: TaskId, track: Track) -> None:
    """How much of the pipeline the task passes through."""
    tx.execute("tasks.set_track", task_id=task_id, track=track)


def set_pr(tx: Tx, task_id: TaskId, number: int) -> None:
    """The task's one pull request."""
    tx.execute("tasks.set_pr", task_id=task_id, pr_number=number)


def untidied(tx: Tx, *, limit: int = 50) -> list[TaskId]:
    """Ended tasks whose workspaces have not been tidied up."""
    return [TaskId(row["id"]) for row in tx.all("tasks.untidied", limit=limit)]


def tidied(tx: Tx, task_id: TaskId) -> None:
    """Record that nothing of the task is left to tidy up."""
    tx.execute("tasks.tidied", task_id=task_id)


def times_taken(tx: Tx, task_id: TaskId, source: Stage, target: Stage) -> int:
    """How often the task has gone along an edge since a person last forgave it."""
    row = tx.one("tasks.times_taken", task_id=task_id, from_stage=source, to_stage=target)
    return int(row["times"]) if row else 0


def forgive(tx: Tx, task_id: TaskId) -> None:
    """A person's retry: what counts against the bounds begins anew; rounds go on."""
    tx.execute("tasks.forgive", task_id=task_id)


def update_task_stage_cas(
    tx: Tx, task_id: TaskId, expected_stage: Stage, new_stage: Stage, *, epoch: int
) -> bool:
    """Write a stage iff the task still is in the expected one under the expected epoch; raises the epoch (law 2, FR-2).

    The caller's transaction has locked the epoch row first. False: lost race, nothing was written, nothing may be done.
    """
    written = tx.execute(
        "tasks.update_stage_cas",
        task_id=task_id,
        expected_stage=expected_stage,
        new_stage=new_stage,
        epoch=epoch,
    )
    if written != 1:
        return False
    if tx.execute("leases.raise_epoch", task_id=task_id, epoch=epoch) != 1:
        raise InvariantError(f"the epoch of task {task_id} moved under its own lock")
    tx.execute("tasks.edge_taken", task_id=task_id, from_stage=expected_stage, to_stage=new_stage)
    return True


def update_task_stage(tx: Tx, task_id: TaskId, new_stage: Stage) -> None:
    """The seed's unconditional write: kept by name, used by nothing, for it passes law 2 by."""
    tx.execute("tasks.update_stage", task_id=task_id, new_stage=new_stage)


def _task(row: Row) -> Task:
    return Task(
        id=TaskId(row["id"]),
        work_item=WorkItem(row["work_item"]),
        repo=RepoName(row["repo"]),
        title=row["title"],
        body=row["body"],
        labels=tuple(json.loads(row["labels"])),
        stage=Stage(row["stage"]),
        round=row["round"],
        epoch=row["epoch"],
        track=Track(row["track"]) if row["track"] else None,
        hold=Hold(row["hold"]) if row["hold"] else None,
        hold_reason=row["hold_reason"],
        hold_since=row["hold_since"],
        hold_cause=HoldCause(row["hold_cause"]) if row["hold_cause"] else None,
        branch=row["branch"],
        base_sha=row["base_sha"],
        config_sha=row["config_sha"],
        head_sha=row["head_sha"],
        gated_sha=row["gated_sha"],
        pr_number=row["pr_number"],
        cancelled_at=row["cancelled_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        work_home=Home(row["work_home"]) if row["work_home"] is not None else None,
        tracker=row["tracker"],
        external_id=row["external_id"],
    )
