"""Workers' state folders. What lies in one nobody else sees; once nothing was heard of it for too long it is lost."""

from dataclasses import dataclass, field

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import Home


@dataclass(frozen=True, slots=True)
class WorkerHome:
    """One row of ``homes``; host and folder are for people."""

    home: Home
    host: str
    folder: str
    seen_at: str
    lost: bool = field(compare=False)  # silent for so long that nothing in it runs any more
    silent: bool = field(compare=False)  # for as long as was asked for

    def __str__(self) -> str:
        return f"{self.folder} on {self.host}, last heard of at {self.seen_at}"


def enter(tx: Tx, home: Home, *, host: str, folder: str, lost_after_s: float) -> None:
    """Say that a process of this home lives. Once it has been silent for ``lost_after_s`` seconds, nothing that was
    begun there runs any more."""
    tx.execute("homes.enter", home=home, host=host, folder=folder, lost_after_s=lost_after_s)


def claim(tx: Tx, home: Home, *, host: str, folder: str, lost_after_s: float) -> None:
    """Say that a folder is a worker's, before it is known whether that may begin. It is no sign of life: a home that is
    known stays as it is."""
    tx.execute("homes.claim", home=home, host=host, folder=folder, lost_after_s=lost_after_s)


def seen(tx: Tx, home: Home) -> None:
    """A sign of life."""
    tx.execute("homes.seen", home=home)


def forget(tx: Tx, home: Home) -> None:
    """It is no worker's home after all."""
    tx.execute("homes.forget", home=home)


def get(tx: Tx, home: Home, *, ttl_s: float = 0.0) -> WorkerHome | None:
    """One home, silent after ``ttl_s`` seconds; None where no worker has ever said that it has it."""
    row = tx.one("homes.get", home=home, ttl_s=ttl_s)
    return _home(row) if row else None


def all_homes(tx: Tx) -> list[WorkerHome]:
    """Every home, the last one heard of first."""
    return [_home(row) for row in tx.all("homes.all")]


def _home(row: Row) -> WorkerHome:
    return WorkerHome(
        Home(row["home"]), row["host"], row["folder"], row["seen_at"], bool(row["lost"]), bool(row["silent"])
    )
