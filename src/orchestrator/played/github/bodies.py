"""The bodies of answers and of deliveries, field by field as the documentation has them, and not all fields."""

from typing import Any

from orchestrator.played.github.repository import ZERO, Pull, Repository

API = "/api/v3"


def user(login: str) -> dict[str, Any]:
    return {"login": login, "id": sum(login.encode()), "type": "User", "avatar_url": "", "site_admin": False}


def error(status: int, message: str, *errors: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"message": message, "documentation_url": "https://docs.github.com/rest"}
    return told | {"status": str(status)} | ({"errors": list(errors)} if errors else {})


def repository(base: str, repo: Repository, login: str | None = None) -> dict[str, Any]:
    html = f"{base}/{repo.full_name}"
    told = {
        "id": repo.id,
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
        "owner": user(repo.owner),
        "html_url": html,
        "url": f"{base}{API}/repos/{repo.full_name}",
        "clone_url": f"{html}.git",
        "ssh_url": f"git@fake.invalid:{repo.full_name}.git",
        "fork": False,
        "has_issues": repo.issues.on,
        "default_branch": repo.default_branch,
        "archived": repo.archived,
        "disabled": False,
        "visibility": "private" if repo.private else "public",
    }
    if login is None:
        return told
    right = repo.rights.get(login, "")
    merging = {
        "allow_merge_commit": repo.merge_commits,
        "allow_squash_merge": True,
        "allow_rebase_merge": True,
    }
    return (
        told
        | merging
        | {
            "permissions": {
                "admin": right == "admin",
                "push": right in ("admin", "write"),
                "pull": right != "",
            }
        }
    )


def pull_request(base: str, repo: Repository, pull: Pull, *, listed: bool = False) -> dict[str, Any]:
    html = f"{base}/{repo.full_name}/pull/{pull.number}"
    told = {
        "id": 1000 + pull.number,
        "number": pull.number,
        "url": f"{base}{API}/repos/{repo.full_name}/pulls/{pull.number}",
        "html_url": html,
        "state": pull.state,
        "title": pull.title,
        "body": pull.body,
        "user": user(pull.user),
        "draft": False,
        "labels": [],
        "created_at": pull.created,
        "updated_at": pull.updated,
        "closed_at": pull.closed,
        "merged_at": pull.merged_at,
        "merge_commit_sha": pull.merge_commit,
        "head": _end(base, repo, pull.branch, pull.head),
        "base": _end(base, repo, pull.base, repo.branch(pull.base) or ZERO),
    }
    if listed:  # a list says less
        return told
    synced = repo.branch(pull.branch) == pull.head
    return told | {
        "merged": pull.merged,
        "mergeable": True if synced else None,
        "mergeable_state": "clean" if synced else "unknown",
        "merged_by": user(pull.merged_by) if pull.merged_by else None,
        "comments": 0,
        "commits": 1,
    }


def _end(base: str, repo: Repository, ref: str, sha: str) -> dict[str, Any]:
    return {
        "label": f"{repo.owner}:{ref}",
        "ref": ref,
        "sha": sha,
        "user": user(repo.owner),
        "repo": repository(base, repo),
    }


def branch(base: str, repo: Repository, name: str, sha: str) -> dict[str, Any]:
    return {
        "name": name,
        "commit": {"sha": sha, "url": f"{base}{API}/repos/{repo.full_name}/commits/{sha}"},
        "protected": name in repo.rules,
        "protection": {"enabled": name in repo.rules},
    }


def rules(repo: Repository, name: str) -> list[dict[str, Any]]:
    known = repo.rules.get(name)
    if known is None:
        return []
    source = {"ruleset_source_type": "Repository", "ruleset_source": repo.full_name, "ruleset_id": 1}
    found: list[dict[str, Any]] = [{"type": kind, **source} for kind in known.others]
    if known.pull_request:
        parameters: dict[str, Any] = {
            "required_approving_review_count": known.approvals,
            "dismiss_stale_reviews_on_push": True,
        }
        found.append({"type": "pull_request", "parameters": parameters, **source})
    if known.checks:
        checks = [{"context": check} for check in known.checks]
        parameters = {"required_status_checks": checks, "strict_required_status_checks_policy": False}
        found.append({"type": "required_status_checks", "parameters": parameters, **source})
    return found


