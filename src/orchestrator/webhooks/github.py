"""GitHub: how it tells of branches, checks and pull requests, and of issues.

Of an issue a webhook is a hint that has it read, where tickets are issues; who says what is found there
(:mod:`~orchestrator.webhooks.github_issues`).
"""

from orchestrator.db import tasks, tickets
from orchestrator.db.database import Tx
from orchestrator.db.inbox import Delivery
from orchestrator.domain.ids import Sha
from orchestrator.domain.task import Task
from orchestrator.webhooks import fields
from orchestrator.webhooks.asking import have_read
from orchestrator.webhooks.envelope import Envelope
from orchestrator.webhooks.handler import Handled
from orchestrator.webhooks.hints import NOTHING, ForgeHandler

ISSUES = frozenset({"issues", "issue_comment"})
CHECKS = frozenset({"check_run", "check_suite", "workflow_run", "workflow_job"})


class GitHubHandler(ForgeHandler):
    """Deliveries of a webhook of a repository or an organisation. A branch that is removed comes as a push."""

    source = "github"
    envelope = Envelope(
        signature=("x-hub-signature-256",),
        kind=("x-github-event",),
        delivery=("x-github-delivery",),
        signature_prefix="sha256=",
    )
    pulls = frozenset({"pull_request"})
    reviews = frozenset({"pull_request_review"})

    def task_of(self, tx: Tx, kind: str, payload: object) -> Task | None:
        """By issue, or as every forge's webhook."""
        if kind not in ISSUES:
            return super().task_of(tx, kind, payload)
        repo, number = self.repository(tx, payload), fields.at(payload, "issue", "number")
        if repo is None or not isinstance(number, int):
            return None
        return tasks.newest_by_ticket(tx, self.source, f"{repo}#{number}")

    def handle(self, tx: Tx, delivery: Delivery, task: Task | None) -> Handled:
        """See :class:`~orchestrator.webhooks.handler.WebhookHandler`."""
        if delivery.kind not in ISSUES:
            return super().handle(tx, delivery, task)
        repo = self.repository(tx, delivery.payload)
        place = tickets.project_of(tx, repo) if repo is not None else None
        if place is None or place.tracker != self.source:
            return NOTHING  # they are no tickets of ours
        fields.number(delivery.payload, "issue", "number")
        if fields.at(delivery.payload, "issue", "pull_request") is not None:
            return NOTHING
        sender = fields.at(delivery.payload, "sender", "id")
        return have_read(tx, place, task, ours=place.our_user is not None and str(sender) == place.our_user)

    def is_check(self, kind: str) -> bool:
        """Whether a kind tells of a check."""
        return kind == "status" or kind in CHECKS

    def commit(self, kind: str, payload: object) -> Sha:
        """The commit that a check is about."""
        return Sha(fields.sha(payload, *(["sha"] if kind == "status" else [kind, "head_sha"])))

    def said(self, kind: str, payload: object) -> tuple[str, str]:
        """A check's name and what it says; one that has not ended says how far it is."""
        if kind == "status":
            return fields.text(payload, "context") or "a check", fields.text(payload, "state")
        name = fields.text(payload, kind, "name") or fields.text(payload, kind, "app", "name") or kind
        ended = fields.text(payload, kind, "conclusion")
        return name, ended or fields.text(payload, kind, "status")
