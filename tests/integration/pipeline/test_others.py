"""What others say at the forge: named checks and people's reviews, over either kind of server, through the pipeline."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.played.common.faults import How
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub
from orchestrator.repositories import GITEA, GITHUB
from tests.at_a_server import Delivery, delivering
from tests.fixtures_pipeline import Build, Pipeline, config_of
from tests.waiting import PATIENCE_S, wait_until

KINDS = {GITEA: FakeGitea, GITHUB: FakeGitHub}
APPROVE = {GITEA: "APPROVED", GITHUB: "APPROVE"}
CHECKS = '[forge]\nrequired_checks = ["build"]\n'
REVIEWS = "[forge]\nrequired_reviews = 1\n"
AGAIN = {"role": "developer", "round": 2, "write": {"src/again.py": "AGAIN = 1\n"}}
PARTIES = ("dana", "erin", "ci", "mallory")


@dataclass(frozen=True)
class AtForge(Delivery):
    """A delivery, and what others do at the server."""

    kind: str

    def check(self, sha: str, state: str, summary: str = "", name: str = "build") -> None:
        """A check says how far it is: at GitHub as a run, at Gitea as a status."""
        if self.kind == GITEA:
            said = {
                "context": name,
                "state": state,
                "description": summary,
                "target_url": "https://ci.example/7",
            }
            self.server.say("ci", "POST", self.there, f"/statuses/{sha}", said)
            return
        ended = {} if state == "pending" else {"conclusion": state}
        place = {"path": "src/new.py", "start_line": 1, "annotation_level": "failure", "message": "Here"}
        output = {"title": "", "summary": summary, "annotations": [place] if state == "failure" else []}
        run = {"name": name, "head_sha": sha, "app": 7, "output": output, **ended}
        self.server.say("ci", "POST", self.there, "/check-runs", run)

    def review(self, login: str, event: str, sha: str, body: str = "", *remarks: dict[str, Any]) -> None:
        event = APPROVE[self.kind] if event == "APPROVE" else event
        number = self.there.pulls[-1].number
        said = {"event": event, "commit_id": sha, "body": body, "comments": list(remarks)}
        self.server.say(login, "POST", self.there, f"/pulls/{number}/reviews", said)


Build_ = Callable[..., AtForge]


@pytest.fixture(params=[GITEA, GITHUB])
def forge(request: pytest.FixtureRequest, pipeline: Build, tmp_path: Path) -> Iterator[Build_]:
    kind = request.param
    with delivering(pipeline, KINDS[kind](tmp_path / "server"), kind) as build:

        def made(*args: Any, **more: Any) -> AtForge:
            at = build(*args, **more)
            at.there.rights |= {"erin": "write", "ci": "write", "mallory": "read"}
            return AtForge(at.line, at.server, at.there, kind)

        yield made


def by_webhooks(at: AtForge) -> None:
    """What happens at the server is told to us at once, as its own delivery would be."""
    told = count()

    def deliver(event: str, payload: Any, more: Any = (), **_: Any) -> None:
        body = json.loads(json.dumps(payload))
        at.line.app.receiver.receive(at.kind, event, f"d-{next(told)}", body)

    at.server.hooks.tell = deliver


def waits(line: Pipeline, item: str, words: str) -> Task:
    return line.wait_for(item, lambda task: task.hold is Hold.BLOCKED and words in str(task.hold_reason))


@pytest.mark.long(but=["gitea"])
def test_a_check_that_failed_goes_back_with_its_words_and_one_that_passed_lets_through(forge: Build_) -> None:
    at = forge(more=CHECKS)
    line = at.line.start()
    line.agent(AGAIN)
    by_webhooks(at)
    item = line.add()
    task = waits(line, item, "build (not there)")
    assert task.stage is Stage.DEVELOPMENT
    at.check(str(task.head_sha), "pending")
    waits(line, item, "build (")
    at.check(str(task.head_sha), "success", name="Build")  # another one
    at.check(str(task.head_sha), "failure", "2 of 7 tests failed:\x1b[2J total()")
    again = line.wait_for(item, lambda t: t.round == 2 and t.hold is Hold.BLOCKED)
    notes = line.agents(item)[-1]["notes"]
    assert "2 of 7 tests failed: [2J total()" in notes
    assert str(task.head_sha) in notes
    assert ("src/new.py:1: Here" in notes) == (at.kind == GITHUB)
    assert again.head_sha != task.head_sha
    at.check(str(again.head_sha), "success")
    done = line.done(item)
    assert done.gated_sha == again.head_sha
    assert line.moves(item).count(("development", "development", "reject")) == 1
    [candidate] = line.story(item).candidates
    assert at.main == candidate.sha


@pytest.mark.long(but=["github"])
def test_a_review_is_waited_for_heard_and_about_one_commit(forge: Build_) -> None:
    at = forge(more=REVIEWS)
    line = at.line.start()
    line.agent(AGAIN)
    by_webhooks(at)
    item = line.add()
    task = waits(line, item, "waits for an approval")
    assert task.stage is Stage.TESTING
    page = at.there.pulls[0].number
    assert line.slots() == []
    assert any(f"/{page}" in text and "waits for an approval" in text for text in line.alerts())
    at.review("mallory", "APPROVE", str(task.head_sha))
    waits(line, item, "mallory may not approve here")
    at.review("mallory", "REQUEST_CHANGES", str(task.head_sha), "I do not like it")
    at.review("erin", "APPROVE", str(task.base_sha))
    waits(line, item, "erin approved")
    remark = {"path": "src/new.py", "line": 1, "new_position": 1, "body": "Call it OLD"}
    at.review("dana", "REQUEST_CHANGES", str(task.head_sha), "Rounding is wrong", remark)
    again = line.wait_for(
        item, lambda t: t.stage is Stage.TESTING and t.hold is Hold.BLOCKED and t.round == 2
    )
    notes = next(
        run["notes"] for run in line.agents(item) if run["role"] == "developer" and run["round"] == 2
    )
    assert "dana asks for changes: Rounding is wrong" in notes
    assert "src/new.py:1: Call it OLD" in notes
    assert "mallory" not in notes
    at.review("erin", "APPROVE", str(task.gated_sha))  # of what was tested before
    waits(line, item, "erin approved")
    at.review("dana", "APPROVE", str(again.gated_sha))
    line.done(item)
    assert len(at.merges()) == 1
    assert line.moves(item).count(("testing", "development", "reject")) == 1


@pytest.mark.long
def test_changes_that_are_asked_for_during_staging_stop_the_merge(forge: Build_) -> None:
    at = forge(more=REVIEWS + "[approvals]\ndeploy = true\n")
    line = at.line.start()
    line.agent(AGAIN)
    item = line.add()
    task = waits(line, item, "waits for an approval")
    at.review("dana", "APPROVE", str(task.head_sha))
    line.held(item, Hold.PERSON)
    at.review("dana", "REQUEST_CHANGES", str(task.head_sha), "Wait, this is wrong")
    line.app.operations.approve(item, person="Ann")
    again = line.wait_for(
        item, lambda t: t.stage is Stage.TESTING and t.hold is Hold.BLOCKED and t.round == 2
    )
    assert ("deploy-staging", "development", "reject") in line.moves(item)
    assert at.merges() == []
    at.review("dana", "APPROVE", str(again.head_sha))
    line.held(item, Hold.PERSON)
    line.app.operations.approve(item, person="Ann")
    line.done(item)
    assert len(at.merges()) == 1


@pytest.mark.long
def test_an_approval_that_is_taken_back_during_staging_frees_the_slots(forge: Build_) -> None:
    at = forge(more=REVIEWS + "[approvals]\ndeploy = true\n")
    line = at.line.start()
    item = line.add()
    task = waits(line, item, "waits for an approval")
    at.review("dana", "APPROVE", str(task.head_sha))
    line.held(item, Hold.PERSON)
    with at.there.lock:
        at.there.pulls[0].reviews[0] |= {"state": "DISMISSED"} if at.kind == GITHUB else {"dismissed": True}
    line.app.operations.approve(item, person="Ann")
    line.wait_for(item, lambda t: t.stage is Stage.TESTING and t.hold is Hold.BLOCKED)
    assert line.slots() == []
    assert at.merges() == []
    at.review("erin", "APPROVE", str(task.gated_sha))
    line.held(item, Hold.PERSON)
    line.app.operations.approve(item, person="Ann")
    line.done(item)
    assert line.roles(item) == ["analyst", "developer", "reviewer", "tester"]


@pytest.mark.long
def test_a_check_that_never_comes_calls_a_person_who_says_go_on(forge: Build_) -> None:
    at = forge(more='[forge]\nrequired_checks = ["build", "lint"]\nchecks_timeout = "20m"\n')
    line = at.line.start()
    item = line.add()
    task = waits(line, item, "lint (not there)")
    at.check(str(task.head_sha), "success")
    at.check(str(task.head_sha), "success", name="Lint")
    waits(line, item, "lint (not there)")
    line.clock.ahead = timedelta(minutes=21)
    held = line.held(item, Hold.ESCALATED)
    assert "So it has been for 20m" in str(held.hold_reason)
    assert "Did you mean Lint?" in str(held.hold_reason)
    line.retry(item)
    waits(line, item, "lint (not there)")
    at.check(str(task.head_sha), "success", name="lint")
    line.done(item)
    assert line.roles(item) == ["analyst", "developer", "reviewer", "tester"]


@pytest.mark.long
def test_main_that_asks_for_more_meanwhile_is_obeyed(forge: Build_) -> None:
    """The task's own base asks for nobody; main does when the task is to take the slots."""
    at = forge()
    line = at.line.start()

    def main_asks() -> None:
        line.person.commit("Ask people", {".orchestrator.toml": config_of(line.root, REVIEWS)})
        line.person.git("push", "-q", str(at.there.path), "HEAD:main")

    line.points.on("check_testing.judged", main_asks)
    item = line.add()
    task = waits(line, item, "waits for an approval")
    assert task.stage is Stage.TESTING
    at.review("dana", "APPROVE", str(task.head_sha))
    line.done(item)


