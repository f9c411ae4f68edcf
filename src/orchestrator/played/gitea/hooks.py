"""How this server signs and names what it delivers."""

import hashlib
import hmac

from orchestrator.played.common.hooks import Delivery

KNOWN = frozenset(
    {
        "push",
        "create",
        "delete",
        "pull_request",
        "pull_request_only",
        "pull_request_sync",
        "pull_request_review",
        "status",
    }
    | {"workflow_run", "workflow_job", "issue_comment"}
)  # of the names that may be asked for; others are left out without a word


def headers(one: Delivery) -> dict[str, str]:
    signature = hmac.digest(one.hook.secret.encode(), one.body, hashlib.sha256).hex()
    kept = {f"X-{name}-Delivery": one.guid for name in ("Gitea", "Gogs", "GitHub")}
    kept |= {
        f"X-{name}-{field}": one.event
        for name in ("Gitea", "Gogs", "GitHub")
        for field in ("Event", "Event-Type")
    }
    return {
        "Content-Type": "application/json",
        "User-Agent": "Go-http-client/1.1",
        **kept,
        "X-Gitea-Signature": signature,
        "X-Gogs-Signature": signature,
        "X-Hub-Signature-256": f"sha256={signature}",
        "X-Gitea-Hook-Installation-Target-Type": "repository",
    }
