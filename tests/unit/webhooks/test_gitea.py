"""Hints of the forge: noted, the task woken, no stage written; ours, strangers' and stale ones told apart (S-11)."""

from typing import Any

import pytest

from orchestrator.db import evidence, tasks
from orchestrator.domain.ids import Sha
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Task
from tests.deliveries import NONE, account, gitea_pull, gitea_push, gitea_status, repository
from tests.fixtures_webhooks import Letters

HEAD, OURS, M, THEIRS = Sha("a" * 40), Sha("b" * 40), Sha("c" * 40), Sha("d" * 40)
PULL = 5


def at_work(letters: Letters, stage: Stage = Stage.REVIEW) -> Task:
    """A task with a branch, a pull request, an own commit and a candidate."""
    task = letters.store.new_task(stage=stage)
    with letters.store.database.write() as tx:
        tasks.set_branch(tx, task.id, f"orch/{task.work_item}-x", Sha("e" * 40))
        tasks.set_head(tx, task.id, HEAD)
        tasks.set_pr(tx, task.id, PULL)
        evidence.add_own_commit(tx, task, OURS)
        evidence.add_candidate(
            tx, Candidate(task.id, task.round, M, Sha("1" * 40), HEAD, HEAD, "n", 900, "f")
        )
        return tasks.get(tx, task.id)


def branch(task: Task) -> str:
    assert task.branch is not None
    return task.branch


def notes(letters: Letters, task: Task) -> list[str]:
    query = "SELECT data FROM events WHERE task_id = :id AND type = 'note' ORDER BY id"
    return [row["data"] for row in letters.store.rows(query, {"id": task.id})]


def dealt_with(letters: Letters, kind: str, payload: Any) -> str:
    sent = letters.gitea(kind, payload)
    letters.run()
    return str(letters.outcome(sent))


def test_branch_moved_by_a_stranger(letters: Letters) -> None:
    task = at_work(letters)
    assert THEIRS in dealt_with(letters, "push", gitea_push(branch(task), THEIRS, before=HEAD))
    assert letters.woken == [task.id]
    [note] = notes(letters, task)
    assert THEIRS in note and "dana" in note
    after = letters.store.task(task.id)
    assert (after.stage, after.head_sha, after.epoch) == (task.stage, HEAD, task.epoch)


@pytest.mark.parametrize("sha", [HEAD, OURS, M])
def test_our_own_push_is_known_by_the_ledger(letters: Letters, sha: str) -> None:
    task = at_work(letters)
    assert dealt_with(letters, "push", gitea_push(branch(task), sha)) == "our own push"
    assert notes(letters, task) == []


def test_branch_removed(letters: Letters) -> None:
    task = at_work(letters)
    assert "removed" in dealt_with(letters, "push", gitea_push(branch(task), NONE, before=HEAD))
    gone = {
        "ref": branch(task),
        "ref_type": "branch",
        "repository": repository("/nowhere"),
        "sender": account(),
    }
    assert "removed" in dealt_with(letters, "delete", gone)
    assert dealt_with(letters, "delete", {**gone, "ref_type": "tag"}) == "nothing to do"


def test_main_moved_wakes_those_for_whom_it_matters(letters: Letters) -> None:
    near = at_work(letters, Stage.TESTING)
    far = letters.store.new_task(stage=Stage.REVIEW)
    assert "default branch was moved" in dealt_with(letters, "push", gitea_push("main", THEIRS))
    assert letters.woken == [near.id]
    assert far.id not in letters.woken


def test_our_own_merge(letters: Letters) -> None:
    task = at_work(letters)
    assert dealt_with(letters, "push", gitea_push("main", M)) == "our own merge"
    assert letters.woken == [task.id]


@pytest.mark.parametrize("state", ["success", "failure", "error", "a state of the future"])
def test_status_of_the_head_and_of_the_candidate(letters: Letters, state: str) -> None:
    task = at_work(letters)
    assert state in dealt_with(letters, "status", gitea_status(HEAD, state))
    assert state in dealt_with(letters, "status", gitea_status(M, state))
    assert letters.woken == [task.id, task.id]


def test_status_of_a_commit_of_the_past_is_nothing(letters: Letters) -> None:
    task = at_work(letters)
    assert "no task shows" in dealt_with(letters, "status", gitea_status(OURS, "failure"))
    late = letters.gitea("status", gitea_status(HEAD, "failure"))
    with letters.store.database.write() as tx:
        tasks.set_head(tx, task.id, THEIRS)  # while it lay in the inbox
    letters.run()
    assert "no task shows" in str(letters.outcome(late))
    assert (notes(letters, task), letters.woken) == ([], [])


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("status", gitea_status(HEAD, "pending")),
        (
            "workflow_run",
            {
                "workflow_run": {"head_sha": HEAD, "status": "in_progress"},
                "repository": repository("/nowhere"),
            },
        ),
    ],
)
def test_check_that_has_not_ended_says_nothing(letters: Letters, kind: str, payload: Any) -> None:
    task = at_work(letters)
    assert dealt_with(letters, kind, payload) == "nothing to do"
    assert notes(letters, task) == []


