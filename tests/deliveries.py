"""Deliveries as Plane and Gitea send them, with the parts that are read and some that are not."""

from typing import Any

USER = "0b07c0de-0000-4000-8000-000000000001"  # our own user at Plane
ANN = {"id": "a55e55ed-0000-4000-8000-000000000002", "display_name": "ann", "email": "ann@example.org"}
TICKET = "71c4e700-0000-4000-8000-000000000003"
STATES = {
    "Approved": ("5ta7e000-0000-4000-8000-00000000000a", "started"),
    "Confirm Deploy": ("5ta7e000-0000-4000-8000-00000000000b", "started"),
    "In Progress": ("5ta7e000-0000-4000-8000-00000000000c", "started"),
    "Cancelled": ("5ta7e000-0000-4000-8000-00000000000d", "cancelled"),
}
LATER = "2030-01-01T00:00:00.000000Z"
NONE = "0" * 40


def plane_state(
    state: str,
    *,
    at: str = LATER,
    ticket: str = TICKET,
    field: str = "state_id",
    now: str | None = None,
    **actor: str,
) -> dict[str, Any]:
    """The ticket was moved to a state; ``now`` is where Plane's worker found it when it wrote this."""
    value = STATES[state][0]
    name = now or state
    data = _ticket(ticket, at) | {"state": {"id": STATES[name][0], "name": name, "group": STATES[name][1]}}
    return _plane(
        "issue", "updated", data, actor, field=field, new_value=value, old_value=STATES["In Progress"][0]
    )


def plane_comment(
    html: str, *, at: str = LATER, ticket: str = TICKET, action: str = "created", **actor: str
) -> dict[str, Any]:
    data = {"id": "c0", "comment_html": html, "issue": ticket, "created_at": at, "updated_at": at}
    return _plane("issue_comment", action, data, actor)


def plane_deleted(ticket: str = TICKET) -> dict[str, Any]:
    return _plane("issue", "deleted", {"id": ticket}, {})


def plane_edited(field: str = "name", ticket: str = TICKET) -> dict[str, Any]:
    return _plane("issue", "updated", _ticket(ticket, LATER), {}, field=field, new_value="A new name")


def gitea_push(
    branch: str, after: str, *, before: str = NONE, address: str = "/nowhere", **more: Any
) -> dict[str, Any]:
    pushed = {
        "ref": f"refs/heads/{branch}",
        "before": before,
        "after": after,
        "commits": [],
        "pusher": account(),
    }
    return pushed | {"repository": repository(address), "sender": account()} | more


def gitea_status(
    sha: str, state: str, *, context: str = "ci/unit", address: str = "/nowhere"
) -> dict[str, Any]:
    return {
        "sha": sha,
        "state": state,
        "context": context,
        "repository": repository(address),
        "sender": account(),
    }


def gitea_pull(
    action: str,
    number: int,
    branch: str,
    *,
    head: str = "f" * 40,
    merged: bool = False,
    at: str = "2026-02-03T09:00:00Z",
    address: str = "/nowhere",
    head_repo: int = 7,
) -> dict[str, Any]:
    pull = {
        "number": number,
        "state": "closed" if action == "closed" else "open",
        "merged": merged,
        "head": {"ref": branch, "label": branch, "sha": head, "repo_id": head_repo},
        "base": {"ref": "main", "repo_id": 7},
        "updated_at": at,
    }
    return {
        "action": action,
        "number": number,
        "pull_request": pull,
        "repository": repository(address),
        "sender": account(),
    }


def repository(address: str) -> dict[str, Any]:
    return {
        "id": 7,
        "owner": account("acme"),
        "full_name": "acme/shop",
        "clone_url": address,
        "default_branch": "main",
        "size": 96,
    }


def account(login: str = "dana") -> dict[str, Any]:
    return {"id": 4, "login": login, "avatar_url": "", "last_login": "2026-02-03T09:00:00Z"}


def _ticket(ticket: str, at: str) -> dict[str, Any]:
    return {"id": ticket, "sequence_id": 12, "project": "p", "name": "Add totals", "updated_at": at}


def _plane(
    event: str, action: str, data: dict[str, Any], actor: dict[str, str], **activity: Any
) -> dict[str, Any]:
    return {
        "event": event,
        "action": action,
        "webhook_id": "hook-1",
        "workspace_id": "w",
        "data": data,
        "activity": {
            "field": None,
            "new_value": None,
            "old_value": None,
            **activity,
            "actor": {**ANN, **actor},
        },
    }
