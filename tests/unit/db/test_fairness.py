"""Who is served next: caps hold over all who claim, waiting raises priorities, repositories take turns."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.db import jobs, lanes, repositories, tasks
from orchestrator.db.database import Tx
from orchestrator.db.jobs import NewJob
from orchestrator.domain.ids import BootId, RepoName
from orchestrator.domain.job import Job, JobKind, JobStatus
from orchestrator.domain.shares import Lane
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Ticket
from tests.fixtures_db import Store

ME = BootId("me")
HOUR = 3600.0  # what a step of priority is worth
STAGES = {
    JobKind.ANALYST: Stage.ANALYSIS,
    JobKind.DEVELOPER: Stage.DEVELOPMENT,
    JobKind.CI: Stage.DEVELOPMENT,
    JobKind.REVIEWER: Stage.REVIEW,
}


@dataclass
class Line:
    """A queue with several repositories."""

    store: Store
    known: set[str] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)  # of the jobs

    def add(self, repo: str, **what: Any) -> list[int]:
        with self.store.database.write() as tx:
            return self.add_in(tx, repo, **what)

    def add_in(
        self,
        tx: Tx,
        repo: str,
        *,
        priority: int = 0,
        kind: JobKind = JobKind.ANALYST,
        agent: str = "claude",
        number: int = 1,
    ) -> list[int]:
        if repo not in self.known:
            repositories.add(
                tx, repositories.Repository(RepoName(repo), "local", f"/at/{repo}", repo.upper())
            )
            self.known.add(repo)
        queued = []
        for _ in range(number):
            item = repositories.next_work_item(tx, RepoName(repo))
            task = tasks.add(tx, RepoName(repo), item, Ticket("A ticket"), priority=priority)
            assert task is not None
            new = jobs.enqueue(tx, task, NewJob(kind, agent=agent), stage=STAGES[kind])
            self.names[new] = repo
            queued.append(int(new))
        return queued

    def claim(
        self, limits: Mapping[str, int] | None = None, *, agents: bool = True, step_s: float = HOUR
    ) -> Job | None:
        with self.store.database.write() as tx:
            return jobs.claim_next_job(tx, ME, limits=limits, agents=agents, step_s=step_s)

    def claims(self, number: int, limits: Mapping[str, int] | None = None) -> list[str]:
        """The repositories that are served, one after the other, while nothing ends."""
        taken = [self.claim(limits) for _ in range(number)]
        return [self.names[job.id] for job in taken if job is not None]

    def end(self, job: Job) -> None:
        with self.store.database.write() as tx:
            assert jobs.finish(tx, job, ME, JobStatus.DONE)

    def serve(self, number: int, *, pause_s: float = 60.0) -> list[int]:
        """The jobs that one place takes, each ending before the next begins."""
        served = []
        for _ in range(number):
            job = self.claim()
            if job is None:
                break
            served.append(int(job.id))
            self.store.clock.advance(pause_s)
            self.end(job)
        return served


@pytest.fixture
def line(store: Store) -> Line:
    return Line(store)


def test_a_queued_job_is_in_the_lane_of_what_it_will_start(line: Line) -> None:
    (first,) = line.add("shop", agent="codex", kind=JobKind.DEVELOPER)
    (second,) = line.add("shop", agent="codex", kind=JobKind.DEVELOPER)
    (check,) = line.add("shop", agent="codex", kind=JobKind.CI)
    with line.store.database.read() as tx:
        waiting = lanes.waiting(tx)
        one, two, three = (jobs.get(tx, jobs.JobId(job)).lane for job in (first, second, check))
    assert one == two != three
    assert one is not None
    assert three is not None
    assert waiting == {one: Lane("shop", "development", "codex"), three: Lane("shop", "development", "")}


def test_what_an_earlier_version_has_queued_comes_into_a_lane(line: Line) -> None:
    """It was finishing its work when this version brought the lanes (docs/how-to/postgresql.md, to upgrade)."""
    queued = [*line.add("shop"), *line.add("shop", kind=JobKind.CI)]
    line.store.raw("UPDATE jobs SET lane = NULL")
    assert line.claim() is None
    with line.store.database.write() as tx:
        for stray in lanes.strays(tx):
            lanes.take_in(tx, stray)
        assert list(lanes.strays(tx)) == []
        assert sorted(lane.agent for lane in lanes.waiting(tx).values()) == ["", "unknown"]
    assert len(line.claims(3)) == len(queued)


class TestTurns:
    def test_a_noisy_repository_does_not_hold_up_a_quiet_one(self, line: Line) -> None:
        """A thousand tickets wait already; the one of another repository is next but one, at the latest."""
        line.add("noisy", number=1000)
        line.store.clock.advance(10 * HOUR)  # that they have waited so long is the noise itself
        busy = line.serve(3)
        (quiet,) = line.add("quiet")
        assert quiet in line.serve(2)
        assert len(busy) == 3

    def test_repositories_take_turns_on_one_place(self, line: Line) -> None:
        for repo, number in (("noisy", 50), ("loud", 20), ("quiet", 3)):
            line.add(repo, number=number)
        served = [line.names[job] for job in line.serve(9)]
        assert Counter(served) == {"noisy": 3, "loud": 3, "quiet": 3}
        assert all(len(set(served[at : at + 3])) == 3 for at in (0, 3, 6))

    def test_places_go_to_the_repository_that_has_fewest(self, line: Line) -> None:
        """What takes long keeps its places, not its turn."""
        line.add("slow", number=10)
        assert line.claims(2) == ["slow", "slow"]
        line.store.clock.advance(600)
        line.add("quick", number=10)
        for _ in range(4):
            job = line.claim()
            assert job is not None
            assert line.names[job.id] == "quick"
            line.store.clock.advance(60)
            line.end(job)

    def test_checks_and_agents_are_counted_apart(self, line: Line) -> None:
        line.add("checked", kind=JobKind.CI, number=3)
        line.claims(3)
        line.add("other", number=2)
        line.claims(1)
        line.add("checked", number=1)
        assert line.claims(1) == ["checked"]

    def test_many_stages_are_not_many_turns(self, line: Line) -> None:
        for kind in (JobKind.ANALYST, JobKind.DEVELOPER, JobKind.REVIEWER):
            line.add("wide", kind=kind, number=5)
        line.add("narrow", number=5)
        assert Counter(line.names[job] for job in line.serve(8)) == {"wide": 4, "narrow": 4}


class TestWaiting:
    def test_priority_goes_first_whatever_the_repository(self, line: Line) -> None:
        line.add("one", number=3)
        line.claims(2)
        (urgent,) = line.add("one", priority=1)
        line.add("two")
        job = line.claim()
        assert job is not None
        assert job.id == urgent

    @pytest.mark.parametrize("lowest", ["same", "other"])
    def test_a_flow_of_the_highest_does_not_starve_the_lowest(self, line: Line, lowest: str) -> None:
        """Nine steps of an hour and one more claim: then the ticket without any priority has its turn."""
        (last,) = line.add(lowest)
        served: list[int] = []
        waited = 0.0
        while last not in served:
            line.add("same", priority=9)
            served += line.serve(1, pause_s=900)
            waited += 900
            assert waited <= 10 * HOUR + 900
        assert waited >= 9 * HOUR

    def test_a_backlog_that_is_old_does_not_undo_priority(self, line: Line) -> None:
        """However long the backlog is: it gets a turn for each stretch of waiting, not all turns after it."""
        line.add("shop", number=30)
        line.store.clock.advance(24 * HOUR)
        line.add("shop", priority=9, number=30)
        served = line.serve(10)
        assert (
            sum(line.store.rows(f"SELECT priority FROM jobs WHERE id = {job}")[0][0] == 9 for job in served)
            == 9
        )

    def test_what_was_put_off_waits_from_then_on(self, line: Line) -> None:
        """A usage limit's reset, hours away, is no waiting in the queue."""
        line.add("shop")
        job = line.claim()
        assert job is not None
        with line.store.database.write() as tx:
            assert jobs.requeue(tx, job, ME, error="limit", brief="", delay_s=5 * HOUR, free=True)
        line.store.clock.advance(5 * HOUR)
        (urgent,) = line.add("shop", priority=1)
        taken = line.claim()
        assert taken is not None
        assert taken.id == urgent

    def test_a_stamp_that_is_none_holds_up_nobody(self, line: Line) -> None:
        line.add("shop", number=2)
        line.store.raw("UPDATE jobs SET created_at = 'long ago' WHERE id = 1")
        assert len(line.claims(3)) == 2