RUN = {"head_sha": HEAD, "status": "completed", "conclusion": "failure"}
JOB = {"head_sha": HEAD, "name": "unit", "status": "completed", "conclusion": "success"}


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        ("workflow_run", {"workflow_run": RUN, "workflow": {"name": "ci"}}, "ci said failure"),
        ("workflow_job", {"workflow_job": JOB}, "unit said success"),
        ("action_run_recover", {"run": {"commit_sha": HEAD, "workflow_id": "ci.yml"}}, "ci.yml said recover"),
    ],
)
def test_workflows(letters: Letters, kind: str, payload: Any, said: str) -> None:
    task = at_work(letters)
    inside = payload.get("run", payload)
    inside["repository"] = repository("/nowhere")
    assert said in dealt_with(letters, kind, payload)
    assert letters.woken == [task.id]


@pytest.mark.parametrize(
    ("action", "merged", "what"),
    [
        ("closed", False, "was closed"),
        ("closed", True, "was merged"),
        ("reopened", False, "was reopened"),
        ("deleted", False, "was deleted"),
    ],
)
def test_pull_request_is_to_be_looked_at(letters: Letters, action: str, merged: bool, what: str) -> None:
    task = at_work(letters)
    assert what in dealt_with(letters, "pull_request", gitea_pull(action, PULL, branch(task), merged=merged))
    [word] = letters.words(task)
    assert (word.signal.kind, word.signal.person) == ("pull-request", "dana")
    assert letters.woken == [task.id]
    assert letters.store.task(task.id).hold is None  # the engine asks the forge before it believes it


@pytest.mark.parametrize("kind", ["pull_request_review_approved", "pull_request_review_rejected"])
def test_a_review_has_the_task_looked_at_and_is_not_believed(letters: Letters, kind: str) -> None:
    task = at_work(letters)
    told = {**gitea_pull("reviewed", PULL, branch(task)), "review": {"type": kind, "content": "Looks right"}}
    assert f"pull request {PULL} was reviewed" in dealt_with(letters, kind, told)
    assert letters.woken == [task.id]
    assert letters.words(task) == []
    assert "about no task" in dealt_with(letters, kind, gitea_pull("reviewed", 77, branch(task), head_repo=8))
    assert "nothing to do" in dealt_with(letters, "pull_request_review_comment", told)


def test_head_of_the_pull_request(letters: Letters) -> None:
    task = at_work(letters)
    ours = gitea_pull("synchronized", PULL, branch(task), head=M)
    assert dealt_with(letters, "pull_request_sync", ours) == "our own push"
    theirs = gitea_pull("synchronize", PULL, branch(task), head=THEIRS)
    assert THEIRS in dealt_with(letters, "pull_request", theirs)
    assert (len(notes(letters, task)), letters.words(task)) == (1, [])


def test_pull_request_of_a_fork_or_of_another_kind(letters: Letters) -> None:
    task = at_work(letters)
    fork = gitea_pull("closed", 77, branch(task), head_repo=8)
    assert dealt_with(letters, "pull_request", fork) == "about no task of ours"
    assert dealt_with(letters, "pull_request", gitea_pull("edited", PULL, branch(task))) == "nothing to do"
    assert (
        dealt_with(letters, "pull_request_label", gitea_pull("label_updated", PULL, "x")) == "nothing to do"
    )
    assert letters.words(task) == []


def test_two_closings_are_two_and_two_deliveries_of_one_are_one(letters: Letters) -> None:
    """gitea: the times of a pull request tell events apart; ids, hooks and caches do not."""
    task = at_work(letters)
    closed = gitea_pull("closed", PULL, branch(task))
    letters.gitea("pull_request", closed)
    same = {
        **closed,
        "repository": repository("/nowhere") | {"size": 97},
        "sender": account() | {"last_login": "now"},
    }
    assert letters.send("gitea", "pull_request", same) is None
    letters.gitea("pull_request", gitea_pull("reopened", PULL, branch(task), at="2026-02-03T09:01:00Z"))
    letters.gitea("pull_request", gitea_pull("closed", PULL, branch(task), at="2026-02-03T09:02:00Z"))
    letters.run()
    assert len(letters.words(task)) == 3


def test_repeat_has_the_task_looked_at_again(letters: Letters) -> None:
    """A push that comes again in the same words may be a new one: a look at the truth costs nothing."""
    task = at_work(letters)
    payload = gitea_push(branch(task), THEIRS)
    letters.gitea("push", payload)
    letters.run()
    letters.woken.clear()
    assert letters.send("gitea", "push", payload) is None
    assert letters.woken == [task.id]


def test_event_of_another_repository_branch_or_ended_task(letters: Letters) -> None:
    task = at_work(letters)
    other = gitea_push(branch(task), THEIRS, address="/elsewhere")
    assert dealt_with(letters, "push", other) == "about no repository of ours"
    assert dealt_with(letters, "push", gitea_push("feature/x", THEIRS)) == "about no task of ours"
    assert dealt_with(letters, "create", {"ref": "x"}) == "nothing to do"
    letters.store.move(task.id, Stage.CANCELLED)
    assert dealt_with(letters, "push", gitea_push(branch(task), "9" * 40)) == "the task has ended"
    assert dealt_with(letters, "pull_request", gitea_pull("closed", PULL, "x")) == "the task has ended"
    assert (letters.woken, notes(letters, task)) == ([], [])
