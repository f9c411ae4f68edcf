"""What the pages show, worked out from values."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.dashboard import views
from orchestrator.domain.event import Event, EventType
from orchestrator.domain.ids import EventId, RepoName, TaskId, WorkItem
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.runtime.clock import stamp

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def task(number: int = 1, stage: Stage = Stage.REVIEW, hold: Hold | None = None, title: str = "T") -> Task:
    ago = stamp(NOW - timedelta(minutes=number))
    return Task(
        id=TaskId(number), work_item=WorkItem(f"SHOP-{number}"), repo=RepoName("shop"), title=title, body="",
        labels=(), stage=stage, round=1, epoch=0, track=None, hold=hold, hold_reason="because" if hold else None,
        hold_since=ago if hold else None, branch=None, base_sha=None, head_sha=None, gated_sha=None, pr_number=None,
        cancelled_at=None, created_at=ago, updated_at=ago,
    )  # fmt: skip


def event(type: EventType, **data: object) -> Event:
    return Event(EventId(1), TaskId(1), type, "monitor", Stage.REVIEW, Stage.TESTING, 1, 1, data, stamp(NOW))


class TestBoard:
    def test_puts_each_task_into_its_column(self) -> None:
        shown = views.board([task(1), task(2, Stage.DEPLOY)], [task(3, Stage.DONE)], {}, NOW, 100)
        found = {column.stage: [card.work_item for card in column.cards] for column in shown.columns}
        assert (found["review"], found["deploy"], found["done"]) == (["SHOP-1"], ["SHOP-2"], ["SHOP-3"])
        assert "cancelled" not in found

    def test_calls_a_person_only_where_one_is_needed(self) -> None:
        held = [task(n, hold=hold) for n, hold in enumerate(Hold, 1)]
        shown = views.board(held, [], {}, NOW, 100)
        assert {card.hold for card in shown.needs_person} == {"escalated", "person"}

    def test_says_who_owns_and_what_is_done(self) -> None:
        queue = {
            "transition_lease": {"holders": [{"task": "SHOP-1", "owner": "reaper"}]},
            "running": [{"task": "SHOP-1", "kind": "ci", "status": "running", "attempt": 1, "since": None}],
            "effects": [{"task_id": 2, "effect": "merge_pr", "state": "in_doubt"}],
        }
        shown = views.board([task(1), task(2)], [], queue, NOW, 100)
        one, two = next(column.cards for column in shown.columns if column.cards)
        assert (one.owner, one.work) == ("reaper", "ci at work")
        assert two.work == "drives merge_pr (in_doubt)"

    def test_survives_a_queue_that_lacks_everything(self) -> None:
        assert views.board([], [], {}, NOW, 100).running == ()

    def test_survives_owners_that_cannot_be_read(self) -> None:
        shown = views.board([task(1)], [], {"transition_lease": {"holders": None}}, NOW, 100)
        assert [card.owner for column in shown.columns for card in column.cards] == [""]

    def test_cuts_a_title_of_five_thousand_characters(self) -> None:
        assert len(views.card(task(title="x" * 5000), NOW).title) == views.CARD_TITLE


class TestWords:
    @pytest.mark.parametrize(
        ("seconds", "words"),
        [(0, "0 s"), (-5, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")],
    )
    def test_age(self, seconds: int, words: str) -> None:
        assert views.age(stamp(NOW - timedelta(seconds=seconds)), NOW) == words

    @pytest.mark.parametrize("since", [None, "", "yesterday", 7])
    def test_no_age_for_nonsense(self, since: object) -> None:
        assert views.age(since, NOW) == ""

    def test_a_move_names_both_ends(self) -> None:
        assert (
            views.sentence(event(EventType.STAGE_CHANGED, reason="pass")) == "review → testing · reason: pass"
        )

    @pytest.mark.parametrize(
        ("type", "data", "tone"),
        [
            (EventType.GATE_JUDGED, {"verdict": "fail"}, "bad"),
            (EventType.GATE_JUDGED, {"verdict": "pass"}, "good"),
            (EventType.RUN_FINISHED, {"outcome": "done"}, "good"),
            (EventType.RUN_FINISHED, {"outcome": "stalled"}, "bad"),
            (EventType.HELD, {}, "bad"),
            (EventType.NOTE, {}, ""),
        ],
        ids=range(6),
    )
    def test_tone(self, type: EventType, data: dict[str, object], tone: str) -> None:
        assert views.line(event(type, **data)).tone == tone

    def test_a_commit_is_cut_to_what_people_compare(self) -> None:
        told = views.sentence(event(EventType.EFFECT_SETTLED, key=f"b:{'a' * 40}..{'b' * 40}"))
        assert told == "key: b:aaaaaaaaaaaa..bbbbbbbbbbbb"

    def test_a_sentence_is_bounded(self) -> None:
        assert (
            len(views.sentence(event(EventType.NOTE, deep={"a": ["x" * 9999] * 99}, **{"b" * 9: "y" * 9999})))
            <= 400
        )
