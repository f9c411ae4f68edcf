"""Reading a Plane: what is there, what has changed, and who cannot be asked."""

from datetime import timedelta

import pytest

from orchestrator.domain.errors import OutsideError
from orchestrator.played.plane import FakePlane, How
from orchestrator.played.plane.server import KEY
from orchestrator.trackers.plane_api import ANSWER_LIMIT
from orchestrator.trackers.source import ProjectGone
from orchestrator.trackers.tracker import TrackerAway
from tests.clock import FakeClock
from tests.fixtures_plane import PlaneHouse

EVER = "0000-01-01T00:00:00.000000Z"


def test_changes_are_read_from_the_newest_to_what_is_known(plane: PlaneHouse) -> None:
    first = plane.server.ticket(plane.project, "One", "orch")
    known = plane.ours.changed(None)
    assert [(item.id, item.name, len(item.labels)) for item in known] == [(first.id, "One", 1)]
    second = plane.server.ticket(plane.project, "Two")
    assert [item.id for item in plane.ours.changed(known[0].changed_at)] == [second.id]
    plane.server.comment(first, "<p>orch approve</p>")
    assert [item.id for item in plane.ours.changed(known[0].changed_at)] == [first.id, second.id]


def test_many_changes_come_in_pages_each_once(plane: PlaneHouse) -> None:
    made = {plane.server.ticket(plane.project, f"Ticket {n}").id for n in range(230)}
    found = [item.id for item in plane.ours.changed(None)]
    assert (len(found), set(found)) == (230, made)
    assert len(plane.server.calls("GET", "/work-items/$")) == 4  # one finds out what they are called


def test_long_texts_are_read_in_small_pages_and_what_is_too_large_keeps_no_other_away(
    plane: PlaneHouse,
) -> None:
    """A page would be larger than what is read of an answer, and one ticket is by itself."""
    made = {
        plane.server.ticket(plane.project, f"Ticket {n}", html=f"<p>{'x' * 900_000}</p>").id
        for n in range(32)
    }
    larger = plane.server.ticket(plane.project, "Larger", html=f"<p>{'x' * ANSWER_LIMIT}</p>").id
    plane.server.ticket(plane.project, "Newest")
    found = [item.id for item in plane.ours.changed(None)]
    assert len(found) == len(set(found)) == len(made) + 1
    assert made < set(found)
    assert larger not in found


def test_moves_and_comments_since_a_moment_newest_first(plane: PlaneHouse) -> None:
    item = plane.server.ticket(plane.project, "One")
    plane.server.move(item, "In Progress")
    plane.server.comment(item, "<p>first</p>")
    since = plane.server.world.now()
    plane.server.move(item, "Approved")
    plane.server.comment(item, "<p>second</p>")
    plane.server.move(item, "Done", by=plane.server.ben)
    names = {state.id: state.name for state in plane.ours.states().values()}
    people = plane.ours.people()
    moves = [(names[move.new], people[move.actor]) for move in plane.ours.moves(item.id, since)]
    assert moves == [("Done", "ben"), ("Approved", "ann")]
    assert [said.html for said in plane.ours.comments(item.id, since)] == ["<p>second</p>"]
    assert len(plane.ours.moves(item.id, EVER)) == 3


def test_a_version_that_knows_the_old_name_alone(plane: PlaneHouse) -> None:
    plane.server.old = True
    item = plane.server.ticket(plane.project, "One")
    found = plane.ours.item(item.id)
    assert found is not None and found.name == "One"
    assert len(plane.server.calls("GET", "/work-items/")) == 1


def test_a_deleted_item_is_told_from_a_project_that_is_gone(plane: PlaneHouse) -> None:
    item, other = (plane.server.ticket(plane.project, name) for name in ("One", "Two"))
    plane.server.delete(item)
    assert plane.ours.item(item.id) is None
    plane.server.archive(other)
    assert plane.ours.item(other.id) is None
    plane.server.archive(plane.project)
    with pytest.raises(ProjectGone, match="archived"):
        plane.ours.item(other.id)
    with pytest.raises(ProjectGone, match="archived"):
        plane.ours.changed(None)
    plane.server.delete_project(plane.project)
    with pytest.raises(ProjectGone, match="gone"):
        plane.ours.item(item.id)
    with pytest.raises(ProjectGone, match="gone"):
        plane.ours.changed(EVER)


def test_a_page_of_a_proxy_that_says_404_is_no_deletion(plane: PlaneHouse) -> None:
    item = plane.server.ticket(plane.project, "One")
    plane.ours.item(item.id)
    plane.server.delete(item)
    plane.server.fail("GET", item.id, How.GARBAGE)
    with pytest.raises(OutsideError, match="404"):
        plane.ours.item(item.id)


def test_a_revoked_key_is_told_from_a_project_that_is_not_ours(plane: PlaneHouse) -> None:
    plane.server.revoke()
    with pytest.raises(TrackerAway, match="does not know our key") as caught:
        plane.ours.check()
    assert caught.value.after_s > 60
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("how", [How.LOST, How.GARBAGE])
def test_no_answer_of_its_own_is_no_answer(plane: PlaneHouse, how: How) -> None:
    plane.server.fail("GET", f"{plane.project.id}/$", how)
    with pytest.raises(OutsideError) as caught:
        plane.ours.check()
    assert KEY not in repr(caught.value.__dict__) + str(caught.value)
    assert isinstance(caught.value, TrackerAway) is (how is How.LOST)


def test_while_it_asks_for_patience_nothing_is_asked() -> None:
    clock = FakeClock()
    with FakePlane(per_minute=2, clock=clock.boottime) as server:
        house = PlaneHouse(server, server.project(), clock)
        house.ours.check()
        house.ours.check()
        for _ in range(3):
            with pytest.raises(TrackerAway) as caught:
                house.ours.check()
        assert caught.value.after_s == 60
        assert len(server.journal.calls) == 3  # one was refused, the others were not sent
        clock.advance(60)
        house.ours.check()


def test_a_server_that_answers_with_errors_of_a_proxy_is_left_alone() -> None:
    clock = FakeClock()
    with FakePlane(per_minute=1000) as server:
        house = PlaneHouse(server, server.project(), clock)
        server.fail("GET", "", How.BEFORE, status=502, times=2)
        for _ in range(2):
            with pytest.raises(TrackerAway):
                house.ours.check()
        assert len(server.journal.calls) == 1
        clock.advance(2.0)
        with pytest.raises(TrackerAway) as caught:
            house.ours.check()
        assert caught.value.after_s == 4
        clock.advance(4.0)
        house.ours.check()


def test_a_name_that_is_nobodys_to_see_is_not_asked_for_again_and_again(plane: PlaneHouse) -> None:
    plane.ours.labels()
    for _ in range(5):
        plane.ours.forget()
        plane.ours.labels()
    assert len(plane.server.calls("GET", "/labels/$")) == 2


def test_members_that_are_not_ours_to_see_are_not_asked_for_again_and_again(plane: PlaneHouse) -> None:
    plane.server.fail("GET", "/members/$", How.BEFORE, status=403, times=9)
    assert [plane.ours.people() for _ in range(3)] == [{}] * 3
    assert len(plane.server.calls("GET", "/members/$")) == 1


def test_how_far_its_clock_is_ahead_is_noticed(plane: PlaneHouse) -> None:
    plane.ours.check()
    assert plane.ours.server.ahead_s == 0
    plane.server.world.ahead = timedelta(minutes=10)
    plane.ours.check()
    assert 595 < plane.ours.server.ahead_s < 605
