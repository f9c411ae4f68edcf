"""A task's story and the evidence its gates rest on."""

import pytest

from orchestrator.db import events, evidence
from orchestrator.db.evidence import CheckResult
from orchestrator.db.statements import statement
from orchestrator.domain.errors import ConstraintRefused, InvariantError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import Sha, TransitionId
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Task
from tests.fixtures_db import Store

SHA = Sha("a" * 40)


def test_a_story_is_told_in_order_and_in_pages(store: Store) -> None:
    task, other = store.new_task(), store.new_task()
    with store.database.write() as tx:
        for number in range(5):
            events.append(tx, EventType.NOTE, Actor.OPERATOR, task=task, data={"n": number, "who": "Анна"})
        events.append(tx, EventType.NOTE, "somebody", task=other)
        events.append(tx, EventType.NOTE, "service")
        first = events.of_task(tx, task.id, limit=2)
        rest = events.of_task(tx, task.id, after=first[-1].id)
    assert [event.data["n"] for event in first + rest] == [0, 1, 2, 3, 4]
    assert (first[0].actor, first[0].stage, first[0].round, first[0].epoch) == (
        "operator",
        Stage.CREATED,
        1,
        0,
    )
    assert (first[0].at, first[0].data["who"]) == ("2026-01-05T10:00:00.000000Z", "Анна")


def test_a_transitions_id_says_whether_it_took_place(store: Store) -> None:
    """After a lost answer to COMMIT the id decides; and it happens once (law 2)."""
    task, this = store.new_task(), TransitionId("t-1")
    with store.database.write() as tx:
        assert not events.transition_happened(tx, this)
        events.append(tx, EventType.STAGE_CHANGED, Actor.MONITOR, task=task, transition_id=this)
        assert events.transition_happened(tx, this)
    with pytest.raises(ConstraintRefused), store.database.write() as tx:
        events.append(tx, EventType.STAGE_CHANGED, Actor.MONITOR, task=task, transition_id=this)


def test_a_step_is_marked_once_for_its_round(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        evidence.mark_step(tx, task, "ci-green", {"sha": "a"})
        evidence.mark_step(tx, task, "ci-green", {"sha": "b"})
        assert evidence.steps_of_round(tx, task) == {"ci-green": {"sha": "a"}}
    store.move(task.id, Stage.REVIEW)
    again = store.move(task.id, Stage.DEVELOPMENT)
    with store.database.read() as tx:
        assert evidence.steps_of_round(tx, again) == {}


def test_a_check_is_about_one_sha_and_one_round(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    red = CheckResult(JobKind.CI, SHA, False, {"exit": 1})
    green = CheckResult(JobKind.CI, Sha("b" * 40), True, {})
    with store.database.write() as tx:
        assert evidence.check_result(tx, task, JobKind.CI) is None
        evidence.record_check(tx, task, red)
        assert evidence.check_result(tx, task, JobKind.CI) == red
        evidence.record_check(tx, task, green)
        assert evidence.check_result(tx, task, JobKind.CI) == green
        assert evidence.check_result(tx, task, JobKind.CANDIDATE_CI) is None


def candidate(task: Task, number: int) -> Candidate:
    sha = Sha(f"{number:040}")
    return Candidate(task.id, number, sha, SHA, SHA, SHA, f"nonce-{number}", number, f"fence-{number}")


def test_every_candidate_a_task_ever_had_is_known(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    made = [candidate(task, number) for number in (1, 2)]
    with store.database.write() as tx:
        for each in made:
            evidence.add_candidate(tx, each)
        assert evidence.candidates(tx, task.id) == made
    with pytest.raises(ConstraintRefused), store.database.write() as tx:
        evidence.add_candidate(tx, made[0])


def test_own_commits_and_kept_documents(store: Store) -> None:
    task = store.new_task(stage=Stage.DEPLOY_STAGING)
    with store.database.write() as tx:
        evidence.add_own_commit(tx, task, SHA)
        evidence.add_own_commit(tx, task, SHA)
        assert evidence.own_commits(tx, task.id) == {SHA}
        assert evidence.document(tx, task, "14-staging-log.md") is None
        evidence.keep_document(tx, task, "14-staging-log.md", SHA, b"\xff\x00")
        evidence.keep_document(tx, task, "14-staging-log.md", SHA, b"healthy")
        kept = evidence.document(tx, task, "14-staging-log.md")
        assert kept is not None
        assert (kept.content, kept.subject, kept.round) == (b"healthy", SHA, 1)
        assert evidence.documents(tx, task.id) == [kept]


@pytest.mark.parametrize("name", ["jobs.no_such", "no_family.x", "jobs", ""], ids=repr)
def test_a_statement_that_does_not_exist_is_our_mistake(name: str) -> None:
    with pytest.raises(InvariantError, match="no SQL statement"):
        statement(name)
