"""Which effects keep failing at their authority, and of which authority a person knows that already (law 4)."""

from dataclasses import dataclass

from orchestrator.db.database import Tx
from orchestrator.db.effects import intent_of
from orchestrator.domain.effect import Intent
from orchestrator.domain.ids import WorkItem


@dataclass(frozen=True, slots=True)
class FailingEffect:
    """An effect that is not settled although it was tried."""

    intent: Intent
    work_item: WorkItem
    since: str
    reason: str


def failing(tx: Tx) -> list[FailingEffect]:
    """All of them, the longest failing first."""
    return [
        FailingEffect(intent_of(row), WorkItem(row["work_item"]), row["failing_since"], row["failure"])
        for row in tx.all("authorities.failing")
    ]


def silent(tx: Tx) -> dict[str, str]:
    """Authorities of which a person has been told, and since when they are silent."""
    return {row["authority"]: row["since"] for row in tx.all("authorities.silent")}


def tell(tx: Tx, authority: str, since: str) -> bool:
    """A person is being told; False where one knows already."""
    return tx.execute("authorities.tell", authority=authority, since=since) == 1


def heard(tx: Tx, authority: str, since: str) -> bool:
    """Nothing is in doubt there any more; False where that has been said already."""
    return tx.execute("authorities.heard", authority=authority, since=since) == 1