class TestCaps:
    @pytest.mark.parametrize(
        ("limits", "taken"),
        [
            ({}, 8),
            ({"all": 3}, 3),
            ({"all": 0}, 0),
            ({"repo/one": 1}, 5),
            ({"repo/one": 1, "repo/two": 0}, 1),
            ({"repo/nobody": 0}, 8),
            ({"stage/analysis": 2}, 4),
            ({"agent/claude": 1}, 3),
            ({"agent/claude": 4, "agent/codex": 1}, 5),
            ({"agent/claude": 4, "repo/two": 1}, 5),
        ],
        ids=str,
    )
    def test_no_more_than_a_cap_allows(self, line: Line, limits: dict[str, int], taken: int) -> None:
        for repo in ("one", "two"):
            line.add(repo, number=3)
        line.add("one", kind=JobKind.DEVELOPER, agent="codex")
        line.add("two", kind=JobKind.DEVELOPER, agent="codex")
        assert len(line.claims(9, limits)) == taken

    def test_what_is_capped_holds_up_nothing_else(self, line: Line) -> None:
        line.add("one", priority=9, number=5)
        (other,) = line.add("one", agent="codex")
        assert line.claims(1, {"agent/claude": 0}) == ["one"]
        with line.store.database.read() as tx:
            assert [job.id for job in jobs.running(tx)] == [other]

    def test_checks_are_under_no_cap(self, line: Line) -> None:
        line.add("one", number=2)
        line.add("one", kind=JobKind.CI, number=2)
        limits = {"all": 1, "repo/one": 1, "stage/development": 0}
        assert len(line.claims(5, limits)) == 3

    def test_a_place_that_comes_free_is_taken(self, line: Line) -> None:
        line.add("one", number=3)
        limits = {"repo/one": 1}
        job = line.claim(limits)
        assert job is not None
        assert line.claim(limits) is None
        line.end(job)
        assert line.claim(limits) is not None

    def test_what_other_processes_run_counts(self, line: Line) -> None:
        line.add("one", number=2)
        with line.store.database.write() as tx:
            assert jobs.claim_next_job(tx, BootId("another"), limits={"all": 1}) is not None
        assert line.claim({"all": 1}) is None

    def test_a_job_of_an_earlier_version_counts_for_no_program(self, line: Line) -> None:
        line.add("one", agent="unknown")
        limits = {"agent/claude": 0, "agent/codex": 0}
        assert line.claim({**limits, "repo/one": 0}) is None
        assert line.claim(limits) is not None

    def test_a_queued_job_changes_its_lane(self, line: Line) -> None:
        """A person's retry takes the present configuration, which may name another program."""
        (queued,) = line.add("one")
        with line.store.database.write() as tx:
            job = jobs.get(tx, jobs.JobId(queued))
            lanes.enter(tx, job.task_id, job.id, job.stage, "codex")
        assert line.claim({"agent/codex": 0}) is None
        assert line.claim({"agent/claude": 0}) is not None