@pytest.mark.long
def test_a_server_in_trouble_is_asked_again_and_nothing_is_believed_of_half_an_answer(forge: Build_) -> None:
    at = forge(more=CHECKS)
    line = at.line.start()
    garbage = at.server.fail("GET", r"/(statuses|check-runs)$", How.GARBAGE, times=2)
    at.server.fail("GET", r"/(statuses|check-runs)$", How.BEFORE, status=502, times=2)
    item = line.add()
    wait_until(lambda: garbage.times == 0)
    task = waits(line, item, "build (not there)")
    at.server.fail("GET", r"/(statuses|check-runs)$", How.BEFORE, status=403, times=10**6)
    wait_until(lambda: "cannot be read" in line.why(item))
    line.clock.ahead = timedelta(hours=2)
    held = line.held(item, Hold.ESCALATED)
    assert "could not be read for 1h" in str(held.hold_reason)
    at.server.journal.faults.clear()
    line.retry(item)
    for number in range(120):
        at.check(str(task.head_sha), "success", name=f"other {number}")
    at.check(str(task.head_sha), "success")
    line.done(item)


@pytest.mark.long
def test_a_restart_forgets_nobody_who_waits(forge: Build_) -> None:
    at = forge(more=CHECKS)
    line = at.line.start()
    item = line.add()
    task = waits(line, item, "build (not there)")
    line.restart()
    wait_until(lambda: line.app.reconciler.snapshot()["passes"])
    at.check(str(task.head_sha), "success")
    line.app.reconciler.run_once()
    line.done(item)


