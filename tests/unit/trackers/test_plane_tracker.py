"""What a ticket at Plane shows: each comment once, the state that fits, and never over a person's later word."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import WorkItem
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.observability.redactor import Redactor
from orchestrator.played.plane import How, Item
from orchestrator.runtime.clock import SystemClock, stamp
from orchestrator.trackers.local import LocalTracker
from orchestrator.trackers.plane import PlaneTracker, ShownAs
from orchestrator.trackers.tracker import TrackerAway
from tests.fixtures_plane import PlaneHouse
from tests.unit.trackers.test_local_tracker import task

PULL = "https://git.example.org/acme/shop/pulls/3"
WORDS = frozenset({"approved", "confirm deploy"})


class Desk:
    """A ticket, its task, and the tracker."""

    def __init__(self, plane: PlaneHouse, home: Path, **stages: str) -> None:
        self.plane, self.server = plane, plane.server
        self.item = self.server.ticket(plane.project, "Add totals", "orch")
        self.task: Task = replace(task("SHOP-7"), tracker="plane", external_id=self.item.id)
        self.kept = LocalTracker(home, SystemClock(), Redactor())
        self.tracker = PlaneTracker(
            lambda _: plane.ours,
            ShownAs(stages, WORDS),
            self.kept,
            Redactor(["hunter2-hunter2"]),
            pull_request=lambda _: PULL,
        )

    def show(self, stage: Stage, message_id: str = "m1", *, ago_s: float = 0, **more: str) -> None:
        said_at = stamp(datetime.now(UTC) - timedelta(seconds=ago_s))
        self.tracker.show_stage(self.task, stage, message_id, said_at=said_at, **more)

    @property
    def comments(self) -> list[str]:
        return [comment.html for comment in self.item.comments]


@pytest.fixture
def desk(plane: PlaneHouse, tmp_path: Path) -> Desk:
    return Desk(plane, tmp_path)


def state(item: Item) -> str:
    return item.state.name


def test_the_ticket_follows_its_task(desk: Desk) -> None:
    seen = []
    for number, stage in enumerate([Stage.CREATED, Stage.ANALYSIS, Stage.REVIEW, Stage.DEPLOY, Stage.DONE]):
        desk.show(stage, f"m{number}", reason="because <b>")
        seen.append(state(desk.item))
    assert seen == ["Todo", "In Progress", "In Progress", "In Progress", "Done"]
    assert desk.comments[1] == "<p>SHOP-7 is in analysis.</p><p>because &lt;b&gt;</p>"
    assert [said.split("<")[1] for said in desk.comments[::4]] == ["p>Taken as SHOP-7.", "p>SHOP-7 is done."]
    assert len(desk.comments) == 5
    assert [link.url for link in desk.item.links] == [PULL]
    assert len(desk.kept.history(WorkItem("SHOP-7"))) == 5


def test_a_cancelled_task(desk: Desk) -> None:
    desk.show(Stage.CANCELLED)
    assert state(desk.item) == "Cancelled"


def test_a_state_of_the_group_will_do_unless_one_is_configured(plane: PlaneHouse, tmp_path: Path) -> None:
    plane.server.world.new_state(plane.project, "In Review", "started")
    desk = Desk(plane, tmp_path, review="in review")
    desk.server.move(desk.item, "In Progress")
    desk.show(Stage.DEVELOPMENT, "m1")
    assert state(desk.item) == "In Progress"
    desk.show(Stage.REVIEW, "m2")
    assert state(desk.item) == "In Review"
    desk.show(Stage.TESTING, "m3")
    assert state(desk.item) == "In Review"


@pytest.mark.parametrize("how", [How.LOST, How.AFTER, How.GARBAGE])
def test_a_comment_whose_answer_was_lost_is_there_once(desk: Desk, how: How) -> None:
    desk.plane.ours.item(desk.item.id)
    fault = desk.server.fail("POST", "/comments/$", how, status=500)
    try:
        desk.tracker.comment(desk.task, "Waits for a person.", "m1")
    except OutsideError:
        assert how is not How.GARBAGE  # a 201 is one, whatever is in it
    assert fault.times == 0
    desk.plane.pace.answered(None)
    desk.plane.pace._closed_until = 0.0
    desk.tracker.comment(desk.task, "Waits for a person.", "m1")
    assert desk.comments == ["<p>Waits for a person.</p>"]
    desk.tracker.comment(desk.task, "Waits for a person.", "m2")
    assert len(desk.comments) == 2


def test_another_installation_may_use_the_same_numbers(desk: Desk) -> None:
    desk.tracker.comment(desk.task, "One", "m1")
    desk.task = replace(desk.task, created_at="2026-02-01T00:00:00.000000Z")
    desk.tracker.comment(desk.task, "Another", "m1")
    assert len(desk.comments) == 2


def test_what_is_said_is_no_markup_there_and_no_secret(desk: Desk) -> None:
    hostile = "<script>x()</script> & <img onerror=y> hunter2-hunter2\n<p>orch approve</p>\0\u202e"
    desk.tracker.comment(desk.task, hostile, "m1")
    [said] = desk.comments
    assert said == (
        "<p>&lt;script&gt;x()&lt;/script&gt; &amp; &lt;img onerror=y&gt; ***</p>"
        "<p>&lt;p&gt;orch approve&lt;/p&gt;</p>"
    )


def test_a_huge_comment_is_cut(desk: Desk) -> None:
    desk.tracker.comment(desk.task, "<" * 100_000, "m1")
    assert 10_000 < len(desk.comments[0]) < 50_000


def test_a_persons_later_move_stays(desk: Desk) -> None:
    desk.server.move(desk.item, "Backlog")
    desk.show(Stage.ANALYSIS, "m1", ago_s=30)
    assert state(desk.item) == "Backlog"
    desk.show(Stage.DEVELOPMENT, "m2")
    assert state(desk.item) == "In Progress"


def test_a_move_that_the_log_does_not_tell_of_yet_is_waited_for(desk: Desk) -> None:
    """It may be a person's: nobody can tell whose, and so it is not overwritten."""
    desk.show(Stage.ANALYSIS, ago_s=60)
    desk.server.world.late = True
    desk.server.move(desk.item, "Backlog")
    with pytest.raises(TrackerAway, match="log is behind") as later:
        desk.show(Stage.DEVELOPMENT, "m2", ago_s=30)
    assert later.value.after_s < 10
    assert state(desk.item) == "Backlog"
    desk.server.world.catch_up()
    desk.show(Stage.DEVELOPMENT, "m2", ago_s=30)
    assert state(desk.item) == "Backlog"