Key = tuple[str, JobKind, int]
FLOWS = st.lists(
    st.tuples(
        st.tuples(st.sampled_from(["red", "blue"]), st.sampled_from([JobKind.ANALYST, JobKind.CI]),
                  st.sampled_from([-2, 0, 3])),
        st.integers(1, 9),  # ticks from one arrival to the next
        st.integers(1, 3),  # how many arrive at once
    ),
    min_size=2,
    max_size=6,
)  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flows=FLOWS, places=st.integers(1, 2), tick_s=st.sampled_from([600.0, HOUR]))
def test_nobody_waits_longer_than_the_bound_says(
    line: Line, flows: list[tuple[Key, int, int]], places: int, tick_s: float
) -> None:
    """Whoever is first in its lane has its turn after the steps between its priority and the highest, one more, and one
    claim of each other lane: docs/how-to/share-the-machine.md. More arrives all the time than there are places."""
    flows = [(("noisy", JobKind.ANALYST, 3), 1, places), *flows]
    highest = max(priority for (_, _, priority), _, _ in flows)
    kinds = len({key for key, _, _ in flows})
    line.store.raw("UPDATE jobs SET status = 'cancelled' WHERE status = 'queued'")  # of the example before
    lane_of: dict[int, Key] = {}
    waiting: dict[Key, list[tuple[int, float]]] = {key: [] for key, _, _ in flows}
    served: dict[Key, float] = {}
    passed_over: Counter[int] = Counter()  # claims of others since a job's time had come
    now = 0.0
    for tick in range(40):
        with line.store.database.write() as tx:  # all of a tick in one commit, for speed
            for key, every, number in flows:
                if tick % every == 0:
                    repo, kind, priority = key
                    for queued in line.add_in(tx, repo, priority=priority, kind=kind, number=number):
                        lane_of[queued] = key
                        waiting[key].append((queued, now))
            for _ in range(places):
                late = [
                    first[0][0]
                    for key, first in waiting.items()
                    if first and now - max(first[0][1], served.get(key, 0.0)) >= (highest - key[2] + 1) * HOUR
                ]
                job = jobs.claim_next_job(tx, ME, step_s=HOUR)
                assert job is not None
                assert waiting[lane_of[job.id]].pop(0)[0] == job.id
                served[lane_of[job.id]] = now
                assert jobs.finish(tx, job, ME, JobStatus.DONE)
                for other in set(late) - {job.id}:
                    passed_over[other] += 1
                    assert passed_over[other] < kinds
        line.store.clock.advance(tick_s)
        now += tick_s
