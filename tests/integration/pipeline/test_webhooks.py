"""Webhooks through the whole service: a person's word from the tracker, a person's hand at the forge, kills between."""

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.domain.event import EventType
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from tests.deliveries import USER, gitea_pull, gitea_push, gitea_status, plane_comment, plane_state
from tests.fixtures_pipeline import Build, Pipeline
from tests.waiting import wait_until

ASKING = "[approvals]\nanalysis = true\n"
CONFIRMING = "[approvals]\ndeploy = true\n"
OURS = {"ORCH_PLANE_USER": USER}
TICKET = "ticket-1"
LATER = "2100-01-01T00:00:00.000000Z"


def told(line: Pipeline, source: str, kind: str, payload: dict[str, Any]) -> int:
    """Deliver; the id in the inbox."""
    received = line.app.receiver.receive(source, kind, line.app.entropy.uuid(), payload)
    assert received.inbox_id is not None
    return received.inbox_id


def said(line: Pipeline, payload: dict[str, Any]) -> int:
    return told(line, "plane", payload["event"], payload)


def forge_says(line: Pipeline, kind: str, payload: dict[str, Any]) -> int:
    return told(line, "gitea", kind, payload)


def address(line: Pipeline) -> str:
    return str(line.forge.folder)


def pull(line: Pipeline, item: str, action: str, **more: Any) -> dict[str, Any]:
    task = line.task(item)
    assert task.pr_number and task.branch
    return gitea_pull(action, task.pr_number, task.branch, address=address(line), **more)


def shut(line: Pipeline, item: str, *, closed: bool = True) -> None:
    """A person closes the pull request at the forge, or opens it again."""
    place = line.forge.folder / "orch" / "pulls" / f"{line.task(item).pr_number}.json"
    record = json.loads(place.read_text()) | {"closed": closed}
    aside = place.with_suffix(".new")
    aside.write_text(json.dumps(record))
    aside.replace(place)


def outcome(line: Pipeline, inbox_id: int) -> str:
    def found() -> str | None:
        with line.app.database.read() as tx:
            row = tx.one("mail.signal", inbox_id=inbox_id)
        return row["outcome"] if row else None

    return str(wait_until(found))


def waits(line: Pipeline, **ticket: Any) -> str:
    item = line.add(tracker="plane", external_id=TICKET, **ticket)
    line.held(item, Hold.PERSON)
    return item


def test_approved_and_confirmed_in_the_tracker(pipeline: Build) -> None:
    line = pipeline("[approvals]\nanalysis = true\ndeploy = true\n", settings=OURS).start()
    item = waits(line)
    said(line, plane_state("Approved", ticket=TICKET, at=LATER))
    line.wait_for(item, lambda task: task.stage is Stage.DEPLOY_STAGING and task.hold is Hold.PERSON)
    said(line, plane_comment("<p>orch task approve</p>", ticket=TICKET, at=LATER))
    line.done(item)
    assert len(line.merges()) == 1
    words = [
        e.data["signal"]
        for e in line.events(item)
        if e.type is EventType.SIGNAL_APPLIED and "signal" in e.data
    ]
    assert words == ["approved", "confirm-deploy"]


def test_word_that_came_while_the_task_was_owned_is_applied_afterwards(pipeline: Build) -> None:
    """TC-08, through the whole service."""
    line = pipeline(ASKING, settings=OURS).start()
    item = waits(line)
    with ExitStack() as owned:
        task_id = line.task(item).id
        wait_until(lambda: owned.enter_context(line.app.ownership.transition(task_id, Actor.MONITOR)))
        sent = said(line, plane_state("Approved", ticket=TICKET, at=LATER))
        wait_until(lambda: "webhook" in str(line.app.ownership.snapshot()["deferred"]))
        assert line.app.operations.queue()["inbox"]["open"] == 1  # type: ignore[index]
    assert outcome(line, sent) == "stored as approved"
    line.done(item)


def test_replay_of_an_earlier_rounds_approval_approves_nothing(pipeline: Build) -> None:
    """H14: the same delivery comes again while another analysis is on show, under a new id and with new caches."""
    line = pipeline(ASKING, settings=OURS).start()
    item = waits(line)
    first = line.task(item)
    payload = plane_comment("<p>orch approve</p>", ticket=TICKET, at=first.created_at)
    line.clock.ahead = timedelta(minutes=5)
    line.app.operations.reject(item, person="Ann", reason="Again.")
    line.wait_for(item, lambda task: task.round == 2 and task.hold is Hold.PERSON)
    late = said(line, payload)  # was given for round 1, arrives only now
    assert "before what is on show" in outcome(line, late)
    assert line.app.receiver.receive(
        "plane", "issue_comment", "again", {**payload, "webhook_id": "2"}
    ).repeated
    assert (line.task(item).round, line.task(item).hold) == (2, Hold.PERSON)
    line.app.outbox.run_once()
    assert any(e.type is EventType.SIGNAL_REFUSED for e in line.events(item))


