"""Lanes: jobs of one repository, stage, agent and priority take turns together, and lanes take turns with each other.

What must hold: every queued job is in its lane, or nobody claims it; what runs is counted by lanes, whoever runs it.
"""

from collections.abc import Sequence

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import JobId, TaskId
from orchestrator.domain.job import UNKNOWN_PROGRAM, JobKind
from orchestrator.domain.shares import Lane


def enter(tx: Tx, task_id: TaskId, job_id: JobId, stage: str, agent: str) -> None:
    """Put a queued job into the lane of what it will start; the lane is made where it is the first there."""
    tx.execute("lanes.add", task_id=task_id, stage=stage, agent=agent)
    tx.execute("lanes.enter", task_id=task_id, job_id=job_id, agent=agent)


def strays(tx: Tx) -> Sequence[Row]:
    """Queued jobs in no lane: of an earlier version that was still at work when this one brought the lanes."""
    return tx.all("lanes.strays")


def take_in(tx: Tx, stray: Row) -> None:
    """Put such a job into a lane; which program an agent's job will start is not known of it."""
    agent = UNKNOWN_PROGRAM if JobKind(stray["kind"]).agent else ""
    enter(tx, stray["task_id"], stray["id"], stray["stage"], agent)


def one_claim_at_a_time(tx: Tx) -> None:
    """Until this transaction ends nobody else claims by limits: what runs is what the claim's statement counts."""
    tx.one("lanes.one_claim_at_a_time")


def served(tx: Tx, lane: int) -> None:
    """Note that a lane has had its turn."""
    tx.execute("lanes.served", lane=lane)


def running(tx: Tx) -> dict[Lane, int]:
    """How many jobs run in each lane, of all processes; priorities together."""
    return {_lane(row): row["jobs"] for row in tx.all("lanes.running")}


def waiting(tx: Tx) -> dict[int, Lane]:
    """The lanes in which something waits, by their numbers."""
    return {row["id"]: _lane(row) for row in tx.all("lanes.waiting")}


def _lane(row: Row) -> Lane:
    return Lane(row["repo"], row["stage"], row["agent"])
