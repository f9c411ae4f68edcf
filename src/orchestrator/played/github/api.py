"""The API of the server: which request gets which status and body."""

from orchestrator.played.common import hooks
from orchestrator.played.common.git_side import GitFailed, now
from orchestrator.played.common.served import Answer
from orchestrator.played.github import bodies
from orchestrator.played.github.repository import Pull, Repository, Rules
from orchestrator.played.github.routes import Request, missing, paged, refused, route


@route("GET", "")
def one_repository(asked: Request, repo: Repository) -> Answer:
    return Answer(200, bodies.repository(asked.base, repo, asked.login))


@route("PATCH", "")
def edit_repository(asked: Request, repo: Repository) -> Answer:
    repo.archived = asked.body.get("archived", repo.archived)
    repo.merge_commits = asked.body.get("allow_merge_commit", repo.merge_commits)
    return Answer(200, bodies.repository(asked.base, repo, asked.login))


@route("GET", "/branches/(?P<name>.+)")
def one_branch(asked: Request, repo: Repository, name: str) -> Answer:
    sha = repo.branch(name)
    return (
        Answer(200, bodies.branch(asked.base, repo, name, sha)) if sha else refused(404, "Branch not found")
    )


@route("GET", "/rules/branches/(?P<name>.+)")
def branch_rules(asked: Request, repo: Repository, name: str) -> Answer:
    return Answer(200, bodies.rules(repo, name))


@route("POST", "/rulesets")
def add_ruleset(asked: Request, repo: Repository) -> Answer:
    """For the default branch; of its rules those that are known here."""
    if repo.rights[asked.login] != "admin":
        return missing()
    found = {rule["type"]: rule.get("parameters", {}) for rule in asked.body["rules"]}
    checks = found.pop("required_status_checks", {}).get("required_status_checks", [])
    asks = found.pop("pull_request", None)
    approvals = (asks or {}).get("required_approving_review_count", 0)
    contexts = tuple(check["context"] for check in checks)
    repo.protect(repo.default_branch, Rules(asks is not None, contexts, approvals, tuple(found)))
    return Answer(201, {"id": 1, **asked.body})


@route("POST", "/statuses/<sha>")
def add_status(asked: Request, repo: Repository, sha: str) -> Answer:
    if repo.sha(sha) is None:
        return refused(422, f"No commit found for SHA: {sha}")
    known = repo.statuses.setdefault(sha, [])
    known.append(bodies.status(len(known) + 1, asked.login, asked.body, now()))
    repo.guard()
    repo.tell("status", repo, {"sha": sha, "status": known[-1], "by": asked.login})
    return Answer(201, known[-1])


@route("GET", "/commits/(?P<ref>[^/]+)/statuses")
def list_statuses(asked: Request, repo: Repository, ref: str) -> Answer:
    """The newest first."""
    sha = repo.sha(ref)
    if sha is None:
        return refused(422, f"No commit found for SHA: {ref}")
    path = f"{bodies.API}/repos/{repo.full_name}/commits/{ref}/statuses"
    shown, headers = paged(asked, path, list(reversed(repo.statuses.get(sha, []))))
    return Answer(200, shown, headers)


@route("POST", "/check-runs")
def add_run(asked: Request, repo: Repository) -> Answer:
    """For programs alone; a run of the same name and program takes the place of the one before."""
    sha = asked.body["head_sha"]
    if asked.login in repo.rights and not asked.body.get("app"):
        return refused(403, "You must authenticate via a GitHub App.")
    if repo.sha(sha) is None:
        return refused(422, f"No commit found for SHA: {sha}")
    known = repo.runs.setdefault(sha, [])
    number = 1000 + sum(map(len, repo.runs.values()))
    known.append(bodies.run(asked.base, repo, sha, number, asked.body, now()))
    repo.annotations[number] = asked.body.get("output", {}).get("annotations", [])
    repo.tell("check_run", repo, {"run": known[-1], "by": asked.login})
    return Answer(201, known[-1])


