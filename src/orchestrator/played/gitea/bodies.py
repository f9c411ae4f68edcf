"""The bodies of answers, field by field as the real server sends them."""

from typing import Any

from orchestrator.played.gitea.repository import Pull, Repository, Style

API = "/api/v1"


def user(login: str) -> dict[str, Any]:
    return {"id": sum(login.encode()), "login": login, "full_name": "", "email": f"{login}@fake.invalid"}


def error(base: str, message: str) -> dict[str, Any]:
    return {"message": message, "url": f"{base}/api/swagger"}


def not_found(base: str) -> dict[str, Any]:
    return {"errors": None, **error(base, "The target couldn't be found.")}


def repository(base: str, repo: Repository, login: str | None) -> dict[str, Any]:
    html = f"{base}/{repo.full_name}"
    right = repo.rights.get(login or "", "")
    return {
        "id": repo.id,
        "owner": user(repo.owner),
        "name": repo.name,
        "full_name": repo.full_name,
        "description": "",
        "empty": repo.branch(repo.default_branch) is None,
        "private": repo.private,
        "fork": False,
        "template": False,
        "parent": None,
        "mirror": False,
        "size": 1,
        "html_url": html,
        "ssh_url": f"git@fake.invalid:{repo.full_name}.git",
        "clone_url": f"{html}.git",
        "original_url": "",
        "website": "",
        "stars_count": 0,
        "forks_count": 0,
        "watchers_count": 1,
        "open_issues_count": 0,
        "open_pr_counter": sum(pull.state == "open" for pull in repo.pulls),
        "release_counter": 0,
        "default_branch": repo.default_branch,
        "archived": repo.archived,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "permissions": {
            "admin": right == "admin",
            "push": right in ("admin", "write"),
            "pull": right != "",
        },
        "has_issues": True,
        "internal_tracker": {
            "enable_time_tracker": True,
            "allow_only_contributors_to_track_time": True,
            "enable_issue_dependencies": True,
        },
        "has_wiki": True,
        "has_pull_requests": True,
        "has_projects": True,
        "ignore_whitespace_conflicts": False,
        "allow_merge_commits": Style.MERGE in repo.styles,
        "allow_rebase": False,
        "allow_rebase_explicit": False,
        "allow_squash_merge": Style.SQUASH in repo.styles,
        "allow_fast_forward_only_merge": Style.FAST_FORWARD in repo.styles,
        "default_merge_style": "merge",
        "avatar_url": "",
        "internal": False,
        "mirror_interval": "",
        "repo_transfer": None,
    }


def pull_request(base: str, repo: Repository, pull: Pull) -> dict[str, Any]:
    html = f"{base}/{repo.full_name}/pulls/{pull.number}"
    shown = {"id": repo.id, "full_name": repo.full_name, "default_branch": repo.default_branch}
    return {
        "id": pull.number,
        "url": html,
        "number": pull.number,
        "user": user(pull.user),
        "title": pull.title,
        "body": pull.body,
        "labels": [],
        "milestone": None,
        "assignee": None,
        "assignees": None,
        "state": pull.state,
        "draft": pull.draft,
        "is_locked": False,
        "comments": 0,
        "html_url": html,
        "diff_url": f"{html}.diff",
        "patch_url": f"{html}.patch",
        "mergeable": pull.mergeable,
        "merged": pull.merged,
        "merged_at": pull.merged_at,
        "merge_commit_sha": pull.merge_commit,
        "merged_by": user(pull.merged_by) if pull.merged_by else None,
        "base": {
            "label": pull.base,
            "ref": pull.base,
            "sha": repo.branch(pull.base) or "",
            "repo_id": repo.id,
            "repo": shown,
        },
        "head": {
            "label": pull.branch,
            "ref": f"refs/pull/{pull.number}/head" if pull.branch_gone else pull.branch,
            "sha": pull.head,
            "repo_id": repo.id,
            "repo": shown,
        },
        "merge_base": pull.merge_base,
        "due_date": None,
        "created_at": pull.created,
        "updated_at": pull.updated,
        "closed_at": pull.closed,
    }


def protection(branch: str, rule: dict[str, Any]) -> dict[str, Any]:
    return {
        "branch_name": branch,
        "enable_push": False,
        "enable_push_whitelist": False,
        "push_whitelist_usernames": [],
        "push_whitelist_teams": [],
        "push_whitelist_deploy_keys": False,
        "enable_merge_whitelist": False,
        "merge_whitelist_usernames": [],
        "merge_whitelist_teams": [],
        "enable_status_check": False,
        "status_check_contexts": [],
        "required_approvals": 0,
        "enable_approvals_whitelist": False,
        "approvals_whitelist_username": [],
        "approvals_whitelist_teams": [],
        "block_on_rejected_reviews": False,
        "block_on_official_review_requests": False,
        "block_on_outdated_branch": False,
        "dismiss_stale_approvals": False,
        "require_signed_commits": False,
        "protected_file_patterns": "",
        "unprotected_file_patterns": "",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        **rule,
    }


