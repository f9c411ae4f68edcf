"""The API of issues: which request gets which status and body."""

from typing import Any

from orchestrator.played.common.served import Answer
from orchestrator.played.github import bodies, issue_bodies
from orchestrator.played.github.issues import Issue
from orchestrator.played.github.repository import Pull, Repository
from orchestrator.played.github.routes import Request, missing, paged, refused, route

WRITERS = ("admin", "maintain", "write")
LEGACY = {"maintain": "write", "triage": "read"}  # what an answer calls the newer roles


@route("GET", "/issues")
def list_issues(asked: Request, repo: Repository) -> Answer:
    """Pull requests are issues, too."""
    if not repo.issues.on:
        return refused(410, "Issues are disabled for this repo")
    state, since = asked.query.get("state") or "open", asked.query.get("since", "")
    wanted = {label.lower() for label in asked.query.get("labels", "").split(",") if label}
    known: list[Issue | Pull] = [issue for issue in repo.issues.all if not issue.gone]
    found = [
        one
        for one in [*known, *repo.pulls]
        if state in ("all", one.state)
        and one.updated >= since
        and wanted <= {label.lower() for label in (one.labels if isinstance(one, Issue) else [])}
    ]
    by_change = asked.query.get("sort") == "updated"
    found.sort(
        key=lambda one: (one.updated if by_change else one.created, one.number),
        reverse=asked.query.get("direction") != "asc",
    )
    shown, headers = paged(asked, f"{bodies.API}/repos/{repo.full_name}/issues", found)
    return Answer(200, [issue_bodies.issue(asked.base, repo, one) for one in shown], headers)


@route("POST", "/issues")
def file_issue(asked: Request, repo: Repository) -> Answer:
    title, labels = asked.body["title"], asked.body.get("labels", [])
    made = repo.issues.file(title, *labels, body=asked.body.get("body"), by=asked.login)
    return Answer(201, issue_bodies.issue(asked.base, repo, made))


def _lost(asked: Request, repo: Repository, number: str) -> Answer:
    """Why an issue is not shown."""
    issue = repo.issues.find(number)
    if issue is not None and issue.gone == "deleted":
        return refused(410, "This issue was deleted")
    if issue is not None and issue.gone == "transferred":
        to = f"{asked.base}{bodies.API}/repositories/999/issues/1"
        return Answer(301, {**bodies.error(301, "Moved Permanently"), "url": to}, {"Location": to})
    return missing()


def _found(repo: Repository, number: str) -> Issue | None:
    issue = repo.issues.find(number)
    return issue if issue is not None and not issue.gone and repo.issues.on else None


@route("GET", "/issues/<number>")
def one_issue(asked: Request, repo: Repository, number: str) -> Answer:
    if not repo.issues.on:
        return refused(410, "Issues are disabled for this repo")
    pull = next((pull for pull in repo.pulls if str(pull.number) == number), None)
    shown = pull or _found(repo, number)
    if shown is None:
        return _lost(asked, repo, number)
    return Answer(200, issue_bodies.issue(asked.base, repo, shown))


@route("PATCH", "/issues/<number>")
def edit_issue(asked: Request, repo: Repository, number: str) -> Answer:
    issue = _found(repo, number)
    if issue is None:
        return _lost(asked, repo, number)
    body, by = asked.body, asked.login
    if body.get("title") or "body" in body:
        repo.issues.edit(issue, title=body.get("title"), body=body.get("body"), by=by)
    if body.get("state") == "closed":
        repo.issues.close(issue, body.get("state_reason") or "completed", by=by)
    elif body.get("state") == "open":
        repo.issues.reopen(issue, by=by)
    return Answer(200, issue_bodies.issue(asked.base, repo, issue))


