"""The API of the server: which request gets which status and body, in the order in which the server looks."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.played.common import hooks
from orchestrator.played.common.git_side import GitFailed, now
from orchestrator.played.common.served import Answer
from orchestrator.played.gitea import bodies
from orchestrator.played.gitea.hooks import KNOWN
from orchestrator.played.gitea.repository import Pull, Repository, Style

DEFAULT_PAGE, MOST = 30, 50
STYLES = ("merge", "rebase", "rebase-merge", "squash", "fast-forward-only", "manually-merged")
FAST_FORWARD_SINCE = (1, 22)


@dataclass(frozen=True)
class Request:
    """One request, by somebody whose token is known."""

    login: str | None
    query: dict[str, str]
    body: dict[str, Any]
    base: str  # the server's address


class Hub(Protocol):
    """What the endpoints know of the server as a whole."""

    version: str
    administrators: set[str]
    scopes: set[str]  # of our token, beyond what it needs
    hooks: hooks.Hooks

    def find(self, full_name: str) -> Repository | None: ...
    def create(self, owner: str, name: str, **options: Any) -> Repository: ...
    def remove(self, repo: Repository) -> None: ...


Endpoint = Callable[..., Answer]
ROUTES: list[tuple[str, re.Pattern[str], Endpoint]] = []


def route(method: str, path: str) -> Callable[[Endpoint], Endpoint]:
    pattern = re.compile(re.sub(r"(?<!P)<(\w+)>", r"(?P<\1>[^/]+)", path) + r"\Z")

    def add(endpoint: Endpoint) -> Endpoint:
        ROUTES.append((method, pattern, endpoint))
        return endpoint

    return add


def answer(hub: Hub, method: str, path: str, asked: Request) -> Answer:
    """The answer to one request below ``/api/v1``."""
    for wanted, pattern, endpoint in ROUTES:
        match = pattern.match(path)
        if wanted != method or match is None:
            continue
        named = match.groupdict()
        if "owner" not in named:
            return endpoint(hub, asked, **named)
        repo = hub.find(f"{named.pop('owner')}/{named.pop('repo')}")
        right = repo.rights.get(asked.login or "", "") if repo else ""
        if repo is None or not right:
            return Answer(404, bodies.not_found(asked.base))
        if method != "GET" and right == "read" and endpoint is not add_review:
            return Answer(403, bodies.error(asked.base, "user should have a permission to write to a repo"))
        if endpoint in ADMINISTRATION and right != "admin":
            return Answer(
                403, bodies.error(asked.base, "user should be an owner or a collaborator with admin write")
            )
        with repo.lock:
            repo.synchronise()
            return endpoint(hub, asked, repo, **named)
    return Answer(404, "404 page not found\n")


def _error(asked: Request, status: int, message: str) -> Answer:
    return Answer(status, bodies.error(asked.base, message))


def _missing(asked: Request) -> Answer:
    return Answer(404, bodies.not_found(asked.base))


def _page(asked: Request, path: str, everything: list[Any]) -> tuple[list[Any], dict[str, str]]:
    """A page, and the headers that say how much more there is; a limit that is too large is cut without a word."""
    limit = min(int(asked.query.get("limit") or DEFAULT_PAGE), MOST)
    page = max(int(asked.query.get("page") or 1), 1)
    last = max(1, -(-len(everything) // limit))
    headers = {"X-Total-Count": str(len(everything))}
    if page < last:
        others = "&".join(f"{k}={v}" for k, v in sorted(asked.query.items()) if k != "page")
        links = ((page + 1, "next"), (last, "last"))
        # The host is the one that the server believes to have, which need not be reachable.
        headers["Link"] = ",".join(
            f'<http://gitea.invalid{path}?{others}&page={number}>; rel="{rel}"' for number, rel in links
        )
    return everything[(page - 1) * limit : page * limit], headers


@route("GET", "/version")
def version(hub: Hub, asked: Request) -> Answer:
    return Answer(200, {"version": hub.version})


@route("GET", "/user")
def myself(hub: Hub, asked: Request) -> Answer:
    if asked.login is None:
        return _error(asked, 401, "token is required")
    if "read:user" not in hub.scopes:
        said = "token does not have at least one of required scope(s), required=[read:user]"
        return _error(asked, 403, said)
    return Answer(200, bodies.user(asked.login))


@route("POST", "/user/repos")
def new_repository(hub: Hub, asked: Request) -> Answer:
    if asked.login is None:
        return _error(asked, 401, "token is required")
    if hub.find(f"{asked.login}/{asked.body['name']}"):
        return _error(asked, 409, "The repository with the same name already exists.")
    repo = hub.create(asked.login, asked.body["name"], private=asked.body.get("private", False))
    if asked.body.get("auto_init"):
        tree = repo.git("hash-object", "-w", "-t", "tree", "--stdin", input="")
        first = repo.git("commit-tree", tree, input="Initial commit")
        repo.git("update-ref", f"refs/heads/{repo.default_branch}", first)
    return Answer(201, bodies.repository(asked.base, repo, asked.login))


@route("GET", "/repos/<owner>/<repo>")
def one_repository(hub: Hub, asked: Request, repo: Repository) -> Answer:
    return Answer(200, bodies.repository(asked.base, repo, asked.login))


@route("PATCH", "/repos/<owner>/<repo>")
def edit_repository(hub: Hub, asked: Request, repo: Repository) -> Answer:
    repo.archived = asked.body.get("archived", repo.archived)
    switches = {"allow_fast_forward_only_merge": Style.FAST_FORWARD, "allow_merge_commits": Style.MERGE}
    for name, style in switches.items():
        if name in asked.body:
            (repo.styles.add if asked.body[name] else repo.styles.discard)(style)
    return Answer(200, bodies.repository(asked.base, repo, asked.login))


@route("DELETE", "/repos/<owner>/<repo>")
def drop_repository(hub: Hub, asked: Request, repo: Repository) -> Answer:
    hub.remove(repo)
    return Answer(204)


@route("GET", "/repos/<owner>/<repo>/branches/(?P<name>.+)")
def one_branch(hub: Hub, asked: Request, repo: Repository, name: str) -> Answer:
    sha = repo.branch(name)
    if sha is None:
        return _missing(asked)
    return Answer(200, bodies.branch(asked.base, repo, name, sha, asked.login or ""))


@route("DELETE", "/repos/<owner>/<repo>/branches/(?P<name>.+)")
def drop_branch(hub: Hub, asked: Request, repo: Repository, name: str) -> Answer:
    if repo.branch(name) is None:
        return _missing(asked)
    repo.git("update-ref", "-d", f"refs/heads/{name}")
    repo.synchronise()
    return Answer(204)


@route("POST", "/repos/<owner>/<repo>/branch_protections")
def protect(hub: Hub, asked: Request, repo: Repository) -> Answer:
    name = asked.body["branch_name"]
    repo.protections[name] = {"enable_push": False, **asked.body}
    repo.write_protection()
    return Answer(201, bodies.protection(name, repo.protections[name]))


@route("GET", "/repos/<owner>/<repo>/branch_protections")
def protections(hub: Hub, asked: Request, repo: Repository) -> Answer:
    return Answer(200, [bodies.protection(name, rule) for name, rule in repo.protections.items()])


# -- statuses ------------------------------------------------------------------------------------------------------


@route("POST", "/repos/<owner>/<repo>/statuses/<sha>")
def add_status(hub: Hub, asked: Request, repo: Repository, sha: str) -> Answer:
    if repo.sha(sha) is None:
        said = f"GetCommit[{sha}]: object does not exist [id: {sha}, rel_path: ]"
        return _error(asked, 500, said)
    known = repo.statuses.setdefault(sha, [])
    known.append(bodies.status(asked.base, repo, sha, len(known) + 1, asked.login or "", asked.body, now()))
    hub.hooks.tell("status", bodies.reported(asked.base, repo, sha, known[-1]), repo.webhooks)
    return Answer(201, known[-1])


@route("GET", "/repos/<owner>/<repo>/commits/(?P<ref>.+)/statuses")
def list_statuses(hub: Hub, asked: Request, repo: Repository, ref: str) -> Answer:
    sha = repo.sha(ref)
    if sha is None:
        return _missing(asked)
    path = f"/api/v1/repos/{repo.full_name}/commits/{ref}/statuses"
    newest_first = asked.query.get("sort") != "leastindex"
    known = repo.statuses.get(sha, [])
    shown, headers = _page(asked, path, list(reversed(known)) if newest_first else known)
    return Answer(200, shown, headers)


@route("GET", "/repos/<owner>/<repo>/commits/(?P<ref>.+)/status")
def combined_status(hub: Hub, asked: Request, repo: Repository, ref: str) -> Answer:
    sha = repo.sha(ref)
    if sha is None:
        return _missing(asked)
    newest = {one["context"]: one for one in repo.statuses.get(sha, [])}
    path = f"/api/v1/repos/{repo.full_name}/commits/{ref}/status"
    shown, headers = _page(asked, path, sorted(newest.values(), key=lambda one: -one["id"]))
    return Answer(200, bodies.combined(asked.base, repo, sha, shown), headers)


# -- pull requests -------------------------------------------------------------------------------------------------


@route("GET", "/repos/<owner>/<repo>/pulls")
def list_pulls(hub: Hub, asked: Request, repo: Repository) -> Answer:
    """There is no filter by head: one that is sent is passed over without a word."""
    state = asked.query.get("state") or "open"
    found = [pull for pull in repo.pulls if state in ("all", pull.state)]
    if asked.query.get("sort") == "oldest":
        found.sort(key=lambda pull: pull.number)
    else:
        found.sort(key=lambda pull: (pull.updated, pull.number), reverse=True)
    shown, headers = _page(asked, f"/api/v1/repos/{repo.full_name}/pulls", found)
    return Answer(200, [bodies.pull_request(asked.base, repo, pull) for pull in shown], headers)


@route("POST", "/repos/<owner>/<repo>/pulls")
def open_pull(hub: Hub, asked: Request, repo: Repository) -> Answer:
    if repo.archived:
        return _error(asked, 423, f"{repo.full_name} is archived")
    base, branch = asked.body["base"], asked.body["head"]
    head = repo.branch(branch)
    if head is None or repo.branch(base) is None:
        return _missing(asked)
    if branch == base:
        return _error(asked, 422, "Invalid PullRequest: There are no changes between the head and the base")
    for pull in repo.pulls:
        if pull.state == "open" and (pull.branch, pull.base) == (branch, base):
            number = pull.number
            return _error(
                asked,
                409,
                f"pull request already exists for these targets [id: {number}, issue_id: {number}, head_repo_id: "
                f"{repo.id}, base_repo_id: {repo.id}, head_branch: {branch}, base_branch: {base}]",
            )
    pull = repo.open(asked.body["title"], asked.body.get("body", ""), asked.login or "", base, branch, head)
    return Answer(201, bodies.pull_request(asked.base, repo, pull))


def _pull(repo: Repository, number: str) -> Pull | None:
    return next((pull for pull in repo.pulls if str(pull.number) == number), None)


@route("GET", "/repos/<owner>/<repo>/pulls/<number>")
def one_pull(hub: Hub, asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None:
        return _missing(asked)
    repo.checking(pull)
    return Answer(200, bodies.pull_request(asked.base, repo, pull))


@route("PATCH", "/repos/<owner>/<repo>/pulls/<number>")
def edit_pull(hub: Hub, asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None:
        return _missing(asked)
    wanted = asked.body.get("state", pull.state)
    if pull.merged and wanted != pull.state:
        return _error(asked, 412, "cannot change state of this pull request, it was already merged")
    if wanted == "open" and pull.state == "closed" and repo.branch(pull.branch) is None:
        return _error(asked, 422, "The head branch is gone.")
    pull.title, pull.body = asked.body.get("title", pull.title), asked.body.get("body", pull.body)
    pull.updated = now()
    if wanted == "closed" and pull.state == "open":
        repo.close(pull)
    elif wanted == "open":
        pull.state, pull.closed, pull.checked = "open", None, None
    return Answer(201, bodies.pull_request(asked.base, repo, pull))


@route("GET", "/repos/<owner>/<repo>/pulls/<number>/reviews")
def list_reviews(hub: Hub, asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None:
        return _missing(asked)
    shown, headers = _page(asked, f"/api/v1/repos/{repo.full_name}/pulls/{number}/reviews", pull.reviews)
    return Answer(200, shown, headers)


@route("POST", "/repos/<owner>/<repo>/pulls/<number>/reviews")
def add_review(hub: Hub, asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None:
        return _missing(asked)
    if asked.login == pull.user and asked.body["event"] == "APPROVED":
        return _error(asked, 422, "approve your own pull is not allowed")
    counted = len(pull.reviews) + 1
    pull.reviews.append(bodies.review(asked.base, repo, pull, counted, asked.login or "", asked.body))
    pull.remarks[counted] = asked.body.get("comments", [])
    kind = {"APPROVED": "approved", "REQUEST_CHANGES": "rejected"}.get(asked.body["event"], "comment")
    told = bodies.reviewed(asked.base, repo, pull, asked.login or "", kind)
    hub.hooks.tell(f"pull_request_review_{kind}", told, repo.webhooks, asked_as="pull_request_review")
    return Answer(200, pull.reviews[-1])


@route("GET", "/repos/<owner>/<repo>/pulls/<number>/reviews/<review>/comments")
def list_remarks(hub: Hub, asked: Request, repo: Repository, number: str, review: str) -> Answer:
    """All of them: there are no pages."""
    pull = _pull(repo, number)
    if pull is None or int(review) not in pull.remarks:
        return _missing(asked)
    told = enumerate(pull.remarks[int(review)], 1)
    return Answer(200, [bodies.remark(asked.base, repo, pull, int(review), n, one) for n, one in told])


@route("GET", "/repos/<owner>/<repo>/pulls/<number>/merge")
def is_merged(hub: Hub, asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    return Answer(204) if pull is not None and pull.merged else _missing(asked)


@route("POST", "/repos/<owner>/<repo>/pulls/<number>/merge")
def merge(hub: Hub, asked: Request, repo: Repository, number: str) -> Answer:
    wanted = asked.body.get("Do") or asked.body.get("do")
    released = tuple(int(part) for part in re.findall(r"\d+", hub.version.split("gitea-")[-1])[:2])
    known = STYLES if released >= FAST_FORWARD_SINCE else [s for s in STYLES if s != Style.FAST_FORWARD]
    if wanted not in known:
        return _error(asked, 422, "[Do]: In" if wanted else "[Do]: Required")
    pull = _pull(repo, number)
    if pull is None or (pull.state == "closed" and not pull.merged):
        return _missing(asked)
    if repo.archived:
        return _error(asked, 423, f"{repo.full_name} is archived")
    refused = _why_not_mergeable(asked, repo, pull)
    if refused is not None:
        return refused
    if wanted not in list(repo.styles):
        return _error(asked, 405, f"{wanted} is not an allowed merge style for this repository")
    if asked.body.get("head_commit_id") not in (None, "", pull.head):
        return _error(asked, 409, "head out of date")
    return _landed(hub, asked, repo, pull, Style(wanted))


def _why_not_mergeable(asked: Request, repo: Repository, pull: Pull) -> Answer | None:
    if pull.merged:
        return _error(asked, 405, "The PR is already merged")
    if pull.draft:
        return _error(asked, 405, "Work in progress PRs cannot be merged")
    known = repo.checking(pull)
    contained = repo.is_ancestor(pull.head, f"refs/heads/{pull.base}")
    if known or contained or not pull.mergeable:
        return _error(asked, 405, "Please try again later")
    why = None if asked.body.get("force_merge") else repo.why_protected(pull)
    return _error(asked, 405, f"not allowed to merge [reason: {why}]") if why else None


def _landed(hub: Hub, asked: Request, repo: Repository, pull: Pull, style: Style) -> Answer:
    by = asked.login or ""
    title = asked.body.get("MergeTitleField") or f"Merge pull request '{pull.title}' (#{pull.number})"
    message = f"{title}\n\n{asked.body.get('MergeMessageField', '')}".strip() + "\n"
    try:
        landed = repo.land(pull, style, message, by)
    except GitFailed as error:
        if "CONFLICT" in str(error):
            raw = {"Style": style, "StdOut": str(error), "StdErr": "", "Err": {"Stderr": None}}
            return Answer(409, raw)
        if "cannot lock ref" in str(error):
            return _error(asked, 409, "merge push out of date")
        text = str(error) if by in hub.administrators else ""  # others are not told
        return _error(asked, 500, text)
    if repo.unrecorded_merges > 0:
        repo.unrecorded_merges -= 1
        return _error(asked, 500, "")
    repo.record_merge(pull, landed, by)
    if asked.body.get("delete_branch_after_merge"):
        repo.git("update-ref", "-d", f"refs/heads/{pull.branch}")
    repo.synchronise()
    return Answer(200)


@route("GET", "/repos/<owner>/<repo>/branch_protections/<name>")
def one_protection(hub: Hub, asked: Request, repo: Repository, name: str) -> Answer:
    rule = repo.protections.get(name)
    return (
        Answer(404, bodies.not_found(asked.base))
        if rule is None
        else Answer(200, bodies.protection(name, rule))
    )


ADMINISTRATION = (edit_repository, drop_repository, protect, protections, one_protection)


# -- webhooks --------------------------------------------------------------------------------------------------------


@route("GET", "/repos/<owner>/<repo>/hooks")
def list_hooks(hub: Hub, asked: Request, repo: Repository) -> Answer:
    if repo.rights.get(asked.login or "") != "admin":
        return _error(
            asked, 403, "user should be an owner or a collaborator with admin write of a repository"
        )
    found, counted = _page(asked, f"/repos/{repo.full_name}/hooks", repo.webhooks)
    return Answer(200, [hooks.shown(hook, "gitea") for hook in found], counted)


@route("POST", "/repos/<owner>/<repo>/hooks")
def new_hook(hub: Hub, asked: Request, repo: Repository) -> Answer:
    if repo.rights.get(asked.login or "") != "admin":
        return _error(
            asked, 403, "user should be an owner or a collaborator with admin write of a repository"
        )
    if asked.body.get("type") not in ("gitea", "forgejo"):
        return _error(asked, 422, "Invalid hook type")
    made = hooks.settle(repo.webhooks, _known(asked.body))
    assert made is not None
    return Answer(201, hooks.shown(made, "gitea"))


@route("PATCH", "/repos/<owner>/<repo>/hooks/<number>")
def edit_hook(hub: Hub, asked: Request, repo: Repository, number: str) -> Answer:
    if repo.rights.get(asked.login or "") != "admin":
        return _error(
            asked, 403, "user should be an owner or a collaborator with admin write of a repository"
        )
    found = hooks.settle(repo.webhooks, _known(asked.body), int(number))
    return _missing(asked) if found is None else Answer(200, hooks.shown(found, "gitea"))


@route("DELETE", "/repos/<owner>/<repo>/hooks/<number>")
def drop_hook(hub: Hub, asked: Request, repo: Repository, number: str) -> Answer:
    if repo.rights.get(asked.login or "") != "admin":
        return _error(
            asked, 403, "user should be an owner or a collaborator with admin write of a repository"
        )
    found = [hook for hook in repo.webhooks if hook.number == int(number)]
    repo.webhooks[:] = [hook for hook in repo.webhooks if hook.number != int(number)]
    return Answer(204) if found else _missing(asked)


def _known(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "events": [name for name in body.get("events", ["push"]) if name in KNOWN]}