def review(
    base: str, repo: Repository, pull: Pull, number: int, login: str, asked: dict[str, Any]
) -> dict[str, Any]:
    states = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}
    return {
        "id": number,
        "user": user(login),
        "body": asked.get("body", ""),
        "state": states[asked["event"]],
        "commit_id": asked.get("commit_id") or pull.head,
        "submitted_at": pull.updated,
        "html_url": f"{base}/{repo.full_name}/pull/{pull.number}#pullrequestreview-{number}",
    }


def status(number: int, login: str, asked: dict[str, Any], at: str) -> dict[str, Any]:
    return {
        "id": number,
        "state": asked["state"],
        "context": asked.get("context", "default"),
        "description": asked.get("description"),
        "target_url": asked.get("target_url"),
        "creator": user(login),
        "created_at": at,
        "updated_at": at,
    }


def run(base: str, repo: Repository, sha: str, number: int, asked: dict[str, Any], at: str) -> dict[str, Any]:
    """A run of a check; ``app`` says which program has made it."""
    html = f"{base}/{repo.full_name}/runs/{number}"
    done = asked.get("conclusion") is not None
    output = {"title": None, "summary": None, "text": None, **asked.get("output", {})}
    output["annotations_count"] = len(output.pop("annotations", []))
    return {
        "id": number,
        "name": asked["name"],
        "head_sha": sha,
        "status": "completed" if done else asked.get("status", "queued"),
        "conclusion": asked.get("conclusion"),
        "html_url": html,
        "details_url": asked.get("details_url", html),
        "started_at": at,
        "completed_at": at if done else None,
        "output": output,
        "check_suite": {"id": 1},
        "app": {"id": asked.get("app", 15368), "slug": "github-actions"},
        "pull_requests": [],
    }


def remark(pull: Pull, review: int, number: int, asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": number,
        "pull_request_review_id": review,
        "user": pull.reviews[review - 1]["user"],
        "body": asked["body"],
        "path": asked["path"],
        "line": asked.get("line"),
        "original_line": asked.get("line"),
        "commit_id": pull.head,
    }


# -- deliveries ----------------------------------------------------------------------------------------------------


def delivery(event: str, base: str, repo: Repository, about: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "repository": repository(base, repo),
        "sender": user(about.get("by") or "somebody"),
    }
    if event == "pull_request":
        pull = about["pull"]
        return {
            "action": about["action"],
            "number": pull.number,
            "pull_request": pull_request(base, repo, pull),
            **told,
        }
    if event == "push":
        before, after = about["before"], about["after"]
        return {
            "ref": f"refs/heads/{about['branch']}",
            "before": before,
            "after": after,
            "created": before == ZERO,
            "deleted": after == ZERO,
            "forced": False,
            "base_ref": None,
            "compare": f"{base}/{repo.full_name}/compare/{before[:12]}...{after[:12]}",
            "commits": [],
            "head_commit": None,
            "pusher": {"name": about.get("by") or "somebody", "email": "somebody@fake.invalid"},
            **told,
        }
    if event == "pull_request_review":
        pull = about["pull"]
        shown = pull_request(base, repo, pull, listed=True)
        return {"action": "submitted", "review": about["review"], "pull_request": shown, **told}
    if event == "check_run":
        action = "completed" if about["run"]["conclusion"] else "created"
        return {"action": action, "check_run": about["run"], **told}
    if event == "status":
        said = about["status"]
        kept = ("id", "state", "context", "description", "target_url", "created_at", "updated_at")
        return {"sha": about["sha"], "branches": [], **{name: said[name] for name in kept}, **told}
    if event != "ping":
        return told
    return {
        "zen": "Keep it logically awesome.",
        "hook_id": about.get("hook", 1),
        "hook": {"type": "Repository"},
        **told,
    }
