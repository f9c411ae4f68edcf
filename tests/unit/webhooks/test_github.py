"""How GitHub tells of what every forge tells of; what follows from it is the same (`test_gitea.py`)."""

from typing import Any

import pytest

from orchestrator.domain.ids import Sha
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.webhooks.github import GitHubHandler
from tests.deliveries import NONE, account
from tests.fixtures_webhooks import Letters
from tests.unit.webhooks.test_gitea import HEAD, OURS, PULL, THEIRS, M, at_work, branch, notes

REPOSITORY = {
    "id": 7,
    "full_name": "acme/shop",
    "owner": account("acme"),
    "html_url": "/nowhere",
    "clone_url": "/nowhere.git",
    "default_branch": "main",
}
TOLD = {"repository": REPOSITORY, "sender": account()}


def push(name: str, after: str, *, before: str = HEAD) -> dict[str, Any]:
    return {"ref": f"refs/heads/{name}", "before": before, "after": after, "deleted": after == NONE, **TOLD}


def pull_request(
    action: str,
    task: Task,
    *,
    number: int = PULL,
    head: str = HEAD,
    merged: bool = False,
    repo: Any = REPOSITORY,
) -> dict[str, Any]:
    end = {"ref": branch(task), "label": f"acme:{branch(task)}", "sha": head, "repo": repo}
    base = {"ref": "main", "sha": OURS, "repo": REPOSITORY}
    pull = {
        "number": number,
        "merged": merged,
        "head": end,
        "base": base,
        "updated_at": "2026-02-03T09:00:00Z",
    }
    return {"action": action, "number": number, "pull_request": pull, **TOLD}


def dealt_with(letters: Letters, kind: str, payload: Any) -> str:
    sent = letters.github(kind, payload)
    letters.run()
    return str(letters.outcome(sent))


@pytest.mark.parametrize(
    ("after", "said"),
    [(THEIRS, f"moved to {THEIRS}"), (NONE, "removed"), (OURS, "our own push"), (M, "our own push")],
)
def test_a_branch_was_moved(letters: Letters, after: Sha, said: str) -> None:
    task = at_work(letters)
    assert said in dealt_with(letters, "push", push(branch(task), after))
    assert letters.woken == [task.id]


def test_main_was_moved_by_us_and_by_others(letters: Letters) -> None:
    task = at_work(letters, Stage.TESTING)
    assert dealt_with(letters, "push", push("main", M)) == "our own merge"
    assert "default branch was moved" in dealt_with(letters, "push", push("main", THEIRS))
    assert letters.woken == [task.id, task.id]


RUN = {"head_sha": HEAD, "status": "completed", "conclusion": "failure", "name": "unit"}


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        ("status", {"sha": HEAD, "state": "success", "context": "ci/unit"}, "ci/unit said success"),
        ("check_run", {"action": "completed", "check_run": RUN}, "unit said failure"),
        (
            "check_suite",
            {"check_suite": RUN | {"name": None, "app": {"name": "GitHub Actions"}}},
            "GitHub Actions said failure",
        ),
        ("workflow_run", {"workflow_run": RUN}, "unit said failure"),
        ("workflow_job", {"workflow_job": RUN}, "unit said failure"),
        ("check_run", {"check_run": RUN | {"status": "queued", "conclusion": None}}, "nothing to do"),
        ("check_run", {"check_run": RUN | {"head_sha": THEIRS}}, "no task shows"),
        ("check_run", {"check_run": None}, ""),
    ],
)
def test_a_check(letters: Letters, kind: str, payload: dict[str, Any], said: str) -> None:
    at_work(letters)
    assert said in dealt_with(letters, kind, {**payload, **TOLD})


@pytest.mark.parametrize(("merged", "what"), [(False, "was closed"), (True, "was merged")])
def test_a_pull_request_is_to_be_looked_at(letters: Letters, merged: bool, what: str) -> None:
    task = at_work(letters)
    assert what in dealt_with(letters, "pull_request", pull_request("closed", task, merged=merged))
    [word] = letters.words(task)
    assert (word.signal.kind, word.signal.person) == ("pull-request", "dana")


@pytest.mark.parametrize("action", ["submitted", "edited", "dismissed"])
def test_a_review_has_the_task_looked_at(letters: Letters, action: str) -> None:
    task = at_work(letters)
    told = {**pull_request(action, task), "review": {"state": "approved", "commit_id": HEAD}}
    assert f"pull request {PULL} was reviewed" in dealt_with(letters, "pull_request_review", told)
    assert (letters.woken, letters.words(task)) == ([task.id], [])


def test_the_head_of_a_pull_request(letters: Letters) -> None:
    task = at_work(letters)
    ours = pull_request("synchronize", task, head=M)
    assert dealt_with(letters, "pull_request", ours) == "our own push"
    assert THEIRS in dealt_with(letters, "pull_request", pull_request("synchronize", task, head=THEIRS))


@pytest.mark.parametrize("repo", [{"id": 8}, None], ids=["a fork", "a fork that is gone"])
def test_a_pull_request_of_a_fork_is_not_ours(letters: Letters, repo: Any) -> None:
    task = at_work(letters)
    told = pull_request("closed", task, number=77, repo=repo)
    assert dealt_with(letters, "pull_request", told) == "about no task of ours"
    assert (letters.words(task), notes(letters, task)) == ([], [])


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("ping", {"zen": "Design for failure.", "hook_id": 1}),
        ("issues", {**TOLD}),
        ("issue_comment", {**TOLD}),
    ],
)
def test_of_other_kinds_nothing_follows(letters: Letters, kind: str, payload: Any) -> None:
    assert dealt_with(letters, kind, payload) == "nothing to do"


def test_the_signature_is_the_newer_one_of_the_two() -> None:
    envelope = GitHubHandler.envelope
    assert (envelope.signature, envelope.signature_prefix) == (("x-hub-signature-256",), "sha256=")
