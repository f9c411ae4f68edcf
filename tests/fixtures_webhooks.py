"""The inbox over a database: what arrives, who deals with it, and what comes of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.daemons.inbox import Inbox
from orchestrator.db import mail, tasks
from orchestrator.db.mail import WaitingSignal
from orchestrator.domain.ids import TaskId
from orchestrator.domain.task import Hold, Task
from orchestrator.observability.telemetry import Telemetry
from orchestrator.runtime.waypoints import NoWaypoints, Waypoints
from orchestrator.transition_lease import Ownership
from orchestrator.webhooks.gitea import GiteaHandler
from orchestrator.webhooks.github import GitHubHandler
from orchestrator.webhooks.handler import WebhookHandler
from orchestrator.webhooks.plane import PlaneHandler, PlaneStates
from orchestrator.webhooks.receiving import Receiver
from tests.deliveries import USER
from tests.fixtures_db import Store
from tests.fixtures_ownership import ownership


@dataclass
class Letters:
    """What a test sends, and what it sees."""

    store: Store
    handlers: tuple[WebhookHandler, ...]
    ownership: Ownership
    telemetry: Telemetry = field(default_factory=Telemetry)
    woken: list[TaskId] = field(default_factory=list)
    arrived: int = 0
    waypoints: Waypoints = field(default_factory=NoWaypoints)
    _ids: int = 0

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Begin, or begin another life."""
        self.receiver = Receiver(
            self.store.database,
            self.handlers,
            arrived=self._arrived,
            wake=self._wake,
            telemetry=self.telemetry,
        )
        self.daemon = Inbox(
            self.store.database,
            self.ownership,
            self.handlers,
            interval_s=60.0,
            wake=self._wake,
            entropy=self.store.entropy,
            waypoints=self.waypoints,
        )

    def send(self, source: str, kind: str, payload: Any, *, delivery: str | None = "") -> int | None:
        """Deliver under a new id, unless one is given."""
        self._ids += 1
        return self.receiver.receive(
            source, kind, f"d-{self._ids}" if delivery == "" else delivery, payload
        ).inbox_id

    def plane(self, payload: dict[str, Any]) -> int:
        return self._stored(self.send("plane", payload["event"], payload))

    def gitea(self, kind: str, payload: Any) -> int:
        return self._stored(self.send("gitea", kind, payload))

    def github(self, kind: str, payload: Any) -> int:
        return self._stored(self.send("github", kind, payload))

    def run(self) -> dict[str, int]:
        return self.daemon.run_once()

    def outcome(self, inbox_id: int) -> str | None:
        with self.store.database.read() as tx:
            return mail.outcome_of(tx, inbox_id)

    def words(self, task: Task) -> list[WaitingSignal]:
        """What the engine will find."""
        with self.store.database.read() as tx:
            return mail.waiting_signals(tx, task.id)

    def told(self, task: Task) -> list[str]:
        """The task's story: the types of its events."""
        rows = self.store.rows("SELECT type FROM events WHERE task_id = :id ORDER BY id", {"id": task.id})
        return [row["type"] for row in rows]

    def messages(self) -> list[str]:
        return [row["payload"] for row in self.store.rows("SELECT payload FROM outbox ORDER BY id")]

    def delivery(self, inbox_id: int) -> Any:
        [row] = self.store.rows("SELECT * FROM deliveries WHERE inbox_id = :id", {"id": inbox_id})
        return row

    def on_show(self, task: Task, head: str = "a" * 40) -> Task:
        """The task waits for a person and shows a commit."""
        with self.store.database.write() as tx:
            tasks.set_branch(tx, task.id, f"orch/{task.work_item}-say-hello", head)  # type: ignore[arg-type]
            tasks.hold(tx, task.id, Hold.PERSON, "waits for a person")
            return tasks.get(tx, task.id)

    def _stored(self, inbox_id: int | None) -> int:
        assert inbox_id is not None
        return inbox_id

    def _arrived(self) -> None:
        self.arrived += 1

    def _wake(self, ids: Iterable[TaskId]) -> None:
        self.woken += ids


def letters_over(store: Store, *, user: str = USER, approved: str = "approved") -> Letters:
    """``approved`` is the one state of a ticket that means so, by name or id."""
    states = PlaneStates(frozenset({approved}), frozenset({"confirm deploy"}))
    return Letters(
        store, (PlaneHandler(user=user, states=states), GiteaHandler(), GitHubHandler()), ownership(store)
    )


@pytest.fixture
def letters(store: Store) -> Letters:
    return letters_over(store)
