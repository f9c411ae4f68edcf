"""Slots, freezes and the coverage baseline: shared places of a repository, owned by tasks, never by processes."""

from dataclasses import dataclass

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.stage import Stage

TRIES = 3  # to take what another has just freed


@dataclass(frozen=True, slots=True)
class Slot:
    """A shared place and who holds it; neither a task nor a freeze: nobody knows, it went from hand to hand."""

    name: str
    repo: RepoName
    task_id: TaskId | None
    work_item: WorkItem | None
    frozen: bool
    taken_at: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """A repository that takes no new work."""

    repo: RepoName
    reason: str
    task_id: TaskId | None
    work_item: WorkItem | None
    lent_to: TaskId | None
    frozen_at: str
    lent_item: WorkItem | None = None  # the number of the task that it is lent to


@dataclass(frozen=True, slots=True)
class Baseline:
    """The coverage that nothing merged may fall below."""

    percent: float
    merged_sha: Sha
    at: str


def merge_slot(repo: RepoName) -> str:
    """The place that serialises merges and production of a repository."""
    return f"merge:{repo}"


def environment_slot(environment: str) -> str:
    """The place of an environment; shared by all repositories that name it."""
    return f"environment:{environment}"


def take_all(tx: Tx, repo: RepoName, task_id: TaskId, names: list[str]) -> Slot | None:
    """Take every slot or none; the one that is busy is returned. The caller's transaction undoes what was taken."""
    return next((busy for name in names if (busy := _take(tx, repo, task_id, name)) is not None), None)


def _take(tx: Tx, repo: RepoName, task_id: TaskId, name: str) -> Slot | None:
    """Take a slot, or say who holds it. At a server that may have ended just after it was in the way."""
    for _ in range(TRIES):
        if tx.execute("slots.take", name=name, repo=repo, task_id=task_id) == 1:
            return None
        held = get(tx, name)
        if held is not None:
            return held if held.task_id != task_id else None
    return Slot(name, repo, None, None, frozen=False, taken_at="")


def free(tx: Tx, task_id: TaskId, name: str) -> None:
    """Free one slot of a task."""
    tx.execute("slots.free", task_id=task_id, name=name)


def free_all(tx: Tx, repo: RepoName, task_id: TaskId) -> int:
    """Free whatever a task holds; how many that were. The merge slot of a frozen repository returns to its freeze."""
    returned = give_to_freeze(tx, repo, task_id)
    return int(returned) + tx.execute("slots.free_all", task_id=task_id)


def held_by(tx: Tx, task_id: TaskId) -> list[str]:
    """Names of what a task holds."""
    return [row["name"] for row in tx.all("slots.held_by", task_id=task_id)]


def get(tx: Tx, name: str) -> Slot | None:
    """One slot, None where nobody holds it."""
    row = tx.one("slots.get", name=name)
    return _slot(row) if row else None


def all_slots(tx: Tx) -> list[Slot]:
    """Every slot that is held."""
    return [_slot(row) for row in tx.all("slots.all")]


def unfit(tx: Tx) -> list[tuple[Slot, Stage]]:
    """Slots of tasks whose stage has no use for any, with that stage: only a fault or a hand writes such a row."""
    return [(_slot(row), Stage(row["stage"])) for row in tx.all("slots.unfit")]


def give_to_freeze(tx: Tx, repo: RepoName, task_id: TaskId) -> bool:
    """The task's merge slot becomes the freeze's (DESIGN §3, "Broken after the merge"); False where nothing is frozen,
    or the task holds none."""
    return tx.execute("slots.give_to_freeze", name=merge_slot(repo), task_id=task_id) == 1


def take_from_freeze(tx: Tx, repo: RepoName, task_id: TaskId) -> bool:
    """The merge slot that a freeze holds becomes the task's; False where the freeze holds none."""
    return tx.execute("slots.take_from_freeze", name=merge_slot(repo), task_id=task_id) == 1


def freeze(tx: Tx, repo: RepoName, reason: str, task_id: TaskId | None) -> None:
    """Freeze a repository; a frozen one stays frozen for its first reason."""
    tx.execute("slots.freeze", repo=repo, reason=reason, task_id=task_id)


def pass_freeze_on(tx: Tx, repo: RepoName, reason: str, task_id: TaskId) -> None:
    """Whose brokenness keeps a frozen repository frozen from now on."""
    tx.execute("slots.pass_freeze_on", repo=repo, reason=reason, task_id=task_id)


def unfreeze(tx: Tx, repo: RepoName) -> bool:
    """Lift a freeze and free what it held; False where there was none."""
    lifted = tx.execute("slots.unfreeze", repo=repo) == 1
    free_of_freeze(tx, repo)
    return lifted


def free_of_freeze(tx: Tx, repo: RepoName) -> None:
    """Free a merge slot that is kept for a freeze which is gone."""
    tx.execute("slots.free_of_freeze", name=merge_slot(repo))


def keep_for_freeze(tx: Tx, repo: RepoName) -> None:
    """Have the freeze hold the repository's merge slot where nobody does."""
    tx.execute("slots.keep_for_freeze", name=merge_slot(repo), repo=repo)


def lend(tx: Tx, repo: RepoName, task_id: TaskId) -> None:
    """Let a task pass the freeze, which keeps the merge slot until the task takes it."""
    keep_for_freeze(tx, repo)
    tx.execute("slots.lend", repo=repo, task_id=task_id)


def end_loan(tx: Tx, task_id: TaskId) -> bool:
    """Lend to the task no longer; False where nothing was lent to it."""
    return tx.execute("slots.end_loan", task_id=task_id) == 1


def frozen(tx: Tx, repo: RepoName) -> Freeze | None:
    """The repository's freeze."""
    row = tx.one("slots.frozen", repo=repo)
    return _freeze(row) if row else None


def freezes(tx: Tx) -> list[Freeze]:
    """All freezes."""
    return [_freeze(row) for row in tx.all("slots.freezes")]


def baseline(tx: Tx, repo: RepoName) -> Baseline | None:
    """The baseline in force, None before the first merge."""
    row = tx.one("slots.newest_baseline", repo=repo)
    return Baseline(float(row["percent"]), Sha(row["merged_sha"]), row["at"]) if row else None


def ratchet(tx: Tx, repo: RepoName, merged: Sha, measured: float, task_id: TaskId) -> bool:
    """Raise the baseline with a merge; it never falls, and a merge counts once (False: it already has)."""
    return tx.execute("slots.ratchet", repo=repo, merged_sha=merged, measured=measured, task_id=task_id) == 1


def _slot(row: Row) -> Slot:
    frozen = row["holder"] == "freeze"
    return Slot(row["name"], row["repo"], row["task_id"], row["work_item"], frozen, row["taken_at"])


def _freeze(row: Row) -> Freeze:
    return Freeze(
        repo=row["repo"],
        reason=row["reason"],
        task_id=row["task_id"],
        work_item=row["work_item"],
        lent_to=row["lent_to"],
        frozen_at=row["frozen_at"],
        lent_item=row["lent_item"],
    )
