"""A GitHub whose issues are tickets, and who watches them."""

import json
from dataclasses import dataclass, field
from typing import Any

from orchestrator.config import Secret
from orchestrator.daemons.ticket_watch import TicketWatch
from orchestrator.db import repositories, tasks, tickets
from orchestrator.domain.ids import RepoName
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.operations.deciding import Deciding
from orchestrator.played.github import FakeGitHub
from orchestrator.played.github.issues import Board, Issue
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.http import SystemHttp
from orchestrator.trackers.github_open import GitHubProjects
from orchestrator.webhooks.github import GitHubHandler
from orchestrator.webhooks.github_issues import GitHubIssues
from tests.fixtures_db import Store
from tests.fixtures_git_server import NAME
from tests.fixtures_ownership import ownership
from tests.fixtures_webhooks import Letters

SHOP = RepoName("shop")
BOT, DANA, MALLORY = "orchbot", "dana", "mallory"
EVERY_S, SILENCE_S, ALERT_S = 60.0, 900.0, 300.0


@dataclass
class WatchedIssues:
    """A repository there whose tickets are its issues, and who watches it."""

    store: Store
    server: FakeGitHub
    hooks: bool = True
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.there = self.server.create(*NAME.split("/"))
        self.server.hooks.tell = self._told  # type: ignore[method-assign,assignment]
        self.letters = Letters(self.store, (GitHubHandler(), GitHubIssues()), ownership(self.store))
        desk = Deciding(
            self.store.database,
            entropy=self.store.entropy,
            wake=lambda ids: None,
            why_restored=lambda repo: None,
        )
        self.file = desk.add_task
        with self.store.database.write() as tx:
            at = repositories.Repository(SHOP, "github", f"{self.server.url}/{NAME}", "SHOP")
            repositories.add(tx, at)
        self.open()
        self.projects.connect(SHOP)

    def _told(self, event: str, payload: dict[str, Any], more: object = ()) -> None:
        self.told.append((event, json.loads(json.dumps(payload))))

    def open(self) -> None:
        """Begin, or begin another life."""
        clock = self.store.clock
        self.limits = Limits(clock)
        self.projects = GitHubProjects(
            self.store.database,
            self.server.url,
            Secret(self.server.token),
            frozenset({"orch"}),
            SystemHttp(),
            clock,
            self.limits,
        )
        self.watch = TicketWatch(
            self.store.database,
            self.projects,
            self.letters.receiver,
            self.file,
            interval_s=EVERY_S,
            silence_s=SILENCE_S if self.hooks else None,
            alert_s=ALERT_S,
            clock=clock,
        )

    @property
    def board(self) -> Board:
        return self.there.issues

    def run(self, after_s: float = EVERY_S) -> dict[str, int]:
        """Let time pass, read, and deal with what was read."""
        self.store.clock.advance(after_s)
        counts = self.watch.run_once()
        self.letters.run()
        return counts

    def hook(self) -> None:
        """Deliver what the server's webhooks would tell, in any order: the last first."""
        while self.told:
            self.letters.send("github", *self.told.pop())
        self.letters.run()

    def taken(self, *labels: str) -> tuple[Issue, Task]:
        issue = self.board.file("Add totals", *(labels or ("orch",)), body="Sum.", by=DANA)
        self.run()
        return issue, self.task(issue)

    def task(self, issue: Issue) -> Task:
        found = self.task_of(issue)
        assert found is not None
        return found

    def task_of(self, issue: Issue) -> Task | None:
        with self.store.database.read() as tx:
            return tasks.newest_by_ticket(tx, "github", f"{SHOP}#{issue.number}")

    def waits(self, stage: Stage = Stage.ANALYSIS) -> tuple[Issue, Task]:
        """An issue whose task waits for a person."""
        issue, task = self.taken()
        self.store.move(task.id, stage)
        with self.store.database.write() as tx:
            tasks.set_branch(tx, task.id, f"orch/{task.work_item}", "a" * 40)  # type: ignore[arg-type]
            tasks.hold(tx, task.id, Hold.PERSON, "waits")
        self.store.clock.advance(1)
        self.told.clear()
        return issue, self.task(issue)

    def words(self, task: Task) -> list[tuple[str, str]]:
        return [(word.signal.kind, word.signal.person) for word in self.letters.words(task)]

    def answers(self) -> list[str]:
        rows = self.store.rows("SELECT payload FROM outbox WHERE kind = 'tracker.comment' ORDER BY id")
        return [json.loads(row["payload"])["text"] for row in rows]

    def alerts(self) -> list[str]:
        rows = self.store.rows("SELECT payload FROM outbox WHERE kind = 'alert' ORDER BY id")
        return [json.loads(row["payload"])["text"] for row in rows]

    def known(self) -> tickets.TrackerProject:
        with self.store.database.read() as tx:
            found = tickets.project_of(tx, SHOP)
        assert found is not None
        return found
