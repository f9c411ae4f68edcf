"""The ledger of effects: intents and what settled them (DESIGN §6). Rows are never deleted and only move forward."""

import json
from collections.abc import Mapping, Sequence

from orchestrator.db import leases
from orchestrator.db.database import Row, Tx
from orchestrator.domain.effect import Cause, EffectName, EffectState, Intent
from orchestrator.domain.errors import InvariantError, LostRace
from orchestrator.domain.ids import EffectId, RepoName, TaskId, WorkItem
from orchestrator.domain.lease import Lease


def next_sequence(tx: Tx) -> tuple[int, str]:
    """Draw the ledger's next number, and the installation it belongs to; both travel with what we do outside."""
    row = tx.one("effects.next_sequence")
    if row is None:
        raise InvariantError("the database has no installation row")
    return int(row["sequence"]), str(row["installation_id"])


def intend(
    tx: Tx,
    lease: Lease,
    name: EffectName,
    key: str,
    round: int,
    *,
    token: str,
    judged: Mapping[str, object],
    sequence: int | None = None,
) -> Intent:
    """Store a decision before it is acted upon; a repeat of the same round is returned as it stands (law 3)."""
    leases.check(tx, lease)
    if sequence is None:
        sequence, _ = next_sequence(tx)
    row = tx.one(
        "effects.intend",
        task_id=lease.task_id,
        name=name,
        key=key,
        round=round,
        epoch=lease.epoch,
        sequence=sequence,
        token=token,
        actor=lease.owner,
        evidence=json.dumps(judged, sort_keys=True),
    ) or tx.one("effects.find", task_id=lease.task_id, name=name, key=key, round=round)
    if row is None:
        raise InvariantError(f"the intent {name} {key} was neither stored nor found")
    return intent_of(row)


def settle(
    tx: Tx, lease: Lease, intent: Intent, state: EffectState, fact: Mapping[str, object], reason: str
) -> None:
    """Record the outcome that a probe has shown.

    :raises LostRace: the task or the effect is no longer where it was judged.
    """
    leases.check(tx, lease)
    settled = tx.execute(
        "effects.settle",
        effect_id=intent.effect_id,
        state=state,
        fact=json.dumps(fact, sort_keys=True),
        reason=reason,
    )
    if settled != 1:
        raise LostRace(f"effect {intent.effect_id} is already settled")


def move(
    tx: Tx, lease: Lease, intent: Intent, state: EffectState, reason: str, cause: Cause | None = None
) -> None:
    """Move an unsettled effect to another unsettled state; to ``revoking`` with its cause.

    :raises LostRace: it is no longer in the state that was read.
    """
    leases.check(tx, lease)
    moved = tx.execute(
        "effects.move",
        effect_id=intent.effect_id,
        state=state,
        expected=intent.state,
        reason=reason,
        cause=cause,
    )
    if moved != 1:
        raise LostRace(f"effect {intent.effect_id} is no longer {intent.state}")


def find(tx: Tx, task_id: TaskId, name: EffectName, key: str, round: int) -> Intent | None:
    """One row by what makes it the same act."""
    row = tx.one("effects.find", task_id=task_id, name=name, key=key, round=round)
    return intent_of(row) if row else None


def get(tx: Tx, effect_id: EffectId) -> Intent | None:
    """One row by its number."""
    row = tx.one("effects.get", effect_id=effect_id)
    return intent_of(row) if row else None


def of_task(tx: Tx, task_id: TaskId) -> list[Intent]:
    """All effects of a task, in order."""
    return [intent_of(row) for row in tx.all("effects.of_task", task_id=task_id)]


def unsettled(tx: Tx, task_id: TaskId) -> list[Intent]:
    """What whoever owns the task has to settle before anything else (law 3)."""
    return [intent_of(row) for row in tx.all("effects.unsettled", task_id=task_id)]


def all_unsettled(tx: Tx) -> list[Intent]:
    """Unsettled effects of all tasks, for people: the first thousand, by task."""
    return [intent_of(row) for row in tx.all("effects.all_unsettled")]


def unsettled_starts(tx: Tx) -> list[Intent]:
    """Starts and undos of environments that are not settled."""
    return [intent_of(row) for row in tx.all("effects.unsettled_starts")]


def doubt(tx: Tx, intent: Intent, reason: str) -> bool:
    """Nobody can tell what became of it, whoever has its task, and whatever was to become of it; False where it has
    been settled meanwhile."""
    return tx.execute("effects.doubt", effect_id=intent.effect_id, reason=reason) == 1


