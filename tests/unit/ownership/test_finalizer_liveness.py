"""The registry of one process: one entry for a task, whoever asks first; nobody ends another one's."""

from concurrent.futures import ThreadPoolExecutor

from orchestrator.domain.ids import JobId, RunId, TaskId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.finalizer_liveness import FinalizerLiveness, Finalizing

ENTRY = Finalizing(Actor.MONITOR, RunId(3), 12.5, JobId(9), Stage.DEPLOY)
TASK = TaskId(1)


def test_the_first_enters_and_the_second_does_not() -> None:
    registry = FinalizerLiveness()
    assert registry.begin(TASK, ENTRY)
    assert not registry.begin(TASK, Finalizing(Actor.REAPER, None, 13.0))
    assert registry.begin(TaskId(2), ENTRY)
    assert registry.get(TASK) is ENTRY
    assert registry.snapshot() == {TASK: ENTRY, TaskId(2): ENTRY}


def test_after_the_end_it_is_free() -> None:
    registry = FinalizerLiveness()
    assert not registry.end(TASK, ENTRY)  # nobody was there: no error
    assert registry.begin(TASK, ENTRY)
    assert registry.end(TASK, ENTRY)
    assert registry.get(TASK) is None
    assert registry.begin(TASK, ENTRY)


def test_whoever_comes_late_does_not_end_a_successors_entry() -> None:
    registry, equal = FinalizerLiveness(), Finalizing(Actor.MONITOR, RunId(3), 12.5, JobId(9), Stage.DEPLOY)
    assert registry.begin(TASK, equal)
    assert not registry.end(TASK, ENTRY)
    assert registry.get(TASK) is equal


def test_jobs_are_shown_in_the_seeds_shape() -> None:
    registry = FinalizerLiveness()
    registry.begin(TASK, ENTRY)
    registry.begin(TaskId(2), Finalizing(Actor.RECONCILER, None, 14.0))
    assert registry.jobs() == {9: {"run_id": 3, "stage": "deploy", "started_ts": 12.5}}


def test_a_snapshot_is_a_copy() -> None:
    registry = FinalizerLiveness()
    registry.snapshot()[TASK] = ENTRY
    assert registry.get(TASK) is None


def test_of_many_threads_one_enters() -> None:
    registry = FinalizerLiveness()
    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(lambda _: registry.begin(TASK, ENTRY), range(64))) == 1