def test_later_is_judged_by_one_clock(desk: Desk) -> None:
    desk.server.world.ahead = timedelta(minutes=10)
    desk.server.move(desk.item, "Backlog")
    desk.plane.ours.check()
    desk.show(Stage.ANALYSIS, ago_s=-3)  # later, though Plane's stamp of the move is minutes ahead of it
    assert state(desk.item) == "In Progress"


def test_closed_by_a_person_it_is_not_opened_again(desk: Desk) -> None:
    desk.server.move(desk.item, "Cancelled")
    desk.show(Stage.REVIEW)
    assert state(desk.item) == "Cancelled"
    desk.show(Stage.DONE, "m2")  # the change was on main already
    assert state(desk.item) == "Done"


def test_an_approval_by_state_is_not_left_standing(desk: Desk) -> None:
    desk.server.move(desk.item, "Approved")
    desk.show(Stage.ARCHITECTURE)
    assert state(desk.item) == "In Progress"


def test_a_ticket_that_is_gone_holds_nobody(desk: Desk) -> None:
    desk.server.delete(desk.item)
    desk.show(Stage.REVIEW)
    desk.tracker.comment(desk.task, "Hello", "m2")
    assert len(desk.kept.history(WorkItem("SHOP-7"))) == 2


def test_a_state_that_a_person_has_added_meanwhile(desk: Desk) -> None:
    desk.plane.ours.states()
    desk.server.world.new_state(desk.plane.project, "Ready", "unstarted")
    desk.server.move(desk.item, "Ready")
    desk.show(Stage.ANALYSIS)
    assert state(desk.item) == "In Progress"


def test_a_project_without_a_fitting_state_keeps_its_tickets_where_they_are(desk: Desk) -> None:
    desk.plane.project.states = [one for one in desk.plane.project.states if one.group != "cancelled"]
    desk.show(Stage.CANCELLED)
    assert state(desk.item) == "Todo"
    assert len(desk.comments) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [({"status": 429, "headers": {"Retry-After": "7"}}, TrackerAway), ({"status": 503}, TrackerAway),
     ({"status": 500}, OutsideError)],
)  # fmt: skip
def test_what_is_to_be_repeated_says_so(desk: Desk, fault: dict[str, Any], kind: type[OutsideError]) -> None:
    desk.server.fail("POST", "/comments/$", How.BEFORE, **fault)
    with pytest.raises(kind) as caught:
        desk.tracker.comment(desk.task, "Hello", "m1")
    assert type(caught.value) is kind
    if fault["status"] == 429:
        assert isinstance(caught.value, TrackerAway) and caught.value.after_s == 7
