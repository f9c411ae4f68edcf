"""The bodies of issues, their comments, events and labels, as the documentation has them, and not all fields."""

from typing import Any

from orchestrator.played.github.bodies import API, user
from orchestrator.played.github.issues import Comment, Event, Issue
from orchestrator.played.github.repository import Pull, Repository

BODY_LIMIT = 65_536  # characters


def issue(base: str, repo: Repository, one: Issue | Pull) -> dict[str, Any]:
    """Of a pull request, too: that has a key which tells so, and its address is another one."""
    is_pull = isinstance(one, Pull)
    html = f"{base}/{repo.full_name}/{'pull' if is_pull else 'issues'}/{one.number}"
    told = {
        "id": 5000 + one.number,
        "number": one.number,
        "url": f"{base}{API}/repos/{repo.full_name}/issues/{one.number}",
        "repository_url": f"{base}{API}/repos/{repo.full_name}",
        "html_url": html,
        "title": one.title,
        "body": one.body,
        "user": user(one.user),
        "labels": [label(repo, name) for name in one.labels] if isinstance(one, Issue) else [],
        "state": one.state,
        "state_reason": one.reason if isinstance(one, Issue) else None,
        "locked": one.locked if isinstance(one, Issue) else False,
        "comments": len(one.comments) if isinstance(one, Issue) else 0,
        "created_at": one.created,
        "updated_at": one.updated,
        "closed_at": one.closed,
        "author_association": "COLLABORATOR" if one.user in repo.rights else "NONE",
    }
    return told | ({"pull_request": {"html_url": html}} if is_pull else {})


def comment(base: str, repo: Repository, of: Issue, one: Comment) -> dict[str, Any]:
    return {
        "id": one.number,
        "url": f"{base}{API}/repos/{repo.full_name}/issues/comments/{one.number}",
        "html_url": f"{base}/{repo.full_name}/issues/{of.number}#issuecomment-{one.number}",
        "issue_url": f"{base}{API}/repos/{repo.full_name}/issues/{of.number}",
        "body": one.body,
        "user": user(one.user),
        "created_at": one.created,
        "updated_at": one.updated,
        "author_association": "COLLABORATOR" if one.user in repo.rights else "NONE",
    }


def event(base: str, repo: Repository, one: Event) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": one.number,
        "url": f"{base}{API}/repos/{repo.full_name}/issues/events/{one.number}",
        "actor": user(one.actor) if one.actor else None,  # an account that is gone
        "event": one.kind,
        "commit_id": one.commit,
        "commit_url": None,
        "created_at": one.at,
    }
    if one.label is not None:
        told["label"] = {"name": one.label, "color": label(repo, one.label)["color"]}
    return told | ({"state_reason": one.reason} if one.kind == "closed" else {})


def label(repo: Repository, name: str) -> dict[str, Any]:
    known = repo.issues.labels[name.lower()]
    return {"id": 9000 + len(known["name"]), "default": False, **known}


def delivery(base: str, repo: Repository, about: dict[str, Any]) -> dict[str, Any]:
    """What is delivered of an issue, or of a comment, beside what every delivery tells."""
    told: dict[str, Any] = {"action": about["action"], "issue": issue(base, repo, about["issue"])}
    if "comment" in about:
        told["comment"] = comment(base, repo, about["issue"], about["comment"])
    if about.get("label") is not None:
        told["label"] = label(repo, about["label"])
    return told