def test_cancelled_in_the_tracker(pipeline: Build) -> None:
    line = pipeline(ASKING, settings=OURS).start()
    item = waits(line)
    said(line, plane_state("Cancelled", ticket=TICKET, at=LATER))
    line.stage(item, Stage.CANCELLED)
    assert "ann" in line.moves(item)[-1][2] or "ann" in line.told(item)


POINTS = ["inbox.before_handle", "inbox.after_handle"]


@pytest.mark.parametrize("point", POINTS)
def test_killed_while_a_word_is_dealt_with(pipeline: Build, point: str) -> None:
    line = pipeline(CONFIRMING, settings=OURS).start()
    item = waits(line)
    line.stop()
    line.open()
    said(line, plane_state("Confirm Deploy", ticket=TICKET, at=LATER))
    line.stop()
    assert line.child(point).wait(60) == -signal.SIGKILL
    line.start()
    line.done(item)
    assert len(line.merges()) == 1
    applied = [e for e in line.events(item) if e.type is EventType.SIGNAL_APPLIED and "signal" in e.data]
    received = [e for e in line.events(item) if e.type is EventType.SIGNAL_RECEIVED]
    assert (len(applied), len(received)) == (1, 1)


@pytest.mark.parametrize("point", POINTS)
def test_killed_while_a_closed_pull_request_is_dealt_with(pipeline: Build, point: str) -> None:
    line = pipeline(CONFIRMING).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    line.stop()
    line.open()
    shut(line, item)
    forge_says(line, "pull_request", pull(line, item, "closed"))
    line.stop()
    assert line.child(point).wait(60) == -signal.SIGKILL
    line.start()
    line.held(item, Hold.BLOCKED)
    assert line.slots() == []


# --- a person's hand at the forge -------------------------------------------------------------------------------------


def test_closed_pull_request_holds_the_task_and_reopened_it_goes_on(pipeline: Build) -> None:
    line = pipeline(CONFIRMING).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    shut(line, item)
    forge_says(line, "pull_request", pull(line, item, "closed"))
    task = line.held(item, Hold.BLOCKED)
    assert "was closed by hand" in str(task.hold_reason)
    assert task.stage is Stage.TESTING  # nobody waits for a person with the slots in hand
    assert line.slots() == []
    assert len([alert for alert in line.alerts() if "closed by hand" in alert]) == 1
    receipt = line.app.operations.retry(item, person="Ann")
    assert "closed by hand" in line.outcome(receipt)
    shut(line, item, closed=False)
    forge_says(line, "pull_request", pull(line, item, "reopened"))
    line.held(item, Hold.PERSON)
    line.app.operations.approve(item, person="Ann")
    line.done(item)
    assert len(line.pulls()) == 1
    assert line.roles(item).count("developer") == 1
    assert not any(kind == "reject" for _, _, kind in line.moves(item))


def test_pull_request_closed_while_an_agent_works(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "reviewer", "until": str(line.root / "go")})
    item = line.add()
    line.started(item, "reviewer")
    shut(line, item)
    forge_says(line, "pull_request", pull(line, item, "closed"))
    assert line.held(item, Hold.BLOCKED).stage is Stage.REVIEW
    (line.root / "go").touch()
    wait_until(lambda: line.app.operations.queue()["running"] == [])
    assert "tester" not in line.roles(item)
    shut(line, item, closed=False)
    # The forge has not told of it: the net finds out, at its next pass where the task is just owned.
    wait_until(lambda: line.app.reconciler.run_once() and line.task(item).hold is not Hold.BLOCKED)
    line.done(item)
    assert line.roles(item).count("reviewer") == 1


def test_closed_pull_request_is_noticed_before_the_merge_without_any_webhook(pipeline: Build) -> None:
    line = pipeline(CONFIRMING).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    shut(line, item)
    line.app.operations.approve(item, person="Ann")
    line.held(item, Hold.BLOCKED)
    assert line.merges() == []


