"""Gitea and Forgejo: how they tell of branches, checks and pull requests."""

from orchestrator.domain.ids import Sha
from orchestrator.webhooks import fields
from orchestrator.webhooks.envelope import Envelope
from orchestrator.webhooks.hints import ForgeHandler

CHECKS = frozenset({"status", "workflow_run", "workflow_job"})
ACTION_RUN = "action_run_"  # Forgejo's: success, failure, recover


class GiteaHandler(ForgeHandler):
    """Deliveries of either."""

    source = "gitea"
    envelope = Envelope(
        signature=("x-gitea-signature", "x-forgejo-signature"),
        kind=("x-gitea-event-type", "x-forgejo-event-type", "x-gitea-event", "x-forgejo-event"),
        delivery=("x-gitea-delivery", "x-forgejo-delivery"),
    )
    pulls = frozenset({"pull_request", "pull_request_sync"})
    reviews = frozenset({"pull_request_review_approved", "pull_request_review_rejected"})

    def is_check(self, kind: str) -> bool:
        """Whether a kind tells of a check."""
        return kind in CHECKS or kind.startswith(ACTION_RUN)

    def commit(self, kind: str, payload: object) -> Sha:
        """The commit that a check is about."""
        if kind == "status":
            return Sha(fields.sha(payload, "sha"))
        if kind in CHECKS:
            return Sha(fields.sha(payload, kind, "head_sha"))
        return Sha(fields.sha(payload, "run", "commit_sha"))

    def said(self, kind: str, payload: object) -> tuple[str, str]:
        """A check's name and what it says; one that has not ended says how far it is."""
        if kind == "status":
            return fields.text(payload, "context") or "a check", fields.text(payload, "state")
        if kind in CHECKS:
            name = fields.text(payload, kind, "name") or fields.text(payload, "workflow", "name") or kind
            ended = fields.text(payload, kind, "conclusion")
            return name, ended or fields.text(payload, kind, "status")
        return fields.text(payload, "run", "workflow_id") or "a workflow", kind.removeprefix(ACTION_RUN)
