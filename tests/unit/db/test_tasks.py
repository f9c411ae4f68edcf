"""Tasks: filed once, told apart for ever, held for one reason at a time, tidied up once."""

import pytest

from orchestrator.db import repositories, tasks
from orchestrator.db.repositories import Repository
from orchestrator.domain.errors import ConstraintRefused, NotFound
from orchestrator.domain.ids import RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.stage import Stage, Track
from orchestrator.domain.task import Hold, Ticket
from tests.fixtures_db import REPO, Store

SHA = Sha("a" * 40)


def test_a_ticket_becomes_a_task_word_for_word(store: Store) -> None:
    title, body = "Исправить вход 🐛 '; DROP TABLE tasks; --", "a\r\nb\x1b[0m " + "x" * 10_000
    with store.database.write() as tx:
        item = repositories.next_work_item(tx, REPO)
        task = tasks.add(
            tx, REPO, item, Ticket(title, body, ("track:fast", "срочно"), external_id="T-1"), priority=3
        )
        assert task is not None
        assert tasks.by_work_item(tx, item) == task
        assert tasks.open_by_ticket(tx, "local", "T-1") == task
    assert (task.work_item, task.title, task.body, task.labels) == (
        "SMP-1",
        title,
        body,
        ("track:fast", "срочно"),
    )
    assert (task.stage, task.round, task.epoch, task.hold) == (Stage.CREATED, 1, 0, None)


@pytest.mark.parametrize("title", ["", "   "], ids=["empty", "spaces"])
def test_a_ticket_without_a_title_is_refused_whole(store: Store, title: str) -> None:
    with pytest.raises(ConstraintRefused), store.database.write() as tx:
        tasks.add(tx, REPO, repositories.next_work_item(tx, REPO), Ticket(title))
    assert store.rows("SELECT * FROM tasks") == []
    assert store.new_task().work_item == "SMP-1"  # not even a number is lost


def test_a_dependency_that_does_not_exist_files_nothing(store: Store) -> None:
    with pytest.raises(NotFound, match="NO-1"), store.database.write() as tx:
        ticket = Ticket("Say hello", depends_on=(WorkItem("NO-1"),))
        tasks.add(tx, REPO, repositories.next_work_item(tx, REPO), ticket)
    assert store.rows("SELECT * FROM tasks") == []


def test_a_dependency_is_met_when_the_other_is_done(store: Store) -> None:
    first = store.new_task()
    with store.database.write() as tx:
        item = repositories.next_work_item(tx, REPO)
        second = tasks.add(tx, REPO, item, Ticket("Then this", depends_on=(first.work_item,)))
        assert second is not None
        assert tasks.unmet_dependencies(tx, second.id) == [(first.work_item, Stage.CREATED)]
        assert tasks.dependents(tx, first.id) == [second.id]
    store.raw(
        "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, intent_at, settled_at) "
        "VALUES (:id, 'merge_pr', 'k', 1, 'applied', 1, 99, 't', 'monitor', utc_now(), utc_now())",
        {"id": first.id},
    )
    store.move(first.id, Stage.DONE)
    with store.database.read() as tx:
        assert tasks.unmet_dependencies(tx, second.id) == []


def test_what_is_not_there_is_said(store: Store) -> None:
    with store.database.read() as tx:
        with pytest.raises(NotFound, match="id 7"):
            tasks.get(tx, TaskId(7))
        with pytest.raises(NotFound, match="SMP-7") as missing:
            tasks.by_work_item(tx, "SMP-7")
        assert "orch task list" in missing.value.hint
        with pytest.raises(NotFound, match="not registered"):
            repositories.get(tx, "other")
        assert tasks.open_by_ticket(tx, "local", "T-1") is None
    with pytest.raises(NotFound, match="not registered"), store.database.write() as tx:
        repositories.next_work_item(tx, RepoName("other"))


def test_pages_follow_each_other(store: Store) -> None:
    made = [store.new_task().id for _ in range(5)]
    store.move(made[1], Stage.CANCELLED)
    with store.database.read() as tx:
        first = [task.id for task in tasks.list_open(tx, limit=2)]
        rest = [task.id for task in tasks.list_open(tx, after=first[-1], limit=9)]
        assert first + rest == [made[0], *made[2:]]
        recent = [task.id for task in tasks.list_recent(tx, limit=3)]
        older = [task.id for task in tasks.list_recent(tx, before=recent[-1])]
        assert recent + older == made[::-1]


def test_who_has_waited_longest_for_a_slot_goes_first(store: Store) -> None:
    one, two, three = (store.new_task() for _ in range(3))
    for task in (two, one, three):
        store.clock.advance(1)
        with store.database.write() as tx:
            assert tasks.hold(tx, task.id, Hold.SLOT, "merge:sample is held")
    with store.database.write() as tx:
        assert tasks.oldest_waiting_for_slot(tx, REPO) == two.id
        assert tasks.waiting_for_slot(tx) == [two.id, one.id, three.id]
        assert not tasks.hold(tx, two.id, Hold.SLOT, "merge:sample is held")  # told again: it keeps its place
        assert tasks.hold(tx, one.id, Hold.ESCALATED, "a person decides")
        assert tasks.waiting_for_slot(tx) == [two.id, three.id]
        assert tasks.release_hold(tx, two.id)
        assert not tasks.release_hold(tx, two.id)
        assert tasks.oldest_waiting_for_slot(tx, REPO) == three.id


def test_what_the_pipeline_learns_of_a_task_is_kept(store: Store) -> None:
    task = store.new_task()
    with store.database.write() as tx:
        tasks.set_branch(tx, task.id, "orch/smp-1", SHA)
        tasks.set_head(tx, task.id, Sha("b" * 40))
        tasks.set_gated(tx, task.id, Sha("c" * 40))
        tasks.set_track(tx, task.id, Track.FAST)
        tasks.set_pr(tx, task.id, 12)
    known = store.task(task.id)
    assert (known.branch, known.base_sha, known.head_sha, known.gated_sha, known.track, known.pr_number) == (
        "orch/smp-1",
        SHA,
        "b" * 40,
        "c" * 40,
        Track.FAST,
        12,
    )


def test_an_ended_task_is_tidied_up_once(store: Store) -> None:
    task = store.new_task()
    store.new_task()
    store.move(task.id, Stage.CANCELLED)
    with store.database.write() as tx:
        assert tasks.untidied(tx) == [task.id]
        tasks.tidied(tx, task.id)
        assert tasks.untidied(tx) == []


def test_a_repository_is_registered_once(store: Store) -> None:
    other = Repository(RepoName("other"), "local", "/there", "OTH")
    with store.database.write() as tx:
        assert repositories.add(tx, other)
        assert not repositories.add(tx, other)
        assert repositories.get(tx, "other") == other
        assert [found.name for found in repositories.all_repositories(tx)] == ["other", "sample"]
        assert [repositories.next_work_item(tx, RepoName("other")) for _ in range(2)] == ["OTH-1", "OTH-2"]
