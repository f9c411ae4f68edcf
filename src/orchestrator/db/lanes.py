"""Lanes: jobs of one repository, stage, agent and priority take turns together, and lanes take turns with each other.

What must hold: every queued job is in its lane, or nobody claims it; what runs is counted by lanes, whoever runs it.
"""

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import JobId, TaskId
from orchestrator.domain.shares import Lane


def enter(tx: Tx, task_id: TaskId, job_id: JobId, stage: str, agent: str) -> None:
    """Put a queued job into the lane of what it will start; the lane is made where it is the first there."""
    tx.execute("lanes.add", task_id=task_id, stage=stage, agent=agent)
    tx.execute("lanes.enter", task_id=task_id, job_id=job_id, agent=agent)


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
