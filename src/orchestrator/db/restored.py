"""Takes into a restored database what the outside shows of the time since its backup (DESIGN §6).

Counters only rise; rows of effects come in settled, for a probe has shown them.
"""

import json
from collections.abc import Mapping

from orchestrator.db import effects, evidence, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import BootId, RepoName, TaskId, WorkItem
from orchestrator.domain.installation import SeenCandidate
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Task

UNKNOWN_FENCE = (
    "restored"  # its token is not told by the commit, and nothing of ours is merged under it any more
)


def lift_sequence(tx: Tx, sequence: int) -> None:
    """Let the ledger go on above everything that was seen."""
    tx.execute("restored.lift_sequence", sequence=sequence)


def lift_environment(tx: Tx, environment: str, epoch: int) -> None:
    """Let an environment's tokens go on above the highest that its starts have carried."""
    tx.execute("restored.lift_environment", environment=environment, epoch=epoch)


def name_messages_anew(tx: Tx, token: str) -> None:
    """What is sent from now on is taken for nothing that was sent in the time that is lost, whatever its number."""
    tx.execute("restored.name_messages_anew", token=token)


def lift_number(tx: Tx, repo: RepoName, number: int) -> None:
    """Let new work items be numbered above one that was seen."""
    tx.execute("restored.lift_number", repo=repo, number=number)


def add_task(tx: Tx, repo: RepoName, work_item: WorkItem, title: str, task_id: TaskId | None) -> Task:
    """A task of which the backup knew nothing: by what is left of it, in stage *created*."""
    row = tx.one("restored.add_task", task_id=task_id, repo=repo, work_item=work_item, title=title)
    if row is None:
        raise InvariantError(f"{work_item} was not stored")
    tx.execute("tasks.add_epoch", task_id=row["id"])
    return tasks.get(tx, TaskId(row["id"]))


def add_candidate(tx: Tx, task: Task, seen: SeenCandidate) -> Candidate:
    """A candidate that the task has had; later rounds are numbered above it."""
    row = tx.one("restored.free_round", task_id=task.id, round=seen.round)
    if row is None:
        raise InvariantError("no round was found")
    round_, sequence = int(row["round"]), seen.sequence
    if tx.one("restored.sequence_taken", sequence=sequence) is not None:
        sequence, _ = effects.next_sequence(tx)
    candidate = Candidate(
        task.id,
        round_,
        seen.sha,
        seen.tree,
        seen.base_sha,
        seen.head_sha,
        seen.nonce,
        sequence,
        UNKNOWN_FENCE,
    )
    evidence.add_candidate(tx, candidate)
    tx.execute("restored.lift_rounds", task_id=task.id, round=round_)
    return candidate


def add_effect(
    tx: Tx,
    task: Task,
    name: EffectName,
    key: str,
    round: int,
    state: EffectState,
    *,
    token: str,
    judged: Mapping[str, object],
    fact: Mapping[str, object],
    sequence: int | None = None,
) -> bool:
    """An act that has taken place, or was revoked; False where the ledger has it, or its number, already."""
    if sequence is None:
        sequence, _ = effects.next_sequence(tx)
    added = tx.execute(
        "restored.add_effect",
        task_id=task.id,
        name=name,
        key=key,
        round=round,
        state=state,
        sequence=sequence,
        token=token,
        evidence=json.dumps(judged, sort_keys=True),
        fact=json.dumps(fact, sort_keys=True),
    )
    return added == 1


def cancel_queued(tx: Tx, task_id: TaskId, reason: str) -> None:
    """Take back what waits for a worker; what runs goes on, for it is paid for."""
    tx.execute("restored.cancel_queued", task_id=task_id, reason=reason)


def forget_others(tx: Tx, boot_id: BootId) -> None:
    """Leases and processes in the backup are of another life, be it one that goes on beside another copy: nobody else
    has this file open, and whoever it was may not act on the forges any more."""
    tx.execute("restored.forget_leases", boot_id=boot_id)
    tx.execute("restored.forget_processes", boot_id=boot_id)


def accept_trace(tx: Tx, name: str) -> None:
    """Look no more at something outside that cannot be imported."""
    tx.execute("restored.accept_trace", name=name)


def accept_main(tx: Tx, repo: RepoName) -> None:
    """What was merged so far is no longer looked for on main."""
    tx.execute("restored.accept_main", repo=repo)


def next_round(tx: Tx, task_id: TaskId, stage: Stage) -> int:
    """The round that the task will have when it next enters a stage."""
    row = tx.one("restored.next_round", task_id=task_id, stage=stage)
    return int(row["round"]) if row else 1