@route("GET", "/check-runs/<number>/annotations")
def list_annotations(asked: Request, repo: Repository, number: str) -> Answer:
    run = next((one for runs in repo.runs.values() for one in runs if str(one["id"]) == number), None)
    if run is None:
        return missing()
    path = f"{bodies.API}/repos/{repo.full_name}/check-runs/{number}/annotations"
    shown, headers = paged(asked, path, repo.annotations.get(run["id"], []))
    return Answer(200, shown, headers)


@route("GET", "/commits/(?P<ref>[^/]+)/check-runs")
def list_runs(asked: Request, repo: Repository, ref: str) -> Answer:
    """The newest of each name and program, where that is asked for."""
    sha = repo.sha(ref)
    if sha is None:
        return refused(422, f"No commit found for SHA: {ref}")
    known = repo.runs.get(sha, [])
    if asked.query.get("filter", "latest") == "latest":
        known = list({(one["name"], one["app"]["id"]): one for one in known}.values())
    path = f"{bodies.API}/repos/{repo.full_name}/commits/{ref}/check-runs"
    shown, headers = paged(asked, path, known)
    return Answer(200, {"total_count": len(known), "check_runs": shown}, headers)


@route("GET", "/pulls")
def list_pulls(asked: Request, repo: Repository) -> Answer:
    """`head` is `owner:branch`; without an owner it is passed over without a word."""
    state, head, base = (asked.query.get(name, "") for name in ("state", "head", "base"))
    found = [
        pull
        for pull in repo.pulls
        if (state or "open") in ("all", pull.state)
        and (":" not in head or head.lower() == f"{repo.owner}:{pull.branch}".lower())
        and base in ("", pull.base)
    ]
    found.sort(key=lambda pull: pull.number, reverse=asked.query.get("direction") != "asc")
    for pull in found:
        repo.look(pull)
    shown, headers = paged(asked, f"{bodies.API}/repos/{repo.full_name}/pulls", found)
    return Answer(200, [bodies.pull_request(asked.base, repo, pull, listed=True) for pull in shown], headers)


@route("POST", "/pulls")
def open_pull(asked: Request, repo: Repository) -> Answer:
    base, branch = asked.body["base"], asked.body["head"].rpartition(":")[2]
    head, tip = repo.branch(branch), repo.branch(base)
    if head is None or tip is None:
        field = "head" if head is None else "base"
        return refused(
            422, "Validation Failed", {"resource": "PullRequest", "field": field, "code": "invalid"}
        )
    custom = {"resource": "PullRequest", "code": "custom"}
    if any(pull.state == "open" and (pull.branch, pull.base) == (branch, base) for pull in repo.pulls):
        said = f"A pull request already exists for {repo.owner}:{branch}."
        return refused(422, "Validation Failed", {**custom, "message": said})
    if repo.is_ancestor(head, tip):
        said = f"No commits between {base} and {branch}"
        return refused(422, "Validation Failed", {**custom, "message": said})
    pull = repo.open(asked.body["title"], asked.body.get("body", ""), asked.login, base, branch, head)
    return Answer(201, bodies.pull_request(asked.base, repo, pull))


def _pull(repo: Repository, number: str) -> Pull | None:
    return next((pull for pull in repo.pulls if str(pull.number) == number), None)


