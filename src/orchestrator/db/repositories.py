"""The repositories this installation delivers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.db.database import Row, Tx
from orchestrator.domain.errors import NotFound
from orchestrator.domain.ids import RepoName, WorkItem


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a repository's code lives and how its work items are numbered."""

    name: RepoName
    forge: str
    location: str
    prefix: str
    left_at: str | None = None  # since when no ticket of it is taken any more


def add(tx: Tx, repository: Repository) -> bool:
    """Register a repository; False where the name is taken."""
    return (
        tx.execute(
            "repositories.add",
            name=repository.name,
            forge=repository.forge,
            location=repository.location,
            prefix=repository.prefix,
        )
        == 1
    )


def get(tx: Tx, name: str) -> Repository:
    """One repository.

    :raises NotFound: it is not registered.
    """
    row = tx.one("repositories.get", name=name)
    if row is None:
        raise NotFound(
            f"The repository {name!r} is not registered.", hint="`orch init` in its checkout registers it."
        )
    return _repository(row)


def all_repositories(tx: Tx) -> list[Repository]:
    """Every registered repository."""
    return [_repository(row) for row in tx.all("repositories.all")]


def by_address(tx: Tx, forge: str, addresses: Sequence[str]) -> Repository | None:
    """The repository that lies at one of these addresses at a forge; a local one may be shown by any."""
    row = tx.one("repositories.by_address", forge=forge, addresses=json.dumps(addresses))
    return _repository(row) if row else None


def move(tx: Tx, known: Repository, location: str) -> bool:
    """Say that a repository lies elsewhere now; False where it does not lie any more where it was known to."""
    return tx.execute("repositories.move", name=known.name, known=known.location, location=location) == 1


def leave(tx: Tx, name: RepoName) -> bool:
    """From now on no ticket of a repository is taken; False where that is so already."""
    return tx.execute("repositories.leave", name=name) == 1


def come_back(tx: Tx, name: RepoName) -> bool:
    """Tickets are taken again; False where they were all along."""
    return tx.execute("repositories.come_back", name=name) == 1


def idle(tx: Tx) -> set[RepoName]:
    """Those that were left, and have no task that goes on: nothing is done for them."""
    return {RepoName(row["name"]) for row in tx.all("repositories.idle")}


def next_work_item(tx: Tx, name: RepoName) -> WorkItem:
    """Draw the repository's next number, such as ``ORCH-114``.

    :raises NotFound: it is not registered.
    """
    row = tx.one("repositories.next_number", name=name)
    if row is None:
        raise NotFound(
            f"The repository {name!r} is not registered.", hint="`orch init` in its checkout registers it."
        )
    return WorkItem(f"{row['prefix']}-{row['number']}")


def _repository(row: Row) -> Repository:
    return Repository(RepoName(row["name"]), row["forge"], row["location"], row["prefix"], row["left_at"])