def branch(base: str, repo: Repository, name: str, sha: str, login: str) -> dict[str, Any]:
    rule = repo.rule(name)
    author = repo.git("log", "-1", "--format=%an%n%ae%n%cI%n%B", sha).split("\n", 3)
    person = {"name": author[0], "email": author[1], "username": ""}
    return {
        "name": name,
        "commit": {
            "id": sha,
            "message": author[3] + "\n",
            "url": f"{base}/{repo.full_name}/commit/{sha}",
            "author": person,
            "committer": person,
            "verification": {
                "verified": False,
                "reason": "gpg.error.not_signed_commit",
                "signature": "",
                "signer": None,
                "payload": "",
            },
            "timestamp": author[2],
            "added": None,
            "removed": None,
            "modified": None,
        },
        "protected": bool(rule),
        "required_approvals": rule.get("required_approvals", 0),
        "enable_status_check": rule.get("enable_status_check", False),
        "status_check_contexts": rule.get("status_check_contexts", []),
        "user_can_push": rule.get("enable_push", True) and repo.rights.get(login) in ("admin", "write"),
        "user_can_merge": repo.rights.get(login) in ("admin", "write"),
        "effective_branch_protection_name": name if rule else "",
    }


def review(
    base: str, repo: Repository, pull: Pull, number: int, login: str, asked: dict[str, Any]
) -> dict[str, Any]:
    html = f"{base}/{repo.full_name}/pulls/{pull.number}"
    return {
        "id": number,
        "user": user(login),
        "team": None,
        "state": asked["event"],
        "body": asked.get("body", ""),
        "commit_id": asked.get("commit_id") or pull.head,
        "stale": False,
        "official": repo.rights.get(login) in ("admin", "write") and asked["event"] != "COMMENT",
        "dismissed": False,
        "comments_count": len(asked.get("comments", [])),
        "submitted_at": pull.updated,
        "html_url": f"{html}#issuecomment-{number}",
        "pull_request_url": html,
    }


def remark(
    base: str, repo: Repository, pull: Pull, review: int, number: int, asked: dict[str, Any]
) -> dict[str, Any]:
    html = f"{base}/{repo.full_name}/pulls/{pull.number}"
    return {
        "id": number,
        "body": asked["body"],
        "user": user(pull.reviews[review - 1]["user"]["login"]),
        "resolver": None,
        "pull_request_review_id": review,
        "created_at": pull.updated,
        "updated_at": pull.updated,
        "path": asked["path"],
        "commit_id": pull.head,
        "original_commit_id": "",
        "diff_hunk": "",
        "position": asked.get("new_position", 0),
        "original_position": asked.get("old_position", 0),
        "html_url": f"{html}#issuecomment-{number}",
        "pull_request_url": html,
    }


def status(
    base: str, repo: Repository, sha: str, number: int, login: str, asked: dict[str, Any], at: str
) -> dict[str, Any]:
    return {
        "id": number,
        "status": asked["state"],
        "target_url": asked.get("target_url", ""),
        "description": asked.get("description", ""),
        "url": f"{base}{API}/repos/{repo.full_name}/statuses/{sha}",
        "context": asked.get("context", "default"),
        "creator": user(login),
        "created_at": at,
        "updated_at": at,
    }


def combined(base: str, repo: Repository, sha: str, shown: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the page alone, as the server has it: not to be relied on."""
    if not shown:  # seen on a real server
        return {
            "state": "",
            "sha": "",
            "total_count": 0,
            "statuses": None,
            "repository": None,
            "commit_url": "",
            "url": "",
        }
    states = {one["status"] for one in shown}
    bad = states & {"error", "failure", "warning"}
    state = "failure" if bad else "pending" if "pending" in states else "success"
    url = f"{base}{API}/repos/{repo.full_name}/commits/{sha}"
    return {
        "state": state,
        "sha": sha,
        "total_count": len(shown),
        "statuses": shown,
        "repository": repository(base, repo, None),
        "commit_url": url,
        "url": f"{url}/status",
    }


def push(base: str, repo: Repository, branch: str, before: str, after: str, login: str) -> dict[str, Any]:
    """What a webhook says of a branch that was moved, made or removed."""
    return {
        "ref": f"refs/heads/{branch}",
        "before": before,
        "after": after,
        "compare_url": f"{base}/{repo.full_name}/compare/{before}...{after}",
        "commits": [],
        "total_commits": 0,
        "head_commit": None,
        "repository": repository(base, repo, login),
        "pusher": user(login),
        "sender": user(login),
    }


def reported(base: str, repo: Repository, sha: str, said: dict[str, Any]) -> dict[str, Any]:
    """What a webhook says of a status: no pull request, no branch."""
    kept = ("context", "created_at", "description", "id", "target_url", "updated_at")
    return {
        **{name: said[name] for name in kept},
        "state": said["status"],
        "sha": sha,
        "commit": {"id": sha},
        "repository": repository(base, repo, None),
        "sender": said["creator"],
    }


def reviewed(base: str, repo: Repository, pull: Pull, login: str, kind: str) -> dict[str, Any]:
    """What a webhook says of a review: neither its number nor its commit."""
    return {
        "action": "reviewed",
        "number": pull.number,
        "pull_request": pull_request(base, repo, pull),
        "requested_reviewer": None,
        "repository": repository(base, repo, login),
        "sender": user(login),
        "commit_id": "",
        "review": {"type": f"pull_request_review_{kind}", "content": pull.reviews[-1]["body"]},
    }


def deleted(base: str, repo: Repository, branch: str, login: str) -> dict[str, Any]:
    """What a webhook says of a branch that was removed, beside the push."""
    return {
        "ref": branch,
        "ref_type": "branch",
        "pusher_type": "user",
        "repository": repository(base, repo, login),
        "sender": user(login),
    }