def test_no_event_ever_comes_and_the_reconciler_alone_brings_the_task_to_its_end(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wake-up of our own is lost as well; main moves and a person answers, and nobody is told of that either."""
    line = pipeline(CONFIRMING)
    app = line.open()
    monkeypatch.setattr(app.wakeups, "on_tasks", lambda listener, others_too: None)
    line.start()
    wait_until(lambda: app.reconciler.snapshot()["passes"])  # the first one, at the start
    item = line.add()
    assert (line.task(item).stage, app.driver.snapshot()) == (Stage.CREATED, {"busy": 0, "due": 0})

    def passing(until: Callable[[Task], bool]) -> Task:
        def seen() -> Task | None:
            app.reconciler.run_once()
            return task if until(task := line.task(item)) else None

        return wait_until(seen)

    first = passing(lambda task: task.hold is Hold.PERSON)
    line.push_to_main({"NEWS.md": "By somebody else.\n"})
    app.operations.approve(item, person="Ann")
    passing(lambda task: task.hold is Hold.PERSON and task.round > first.round)
    app.operations.approve(item, person="Ann")
    passing(lambda task: task.stage is Stage.DONE)
    assert len(line.merges()) == 1
    assert app.operations.queue()["inbox"]["open"] == 0  # type: ignore[index]


def test_closed_says_a_liar_and_nothing_happens(pipeline: Build) -> None:
    """The message is a hint: the forge shows an open pull request."""
    line = pipeline(CONFIRMING).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    sent = forge_says(line, "pull_request", pull(line, item, "closed"))
    assert "was closed" in outcome(line, sent)
    wait_until(lambda: not line.unanswered(item))
    assert line.task(item).hold is Hold.PERSON
    line.app.operations.approve(item, person="Ann")
    line.done(item)


def test_cancelled_task_of_a_closed_pull_request(pipeline: Build) -> None:
    line = pipeline(CONFIRMING).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    shut(line, item)
    forge_says(line, "pull_request", pull(line, item, "closed"))
    line.held(item, Hold.BLOCKED)
    line.app.operations.cancel(item, person="Ann")
    line.stage(item, Stage.CANCELLED)


def test_pull_request_merged_by_hand_goes_on_through_its_gates(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "reviewer", "until": str(line.root / "go")})
    item = line.add()
    line.started(item, "reviewer")
    branch = line.task(item).branch
    line.person.git("pull", "-q", "--no-edit", "--no-rebase", address(line), "main")
    line.person.git("fetch", "-q", address(line), str(branch))
    line.person.git("merge", "-q", "--no-ff", "-m", "By hand", "FETCH_HEAD")
    line.person.git("push", "-q", address(line), "HEAD:main")
    forge_says(line, "pull_request", pull(line, item, "closed", merged=True))
    wait_until(lambda: "pull request 1 is merged" in line.told(item))
    (line.root / "go").touch()
    line.done(item)
    line.app.outbox.run_once()
    comments = line.app.tracker.history(line.task(item).work_item)
    assert any("merged, by hand" in str(comment) for comment in comments)


@pytest.mark.long
def test_branch_moved_by_a_stranger_while_it_waits(pipeline: Build) -> None:
    line = pipeline(CONFIRMING).start()
    item = line.add()
    task = line.held(item, Hold.PERSON)
    theirs = line.push_to_branch(str(task.branch), {"src/theirs.py": "T = 1\n"})
    forge_says(line, "push", gitea_push(str(task.branch), theirs, address=address(line)))
    wait_until(lambda: any(e.type is EventType.NOTE and theirs in str(e.data) for e in line.events(item)))
    line.app.operations.approve(item, person="Ann")
    line.wait_for(
        item,
        lambda t: (
            t.stage is Stage.DEVELOPMENT or ("deploy-staging", "development", "reject") in line.moves(item)
        ),
    )
    assert line.merges() == []


def test_pushes_and_checks_of_a_delivery_are_our_own(pipeline: Build) -> None:
    """What the forge echoes of our own acts changes nothing."""
    line = pipeline(CONFIRMING).start()
    item = line.add()
    task = line.held(item, Hold.PERSON)
    [candidate] = line.story(item).candidates
    echoes = [
        forge_says(line, "push", gitea_push(str(task.branch), str(task.head_sha), address=address(line))),
        forge_says(line, "pull_request_sync", pull(line, item, "synchronized", head=candidate.sha)),
        forge_says(line, "status", gitea_status(candidate.sha, "success", address=address(line))),
    ]
    assert [outcome(line, one).split(" about")[0] for one in echoes] == [
        "our own push",
        "our own push",
        "ci/unit said success",
    ]
    line.app.operations.approve(item, person="Ann")
    line.done(item)
    merged = forge_says(line, "push", gitea_push("main", line.main, address=address(line)))
    assert outcome(line, merged) == "our own merge"
