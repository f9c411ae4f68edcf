"""How this server signs and names what it delivers."""

import hashlib
import hmac

from orchestrator.played.common.hooks import Delivery

EVENTS = (
    *("push", "pull_request", "pull_request_review", "status", "check_run"),
    *("issues", "issue_comment", "ping"),
)


def headers(one: Delivery) -> dict[str, str]:
    key = one.hook.secret.encode()
    return {
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/f4k3d00",
        "X-GitHub-Event": one.event,
        "X-GitHub-Delivery": one.guid,
        "X-GitHub-Hook-ID": str(one.hook.number),
        "X-GitHub-Hook-Installation-Target-Type": "repository",
        "X-Hub-Signature": "sha1=" + hmac.digest(key, one.body, hashlib.sha1).hex(),
        "X-Hub-Signature-256": "sha256=" + hmac.digest(key, one.body, hashlib.sha256).hex(),
    }