@pytest.mark.long
@pytest.mark.parametrize(
    "point", ["check_forge_reviews.judged", "transition.before_commit", "transition.after_commit"]
)
def test_killed_while_changes_are_asked_for_they_are_handed_over_once(forge: Build_, point: str) -> None:
    at = forge(more=REVIEWS)
    line = at.line.start()
    line.agent(AGAIN)
    item = line.add()
    task = waits(line, item, "waits for an approval")
    line.stop()
    at.review("dana", "REQUEST_CHANGES", str(task.head_sha), "Rounding is wrong")
    assert line.child(point, 1).wait(PATIENCE_S) == -signal.SIGKILL
    line.start()
    again = line.wait_for(
        item, lambda t: t.stage is Stage.TESTING and t.hold is Hold.BLOCKED and t.round == 2
    )
    assert line.moves(item).count(("testing", "development", "reject")) == 1
    told = [run["notes"] for run in line.agents(item) if run["role"] == "developer"]
    assert sum("Rounding is wrong" in notes for notes in told) == 1
    at.review("dana", "APPROVE", str(again.head_sha))
    line.done(item)
    assert len(at.merges()) == 1


def test_a_local_forge_has_nobody_to_ask(pipeline: Build) -> None:
    line = pipeline(REVIEWS).start()
    item = line.add()
    task = line.held(item, Hold.BLOCKED)
    assert "a local forge has none" in str(task.hold_reason)
    assert line.agents(item) == []