@route("GET", "/pulls/<number>")
def one_pull(asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None:
        return missing()
    repo.look(pull)
    return Answer(200, bodies.pull_request(asked.base, repo, pull))


@route("PATCH", "/pulls/<number>")
def edit_pull(asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None:
        return missing()
    wanted = asked.body.get("state", pull.state)
    if wanted == "open" and pull.state == "closed":
        if pull.merged or repo.branch(pull.branch) is None:
            field = {"resource": "PullRequest", "code": "invalid", "field": "state"}
            return refused(422, "Validation Failed", field)
        repo.reopen(pull, asked.login)
    elif wanted == "closed" and pull.state == "open":
        repo.close(pull, asked.login)
    return Answer(200, bodies.pull_request(asked.base, repo, pull))


@route("GET", "/pulls/<number>/reviews")
def list_reviews(asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None:
        return missing()
    path = f"{bodies.API}/repos/{repo.full_name}/pulls/{number}/reviews"
    shown, headers = paged(asked, path, pull.reviews)
    return Answer(200, shown, headers)


@route("GET", "/pulls/<number>/reviews/<review>/comments")
def list_remarks(asked: Request, repo: Repository, number: str, review: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None or int(review) not in pull.remarks:
        return missing()
    told = [bodies.remark(pull, int(review), n, one) for n, one in enumerate(pull.remarks[int(review)], 1)]
    shown, headers = paged(asked, f"{bodies.API}/repos/{repo.full_name}/pulls/{number}/comments", told)
    return Answer(200, shown, headers)


@route("POST", "/pulls/<number>/reviews")
def add_review(asked: Request, repo: Repository, number: str) -> Answer:
    pull = _pull(repo, number)
    if pull is None:
        return missing()
    if asked.login == pull.user and asked.body["event"] == "APPROVE":
        return refused(422, "Unprocessable Entity", {"message": "Can not approve your own pull request"})
    counted = len(pull.reviews) + 1
    pull.reviews.append(bodies.review(asked.base, repo, pull, counted, asked.login, asked.body))
    pull.remarks[counted] = asked.body.get("comments", [])
    repo.guard()
    repo.tell("pull_request_review", repo, {"pull": pull, "review": pull.reviews[-1], "by": asked.login})
    return Answer(200, pull.reviews[-1])


@route("PUT", "/pulls/<number>/merge")
def merge(asked: Request, repo: Repository, number: str) -> Answer:
    pull, method = _pull(repo, number), asked.body.get("merge_method", "merge")
    if pull is None:
        return missing()
    if pull.state == "closed":
        return refused(405, "Pull Request is not mergeable")
    if method == "merge" and not repo.merge_commits:
        return refused(405, "Merge commits are not allowed on this repository.")
    if asked.body.get("sha") not in (None, pull.head):
        return refused(409, "Head branch was modified. Review and try the merge again.")
    why = repo.why_not(pull.base, pull.head)
    if why is not None:
        return refused(405, f"Repository rule violations found\n\n{why}\n\n")
    tip = repo.branch(pull.base)
    assert tip is not None
    title = asked.body.get("commit_title") or f"Merge pull request #{number} from {repo.owner}/{pull.branch}"
    message = f"{title}\n\n{asked.body.get('commit_message', pull.title)}\n"
    try:
        landed = repo.merge_commit(tip, pull.head, message, asked.login, squash=method != "merge")
        repo.git("update-ref", f"refs/heads/{pull.base}", landed, tip)
    except GitFailed as error:
        words = "Pull Request is not mergeable" if "CONFLICT" in str(error) else BASE_MOVED
        return refused(405, words)
    repo.record_merge(pull, landed, asked.login)
    repo.synchronise(asked.login)
    return Answer(200, {"sha": landed, "merged": True, "message": "Pull Request successfully merged"})


BASE_MOVED = "Base branch was modified. Review and try the merge again."


# -- webhooks --------------------------------------------------------------------------------------------------------


@route("GET", "/hooks")
def list_hooks(asked: Request, repo: Repository) -> Answer:
    if repo.rights.get(asked.login) != "admin":
        return missing()
    found, more = paged(asked, f"/repos/{repo.full_name}/hooks", repo.webhooks)
    return Answer(200, [hooks.shown(hook, "Repository") for hook in found], more)


@route("POST", "/hooks")
def new_hook(asked: Request, repo: Repository) -> Answer:
    if repo.rights.get(asked.login) != "admin":
        return missing()
    made = hooks.settle(repo.webhooks, asked.body)
    assert made is not None
    return Answer(201, hooks.shown(made, "Repository"))


@route("PATCH", "/hooks/<number>")
def edit_hook(asked: Request, repo: Repository, number: str) -> Answer:
    found = None
    if repo.rights.get(asked.login) == "admin":
        found = hooks.settle(repo.webhooks, asked.body, int(number))
    return missing() if found is None else Answer(200, hooks.shown(found, "Repository"))


@route("DELETE", "/hooks/<number>")
def drop_hook(asked: Request, repo: Repository, number: str) -> Answer:
    found = [hook for hook in repo.webhooks if hook.number == int(number)]
    if repo.rights.get(asked.login) != "admin" or not found:
        return missing()
    repo.webhooks.remove(found[0])
    return Answer(204)
