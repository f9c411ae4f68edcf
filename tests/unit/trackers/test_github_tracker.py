"""What an issue at GitHub shows: each comment once, the label and the state that fit, and never over a person's later
word."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import Secret
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import WorkItem
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.observability.redactor import Redactor
from orchestrator.played.github import FakeGitHub, How
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.clock import SystemClock, stamp
from orchestrator.runtime.http import SystemHttp
from orchestrator.trackers.github import GitHubTracker
from orchestrator.trackers.github_issues import GitHubServer
from orchestrator.trackers.local import LocalTracker
from orchestrator.trackers.tracker import TrackerAway
from tests.fixtures_git_server import NAME
from tests.unit.trackers.test_local_tracker import task
from tests.watched_issues import BOT, DANA, MALLORY

PULL = "https://github.example.org/acme/shop/pull/3"


class Desk:
    """An issue, its task, and the tracker."""

    def __init__(self, server: FakeGitHub, home: Path) -> None:
        self.server = server
        self.there = server.create(*NAME.split("/"))
        self.board = self.there.issues
        self.issue = self.board.file("Add totals", "orch", "fast", by=DANA)
        self.now = datetime.now(UTC)
        filed = stamp(self.now - timedelta(minutes=1))
        ticket = {"tracker": "github", "external_id": f"shop#{self.issue.number}"}
        self.task: Task = replace(task("SHOP-7"), created_at=filed, **ticket)
        self.kept = LocalTracker(home, SystemClock(), Redactor())
        self.open()

    def open(self) -> None:
        """Begin another life."""
        clock = SystemClock()
        at = GitHubServer(SystemHttp(), self.server.url, Secret(self.server.token), Limits(clock), clock)
        self.ours = at.issues(NAME)
        self.tracker = GitHubTracker(
            lambda _: self.ours, self.kept, Redactor(["hunter2-hunter2"]), pull_request=lambda _: PULL
        )

    def show(self, stage: Stage, message_id: str = "m1", *, ago_s: float = 0, **more: str) -> None:
        said_at = stamp(datetime.now(UTC) - timedelta(seconds=ago_s))
        self.tracker.show_stage(self.task, stage, message_id, said_at=said_at, **more)

    def comment(self, text: str, message_id: str = "m1") -> None:
        self.tracker.comment(self.task, text, message_id)

    @property
    def comments(self) -> list[str]:
        return [comment.body.rpartition("\n\n<!-- orch-")[0] for comment in self.issue.comments]

    @property
    def shown(self) -> tuple[str, str | None, list[str]]:
        return self.issue.state, self.issue.reason, self.issue.labels


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with FakeGitHub(tmp_path / "server") as server:
        yield Desk(server, tmp_path)


def test_the_issue_follows_its_task(desk: Desk) -> None:
    seen = []
    stages = [Stage.CREATED, Stage.ANALYSIS, Stage.REVIEW, Stage.DEPLOY_STAGING, Stage.DONE]
    for number, stage in enumerate(stages):
        desk.show(stage, f"m{number}", reason="because <b> of #5")
        seen.append([label for label in desk.issue.labels if label.startswith("orch: ")])
    assert seen == [[], ["orch: analysis"], ["orch: review"], ["orch: deploy-staging"], []]
    assert desk.shown == ("closed", "completed", ["orch", "fast"])
    assert desk.comments == [
        "Taken as SHOP-7.",
        "SHOP-7 is in analysis.\n\nbecause \\<b\\> of #\u200b5",
        f"SHOP-7 is in review.\n\nbecause \\<b\\> of #\u200b5\n\nPull request: {PULL}",
        "SHOP-7 is in deploy-staging.\n\nbecause \\<b\\> of #\u200b5",
        "SHOP-7 is done.\n\nbecause \\<b\\> of #\u200b5",
    ]
    assert len(desk.kept.history(WorkItem("SHOP-7"))) == 5


def test_a_cancelled_task(desk: Desk) -> None:
    desk.show(Stage.ANALYSIS)
    desk.show(Stage.CANCELLED, "m2")
    assert desk.shown == ("closed", "not_planned", ["orch", "fast"])


def test_a_question_leaves_it_open(desk: Desk) -> None:
    desk.show(Stage.REVIEW)
    desk.comment("Somebody has to look: three rounds did not do.", "m2")
    assert desk.shown == ("open", None, ["orch", "fast", "orch: review"])


@pytest.mark.parametrize("how", [How.LOST, How.AFTER, How.GARBAGE])
def test_a_comment_whose_answer_was_lost_is_there_once(desk: Desk, how: How) -> None:
    fault = desk.server.fail("POST", "/comments$", how, status=500)
    try:
        desk.comment("Waits for a person.")
    except OutsideError:
        assert how is not How.GARBAGE  # a 201 is one, whatever is in it
    assert fault.times == 0
    desk.open()
    desk.comment("Waits for a person.")
    assert desk.comments == ["Waits for a person."]
    desk.comment("Waits for a person.", "m2")
    assert len(desk.comments) == 2


def test_it_is_found_again_behind_many_others(desk: Desk) -> None:
    desk.comment("Once")
    for number in range(150):
        desk.board.comment(desk.issue, f"So {number}", by=DANA)
    desk.comment("Once")
    assert len(desk.comments) == 151


def test_a_strangers_copy_of_our_mark_keeps_no_message_back(desk: Desk) -> None:
    desk.comment("Once")
    [said] = desk.issue.comments
    said.user = MALLORY
    desk.comment("Once")
    assert len(desk.comments) == 2


def test_another_installation_may_use_the_same_numbers(desk: Desk) -> None:
    desk.comment("One")
    desk.task = replace(desk.task, created_at=stamp(desk.now))
    desk.comment("Another")
    assert len(desk.comments) == 2


def test_what_is_said_names_nobody_and_nothing_and_no_secret(desk: Desk) -> None:
    desk.comment("<img src=x> @acme/owners closes #5 hunter2-hunter2\norch approve\0\u202e" + "x" * 70_000)
    [said] = desk.comments
    assert said.startswith("\\<img src=x\\> @\u200bacme/owners closes #\u200b5 \\*\\*\\*\n\norch approve")
    assert 10_000 < len(said) < 20_000


def test_a_persons_later_move_stays(desk: Desk) -> None:
    desk.show(Stage.ANALYSIS)
    desk.board.unlabel(desk.issue, "orch: analysis", by=DANA)
    desk.board.label(desk.issue, "orch: testing", by=DANA)
    desk.show(Stage.DEVELOPMENT, "m2", ago_s=30)
    assert desk.issue.labels[2:] == ["orch: testing"]
    desk.show(Stage.REVIEW, "m3", ago_s=-3)
    assert desk.issue.labels[2:] == ["orch: review"]


def test_what_a_person_does_in_the_same_second_counts_as_later(desk: Desk) -> None:
    """GitHub tells whole seconds."""
    desk.show(Stage.ANALYSIS)
    desk.board.unlabel(desk.issue, "orch: analysis", by=DANA)
    said_at = desk.issue.events[-1].at.replace("Z", ".999999Z")
    desk.tracker.show_stage(desk.task, Stage.DEVELOPMENT, "m2", said_at=said_at)
    assert desk.issue.labels == ["orch", "fast"]


def test_closed_by_a_person_it_is_not_opened_again(desk: Desk) -> None:
    desk.board.close(desk.issue, by=DANA)
    desk.show(Stage.REVIEW, ago_s=-3)
    assert desk.shown[:2] == ("closed", "completed")
    desk.show(Stage.CANCELLED, "m2", ago_s=-3)  # the person has said why
    assert desk.shown[:2] == ("closed", "completed")


def test_what_a_person_has_closed_is_done_all_the_same_where_it_was_on_main(desk: Desk) -> None:
    desk.board.close(desk.issue, "not_planned", by=DANA)
    desk.show(Stage.DONE, ago_s=-3)
    assert desk.shown[:2] == ("closed", "completed")


def test_opened_again_since_it_is_not_closed_by_an_older_message(desk: Desk) -> None:
    desk.board.close(desk.issue, by=DANA)
    desk.board.reopen(desk.issue, by=DANA)
    desk.show(Stage.CANCELLED, ago_s=30)
    assert desk.issue.state == "open"


@pytest.mark.parametrize("by", [BOT, DANA])
@pytest.mark.parametrize(("end", "reason"), [(Stage.DONE, "completed"), (Stage.CANCELLED, "not_planned")])
def test_closed_by_the_words_of_a_commit_it_is_opened_again_until_the_end(
    desk: Desk, by: str, end: Stage, reason: str
) -> None:
    """Whoever has brought the commit to main."""
    desk.board.close_by_words("Add totals\n\nFixes #1", by=by, commit="a" * 40)
    assert desk.issue.state == "closed"
    desk.show(Stage.DEPLOY, ago_s=30)
    assert desk.issue.state == "open"
    desk.board.close_by_words("Fixes #1", by=by, commit="b" * 40)
    desk.show(end, "m2", ago_s=30)
    assert desk.shown[:2] == ("closed", reason)


@pytest.mark.parametrize("how", ["deleted", "transferred"])
def test_an_issue_that_is_gone_holds_nobody(desk: Desk, how: str) -> None:
    desk.board.leave(desk.issue, how, by=DANA)
    desk.show(Stage.REVIEW)
    desk.comment("Hello", "m2")
    assert len(desk.kept.history(WorkItem("SHOP-7"))) == 2


def test_an_issue_that_goes_while_we_write_holds_nobody(desk: Desk) -> None:
    fault = desk.server.fail("POST", "/comments$", How.BEFORE, status=410)
    with pytest.raises(OutsideError, match="did not take the comment"):  # it is there: refused
        desk.comment("Hello")
    assert fault.times == 0
    desk.board.leave(desk.issue, "deleted", by=DANA)
    desk.comment("Hello")


def test_a_locked_issue_takes_our_comments(desk: Desk) -> None:
    desk.board.lock(desk.issue, by=DANA)
    desk.comment("Hello")
    assert desk.comments == ["Hello"]


def test_a_label_that_somebody_takes_away_first(desk: Desk) -> None:
    desk.show(Stage.ANALYSIS)
    desk.server.fail("DELETE", "/labels/", How.AFTER, status=404)
    desk.show(Stage.REVIEW, "m2")
    assert desk.issue.labels[2:] == ["orch: review"]


@pytest.mark.parametrize("path", ["/labels$", "/comments$", r"/issues/\d+$"])
@pytest.mark.parametrize("how", [How.LOST, How.AFTER])
def test_repeated_it_changes_nothing_more(desk: Desk, path: str, how: How) -> None:
    desk.show(Stage.REVIEW)
    before = len(desk.issue.events)
    method, stage = ("PATCH", Stage.DONE) if "issues" in path else ("POST", Stage.TESTING)
    fault = desk.server.fail(method, path, how, status=500)
    with pytest.raises(OutsideError):
        desk.show(stage, "m2")
    desk.open()
    desk.show(stage, "m2")
    assert fault.times == 0
    assert len(desk.comments) == 2
    told = [(event.kind, event.label) for event in desk.issue.events[before:]]
    put = ("closed", None) if stage is Stage.DONE else ("labeled", "orch: testing")
    assert sorted(told) == sorted([put, ("unlabeled", "orch: review")])


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}}, TrackerAway),
        ({"status": 403, "headers": {"Retry-After": "7"}}, TrackerAway),
        ({"status": 503}, TrackerAway),
        ({"status": 500}, OutsideError),
        ({"status": 422}, OutsideError),
    ],
)
def test_what_is_to_be_repeated_says_so(desk: Desk, fault: dict[str, Any], kind: type[OutsideError]) -> None:
    desk.server.fail("POST", "/comments$", How.BEFORE, **fault)
    with pytest.raises(OutsideError) as caught:
        desk.comment("Hello")
    assert isinstance(caught.value, TrackerAway) is (kind is TrackerAway)
    if fault["status"] == 503:  # it may have taken place all the same
        assert isinstance(caught.value, TrackerAway) and caught.value.after_s >= 15
    if "headers" in fault:
        assert isinstance(caught.value, TrackerAway) and caught.value.after_s == 7


def test_a_ticket_of_another_tracker_is_refused(desk: Desk) -> None:
    desk.task = replace(desk.task, external_id="71c4e700-0000-4000-8000-000000000003")
    with pytest.raises(OutsideError, match="no issue at GitHub"):
        desk.comment("Hello")
