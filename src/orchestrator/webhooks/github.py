"""GitHub: how it tells of branches, checks and pull requests."""

from orchestrator.domain.ids import Sha
from orchestrator.webhooks import fields
from orchestrator.webhooks.envelope import Envelope
from orchestrator.webhooks.hints import ForgeHandler

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