def tasks_unsettled(tx: Tx) -> list[TaskId]:
    """Every task that has something to be settled."""
    return [TaskId(row["task_id"]) for row in tx.all("effects.tasks_unsettled")]


def on_show(tx: Tx, task_id: TaskId | None, *, everything: bool, before: int, limit: int) -> Sequence[Row]:
    """Rows for people, newest first: with the task's number and what keeps failing; of one task or of all."""
    return tx.all("effects.on_show", task_id=task_id, everything=everything, before=before, limit=limit)


def applied(tx: Tx, task_id: TaskId, name: EffectName) -> Intent | None:
    """The newest applied effect of a kind."""
    row = tx.one("effects.applied", task_id=task_id, name=name)
    return intent_of(row) if row else None


def undo_under_way(tx: Tx, repo: RepoName) -> WorkItem | None:
    """The task whose deploy is being undone in a repository: until that is settled its freeze stays."""
    row = tx.one("effects.unsettled_undo", repo=repo)
    return WorkItem(row["work_item"]) if row else None


def self_start(tx: Tx, task_id: TaskId) -> Intent | None:
    """The task's newest start that carries a conditional undo: a deploy of ourselves (S-15)."""
    row = tx.one("effects.self_start", task_id=task_id)
    return intent_of(row) if row else None


def undecided_self_starts(tx: Tx) -> list[Intent]:
    """Deploys of ourselves whose conditional undo is neither performed nor called off, oldest first."""
    return [intent_of(row) for row in tx.all("effects.undecided_self_starts")]


def by_sequence(tx: Tx, sequence: int) -> Intent | None:
    """The effect with a number of the ledger; None where that number was drawn for one that has not been intended."""
    row = tx.one("effects.by_sequence", sequence=sequence)
    return intent_of(row) if row else None


def merged_since(tx: Tx, task_id: TaskId) -> WorkItem | None:
    """The newest task that has been merged into the task's repository after the task's own merge."""
    row = tx.one("effects.later_merge", task_id=task_id)
    return WorkItem(row["work_item"]) if row else None


def done_since(tx: Tx, task_id: TaskId) -> WorkItem | None:
    """The newest task that is done and whose merge came after this one's: what production runs from then on contains
    both, for ever (N8)."""
    row = tx.one("effects.done_since", task_id=task_id)
    return WorkItem(row["work_item"]) if row else None


def draw_generation(tx: Tx, environment: str, sha: str) -> tuple[int, int] | None:
    """(generation, token) of the next start of ``sha`` in an environment; None while a start there is unsettled, or may
    still be undone by its own runner. Generations drawn for a conditional undo are taken, performed or not.

    The token comes from the environment's own counter: epochs of different tasks are never compared (H6). Whoever asks
    holds the environment until the transaction ends, or two would draw the same generation side by side.
    """
    tx.one("effects.lock_environment", environment=environment)
    if tx.one("effects.unsettled_in_environment", environment=environment) is not None:
        return None
    highest = tx.one("effects.highest_generation", environment=environment, sha=sha)
    if highest is None:
        raise InvariantError(f"no generation could be drawn for {environment}")
    return int(highest["generation"]) + 1, raise_environment(tx, environment)


def raise_environment(tx: Tx, environment: str) -> int:
    """The environment's next token, higher than all before."""
    token = tx.one("effects.raise_environment", environment=environment)
    if token is None:
        raise InvariantError(f"no token could be drawn for {environment}")
    return int(token["epoch"])


def start_unsettled(tx: Tx, environment: str) -> bool:
    """Whether a start or an undo in an environment has been intended and not settled."""
    return tx.one("effects.unsettled_in_environment", environment=environment) is not None


def last_starts(tx: Tx) -> list[Intent]:
    """Of each environment what was last started, or undone, there."""
    return [intent_of(row) for row in tx.all("effects.last_starts")]


def last_start(tx: Tx, environment: str) -> Intent | None:
    """What was last started, or undone, in an environment."""
    row = tx.one("effects.last_start_in_environment", environment=environment)
    return intent_of(row) if row else None


def intent_of(row: Row) -> Intent:
    """A row of the ledger as a value."""
    return Intent(
        effect_id=EffectId(row["id"]),
        task_id=TaskId(row["task_id"]),
        name=EffectName(row["name"]),
        key=row["key"],
        round=row["round"],
        state=EffectState(row["state"]),
        sequence=row["sequence"],
        token=row["token"],
        judged=json.loads(row["evidence"]),
        fact=json.loads(row["fact"]) if row["fact"] else None,
        intent_at=row["intent_at"],
        actor=row["actor"],
        reason=row["reason"] or "",
        cause=Cause(row["cause"]) if row["cause"] else None,
    )
