"""What gates rest on: passed steps, check results, candidates, the orchestrator's own commits, kept documents."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import Sha, TaskId
from orchestrator.domain.job import JobKind
from orchestrator.domain.task import Candidate, Task


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How the repository's own checks ended on one exact SHA."""

    kind: JobKind
    sha: Sha
    passed: bool
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class KeptDocument:
    """A document kept with the task, not in git (14-staging-log)."""

    name: str
    round: int
    subject: str
    content: bytes


def mark_step(tx: Tx, task: Task, step: str, evidence: Mapping[str, object] | None = None) -> None:
    """Record that a step of this round is behind the task; a second mark changes nothing."""
    tx.execute(
        "evidence.mark_step",
        task_id=task.id,
        stage=task.stage,
        round=task.round,
        step=step,
        evidence=json.dumps(evidence or {}, ensure_ascii=False, sort_keys=True, default=str),
    )


def forget_step(tx: Tx, task: Task, step: str) -> None:
    """Have a step of this round done again: what it rested on has changed."""
    tx.execute("evidence.forget_step", task_id=task.id, stage=task.stage, round=task.round, step=step)


def steps_of_round(tx: Tx, task: Task) -> dict[str, Mapping[str, object]]:
    """Marked steps of the task's stage and round with their evidence."""
    rows = tx.all("evidence.steps_of_round", task_id=task.id, stage=task.stage, round=task.round)
    return {row["step"]: json.loads(row["evidence"]) for row in rows}


def marks(tx: Tx, task_id: TaskId, prefix: str) -> list[str]:
    """What follows a prefix in the names of the task's marks, of any stage and round."""
    rows = tx.all("evidence.marks", task_id=task_id, prefix=prefix)
    return [str(row["step"]).removeprefix(prefix) for row in rows]


def passed(tx: Tx, task_id: TaskId, round: int, step: str) -> bool:
    """Whether a step was marked in a round of the task, whatever stage it is in now."""
    return tx.one("evidence.passed", task_id=task_id, round=round, step=step) is not None


def record_check(tx: Tx, task: Task, result: CheckResult) -> None:
    """Store a check's result for the task's stage and round."""
    tx.execute(
        "evidence.record_check",
        task_id=task.id,
        stage=task.stage,
        round=task.round,
        kind=result.kind,
        sha=result.sha,
        verdict="pass" if result.passed else "fail",
        detail=json.dumps(result.detail, ensure_ascii=False, sort_keys=True, default=str),
    )


def check_result(tx: Tx, task: Task, kind: JobKind) -> CheckResult | None:
    """A check's result in the task's stage and round."""
    row = tx.one("evidence.check_result", task_id=task.id, stage=task.stage, round=task.round, kind=kind)
    if row is None:
        return None
    return CheckResult(kind, Sha(row["sha"]), row["verdict"] == "pass", json.loads(row["detail"]))


def add_candidate(tx: Tx, candidate: Candidate) -> None:
    """Enter M into the ledger, with its nonce and fence, before anything may merge it."""
    tx.execute(
        "evidence.add_candidate",
        task_id=candidate.task_id,
        round=candidate.round,
        sha=candidate.sha,
        tree=candidate.tree,
        base_sha=candidate.base_sha,
        head_sha=candidate.head_sha,
        nonce=candidate.nonce,
        sequence=candidate.sequence,
        fence=candidate.fence,
    )


def candidates(tx: Tx, task_id: TaskId) -> list[Candidate]:
    """Every candidate the task ever had, oldest first: a merge is looked for under all their nonces (H13)."""
    return [_candidate(row) for row in tx.all("evidence.candidates", task_id=task_id)]


def candidate_of(tx: Tx, task_id: TaskId) -> Candidate | None:
    """The task's M: the one that was merged; before that its newest. None where it never had one."""
    row = tx.one("evidence.candidate_of", task_id=task_id)
    return _candidate(row) if row else None


def task_of_candidate(tx: Tx, sha: Sha) -> TaskId | None:
    """The task whose candidate a commit is."""
    row = tx.one("evidence.task_of_candidate", sha=sha)
    return TaskId(row["task_id"]) if row else None


def add_own_commit(tx: Tx, task: Task, sha: Sha) -> None:
    """Remember a commit that the orchestrator itself made on the task's branch."""
    tx.execute("evidence.add_own_commit", repo=task.repo, sha=sha, task_id=task.id)


def own_commits(tx: Tx, task_id: TaskId) -> frozenset[Sha]:
    """The orchestrator's own commits on a task's branch."""
    return frozenset(Sha(row["sha"]) for row in tx.all("evidence.own_commits", task_id=task_id))


def keep_document(tx: Tx, task: Task, name: str, subject: str, content: bytes) -> None:
    """Keep a document with the task's round."""
    tx.execute(
        "evidence.keep_document",
        task_id=task.id,
        name=name,
        round=task.round,
        subject=subject,
        content=content,
    )


def document(tx: Tx, task: Task, name: str) -> KeptDocument | None:
    """A kept document of the task's round."""
    row = tx.one("evidence.document", task_id=task.id, name=name, round=task.round)
    return KeptDocument(row["name"], row["round"], row["subject"], bytes(row["content"])) if row else None


def documents(tx: Tx, task_id: TaskId) -> list[KeptDocument]:
    """All kept documents of a task."""
    return [
        KeptDocument(row["name"], row["round"], row["subject"], bytes(row["content"]))
        for row in tx.all("evidence.documents", task_id=task_id)
    ]


def _candidate(row: Row) -> Candidate:
    return Candidate(
        task_id=TaskId(row["task_id"]),
        round=row["round"],
        sha=Sha(row["sha"]),
        tree=Sha(row["tree"]),
        base_sha=Sha(row["base_sha"]),
        head_sha=Sha(row["head_sha"]),
        nonce=row["nonce"],
        sequence=row["sequence"],
        fence=row["fence"],
    )