@route("GET", "/issues/<number>/comments")
def list_comments(asked: Request, repo: Repository, number: str) -> Answer:
    """By their numbers; `since` is about their last change."""
    issue = _found(repo, number)
    if issue is None:
        return _lost(asked, repo, number)
    found = [one for one in issue.comments if one.updated >= asked.query.get("since", "")]
    shown, headers = paged(asked, f"{bodies.API}/repos/{repo.full_name}/issues/{number}/comments", found)
    return Answer(200, [issue_bodies.comment(asked.base, repo, issue, one) for one in shown], headers)


@route("POST", "/issues/<number>/comments")
def add_comment(asked: Request, repo: Repository, number: str) -> Answer:
    issue = _found(repo, number)
    if issue is None:
        return _lost(asked, repo, number)
    if issue.locked and repo.rights.get(asked.login) not in WRITERS:
        return refused(403, "Unable to create comment because issue is locked.")
    text = asked.body.get("body", "")
    if not text or len(text) > issue_bodies.BODY_LIMIT:
        said = "body is too long (maximum is 65536 characters)" if text else "body can't be blank"
        return refused(
            422, "Validation Failed", {"resource": "IssueComment", "code": "custom", "message": said}
        )
    made = repo.issues.comment(issue, text, by=asked.login)
    return Answer(201, issue_bodies.comment(asked.base, repo, issue, made))


@route("GET", "/issues/<number>/events")
def list_events(asked: Request, repo: Repository, number: str) -> Answer:
    issue = _found(repo, number)
    if issue is None:
        return _lost(asked, repo, number)
    shown, headers = paged(asked, f"{bodies.API}/repos/{repo.full_name}/issues/{number}/events", issue.events)
    return Answer(200, [issue_bodies.event(asked.base, repo, one) for one in shown], headers)


@route("POST", "/issues/<number>/labels")
def label_issue(asked: Request, repo: Repository, number: str) -> Answer:
    issue = _found(repo, number)
    if issue is None:
        return _lost(asked, repo, number)
    for name in asked.body["labels"]:
        repo.issues.label(issue, name, by=asked.login)
    return Answer(200, [issue_bodies.label(repo, name) for name in issue.labels])


@route("DELETE", "/issues/<number>/labels/<name>")
def unlabel_issue(asked: Request, repo: Repository, number: str, name: str) -> Answer:
    issue = _found(repo, number)
    if issue is None:
        return _lost(asked, repo, number)
    if not repo.issues.unlabel(issue, name, by=asked.login):
        return refused(404, "Label does not exist")
    return Answer(200, [issue_bodies.label(repo, name) for name in issue.labels])


@route("PUT", "/issues/<number>/lock")
def lock_issue(asked: Request, repo: Repository, number: str) -> Answer:
    issue = _found(repo, number)
    if issue is None:
        return _lost(asked, repo, number)
    repo.issues.lock(issue, by=asked.login)
    return Answer(204)


@route("GET", "/labels")
def list_labels(asked: Request, repo: Repository) -> Answer:
    names = sorted(label["name"] for label in repo.issues.labels.values())
    shown, headers = paged(asked, f"{bodies.API}/repos/{repo.full_name}/labels", names)
    return Answer(200, [issue_bodies.label(repo, name) for name in shown], headers)


@route("POST", "/labels")
def make_label(asked: Request, repo: Repository) -> Answer:
    name = asked.body["name"]
    if name.lower() in repo.issues.labels:
        return refused(
            422, "Validation Failed", {"resource": "Label", "code": "already_exists", "field": "name"}
        )
    repo.issues.make_label(name, asked.body.get("color", "ededed"), asked.body.get("description"))
    return Answer(201, issue_bodies.label(repo, name))


@route("GET", "/collaborators/<login>/permission")
def permission(asked: Request, repo: Repository, login: str) -> Answer:
    if repo.rights.get(asked.login) not in WRITERS:
        return refused(403, "Must have push access to view collaborator permission.")
    if login not in {*repo.people, *repo.rights}:
        return missing()
    role = repo.rights.get(login, "none" if repo.private else "read")
    told: dict[str, Any] = {
        "permission": LEGACY.get(role, role),
        "role_name": role,
        "user": bodies.user(login),
    }
    return Answer(200, told)
