"""Leases, epochs and processes: the rows that ownership rests on (DESIGN §5)."""

import re
from dataclasses import dataclass, field
from typing import Any

from orchestrator.db.database import Row, Tx
from orchestrator.domain.errors import LostRace
from orchestrator.domain.ids import BootId, TaskId
from orchestrator.domain.lease import BELIEVABLE, Lease
from orchestrator.runtime.process import ProcessIdentity

_WHOLE = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """``transition_lease`` as it stands; anything may be in it, for people and older versions write it too."""

    task_id: TaskId
    owner: str
    owner_pid: int | None
    owner_boot_id: BootId | None
    run_id: int | None
    stage: str | None
    acquired_at: str
    work_item: str | None  # None: there is no such task
    repo: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One row of ``processes``; ``silent``: no heartbeat for longer than its TTL, by the database's clock."""

    boot_id: BootId
    host: str
    identity: ProcessIdentity
    role: str
    switches: str
    heartbeat_at: str
    silent: bool = field(compare=False)  # follows from the heartbeat and the time


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as it was found. It is judged outside of any transaction and taken over only if all of it still is so."""

    row: LeaseRow
    epoch: int
    process: ProcessRow | None
    read_at: str = field(compare=False)  # by the database's clock


@dataclass(frozen=True, slots=True)
class FallenBehind:
    """An open task with a lower epoch than what was done for it."""

    task_id: TaskId
    epoch: int
    seen: int


@dataclass(frozen=True, slots=True)
class Beyond:
    """An open task at an epoch that is not believed; ``seen``: the last in its story that is."""

    task_id: TaskId
    epoch: int
    seen: int


def lock_epoch(tx: Tx, task_id: TaskId) -> int | None:
    """The task's epoch, locked until the transaction ends: the first statement of every transition (law 2). In a
    snapshot (``read``) there is nothing to lock: it is only read."""
    row = tx.one("leases.epoch", task_id=task_id)
    return int(row["epoch"]) if row else None


def check(tx: Tx, lease: Lease) -> None:
    """Lock the epoch row and see that the lease still is the newest thing that happened to the task.

    :raises LostRace: somebody else has acquired the task or moved it.
    """
    epoch = lock_epoch(tx, lease.task_id)
    if epoch != lease.epoch:
        raise LostRace(
            f"task {lease.task_id} is at epoch {epoch}, not {lease.epoch}: another actor has moved it"
        )


def acquire(tx: Tx, lease: Lease, pid: int, judged: LeaseRow | None) -> bool:
    """Write the lease iff the row still is the one that was judged (none, or a dead owner's) in all its columns, and
    raise the epoch to ``lease.epoch``: ``acquired_at`` has whole seconds only. False: busy."""
    if not raise_epoch(tx, lease):
        return False
    taken = tx.execute(
        "leases.acquire",
        task_id=lease.task_id,
        owner=lease.owner,
        owner_pid=pid,
        owner_boot_id=lease.boot_id,
        run_id=lease.run_id,
        stage=lease.stage,
        judged_owner=judged.owner if judged else None,
        judged_pid=judged.owner_pid if judged else None,
        judged_boot_id=judged.owner_boot_id if judged else None,
        judged_run_id=judged.run_id if judged else None,
        judged_stage=judged.stage if judged else None,
        judged_acquired_at=judged.acquired_at if judged else None,
    )
    if taken != 1:
        raise LostRace("the lease row changed between judging and taking it")
    return True


def raise_epoch(tx: Tx, lease: Lease) -> bool:
    """Raise the task's epoch to the lease's; False where somebody else was first."""
    return fence(tx, lease.task_id, lease.epoch - 1)


def fence(tx: Tx, task_id: TaskId, epoch: int) -> bool:
    """Raise the task's epoch above the one that was seen: whoever acts under it is refused from now on (law 6)."""
    return tx.execute("leases.raise_epoch", task_id=task_id, epoch=epoch) == 1


def fallen_behind(tx: Tx) -> list[FallenBehind]:
    """Open tasks that are at a lower epoch than their ledger or the end of their story shows."""
    return [
        FallenBehind(TaskId(row["id"]), row["epoch"], max(row["in_ledger"] or 0, row["in_story"] or 0))
        for row in tx.all("leases.fallen_behind")
    ]


def beyond(tx: Tx) -> list[Beyond]:
    """Open tasks at an epoch that is not believed."""
    return [
        Beyond(TaskId(row["id"]), int(row["epoch"]), row["seen"])
        for row in tx.all("leases.beyond", believable=BELIEVABLE)
    ]


def lift(tx: Tx, behind: FallenBehind, epoch: int) -> bool:
    """Have a task go on from a higher epoch; False where it has moved since."""
    return tx.execute("leases.lift_epoch", task_id=behind.task_id, seen=behind.epoch, epoch=epoch) == 1


def remove(tx: Tx, judged: LeaseRow) -> bool:
    """Take a lease away; False where the row is not exactly the judged one any more."""
    return (
        tx.execute(
            "leases.remove",
            task_id=judged.task_id,
            owner=judged.owner,
            pid=judged.owner_pid,
            boot_id=judged.owner_boot_id,
            run_id=judged.run_id,
            stage=judged.stage,
            acquired_at=judged.acquired_at,
        )
        == 1
    )


def release(tx: Tx, lease: Lease) -> bool:
    """Give the lease back; False where it is no longer ours."""
    return tx.execute("leases.release", task_id=lease.task_id, boot_id=lease.boot_id, epoch=lease.epoch) == 1


def get(tx: Tx, task_id: TaskId) -> LeaseRow | None:
    """The task's lease row."""
    row = tx.one("leases.get", task_id=task_id)
    return _lease(row) if row else None


def held(tx: Tx, task_id: TaskId, ttl_s: float) -> Held | None:
    """The task's lease with what it is to be judged by; None where the task is free."""
    row = get(tx, task_id)
    if row is None:
        return None
    owner = process(tx, row.owner_boot_id, ttl_s) if row.owner_boot_id else None
    return Held(row, lock_epoch(tx, task_id) or 0, owner, now(tx))


def now(tx: Tx) -> str:
    """The database's clock."""
    row = tx.one("leases.now")
    return str(row["now"]) if row else ""


def all_rows(tx: Tx) -> list[LeaseRow]:
    """Every lease row, for people."""
    return [_lease(row) for row in tx.all("leases.all")]


def register_process(
    tx: Tx, boot_id: BootId, host: str, me: ProcessIdentity, role: str, switches: str
) -> None:
    """Enter this life of this process."""
    tx.execute(
        "leases.register_process",
        boot_id=boot_id,
        host=host,
        machine_boot_id=me.machine_boot_id,
        pid_namespace=me.pid_namespace,
        pid=me.pid,
        start_ticks=me.start_ticks,
        role=role,
        switches=switches,
    )


def heartbeat(tx: Tx, boot_id: BootId) -> str | None:
    """Say that this process lives: one write per process, not per lease. When that was, by the database's clock; None
    where its row is gone."""
    row = tx.one("leases.heartbeat", boot_id=boot_id)
    return row["heartbeat_at"] if row else None


def forget_process(tx: Tx, boot_id: BootId) -> None:
    """Take a process off the list: at its orderly end, or once nothing names it any more."""
    tx.execute("leases.forget_process", boot_id=boot_id)


def process(tx: Tx, boot_id: BootId, ttl_s: float) -> ProcessRow | None:
    """One process."""
    row = tx.one("leases.process", boot_id=boot_id, ttl_s=ttl_s)
    return _process(row) if row else None


def processes(tx: Tx, ttl_s: float) -> list[ProcessRow]:
    """All processes that have registered and not been forgotten."""
    return [_process(row) for row in tx.all("leases.processes", ttl_s=ttl_s)]


def _lease(row: Row) -> LeaseRow:
    return LeaseRow(
        TaskId(row["task_id"]),
        _text(row["owner"]),
        _number(row["owner_pid"]),
        _text(row["owner_boot_id"]),
        _number(row["run_id"]),
        _text(row["stage"]),
        _text(row["acquired_at"]),
        row["work_item"],
        row["repo"],
    )


def _text(stored: Any) -> Any:
    """The text that bytes are; where they are none, the bytes: such a row can still be judged, shown and removed."""
    try:
        return stored.decode() if isinstance(stored, bytes) else stored
    except UnicodeDecodeError:
        return stored


def _number(stored: Any) -> Any:
    """The number that bytes spell; else as :func:`_text`."""
    found = _text(stored)
    return int(found) if isinstance(found, str) and _WHOLE.fullmatch(found) else found


def _process(row: Row) -> ProcessRow:
    return ProcessRow(
        BootId(row["boot_id"]),
        row["host"],
        ProcessIdentity(row["machine_boot_id"], row["pid_namespace"], row["pid"], row["start_ticks"]),
        row["role"],
        row["switches"],
        row["heartbeat_at"],
        bool(row["silent"]),
    )
