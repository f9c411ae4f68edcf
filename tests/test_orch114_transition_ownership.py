"""ORCH-114 by its test plan: TC-01 … TC-14, each named by its id (requirements, "Test plan").

Outside acts are doubles that count and do not fence (see ``fixtures_transition``); the same promises over real git,
real processes and real SIGKILL are in ``tests/proofs`` and ``tests/integration/pipeline``.
"""

import ast
import inspect
import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from orchestrator import finalizer_liveness, transition_lease
from orchestrator.daemons.outbox import Outbox
from orchestrator.db import evidence, jobs, leases, tasks
from orchestrator.db.database import Tx
from orchestrator.db.migrate import init_db
from orchestrator.domain.effect import EffectName
from orchestrator.domain.errors import ConstraintRefused, DatabaseError
from orchestrator.domain.ids import BootId, TaskId
from orchestrator.domain.job import Job, JobKind, JobStatus
from orchestrator.domain.lease import Actor
from orchestrator.domain.scope import Scope
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.gates.quality_gates import QG_CHECKS
from orchestrator.notifications.log import LogNotifier
from orchestrator.observability.log import get_logger
from orchestrator.observability.redactor import Redactor
from orchestrator.observability.telemetry import Telemetry
from orchestrator.ownership import judge, reclaims, registration, state_folder, term
from orchestrator.ownership.term import Term
from orchestrator.rules.transitions import (
    APPROVED,
    CONFIRM_DEPLOY,
    STAGE_TRANSITIONS,
    EdgeKind,
    Step,
    StepKind,
)
from orchestrator.runtime.process import SystemProcesses
from orchestrator.stage_engine.situation import Outcome
from orchestrator.trackers.local import LocalTracker
from orchestrator.transition_lease import Ownership
from tests.deliveries import TICKET, gitea_pull, gitea_push, gitea_status, plane_comment, plane_state
from tests.doors import Doors, doors_of
from tests.fixtures_db import REPO, Store
from tests.fixtures_desk import Desk, Serve
from tests.fixtures_ownership import Logged
from tests.fixtures_transition import CONFIG, HEAD, TTL_S, Bench, Points, stopped_at
from tests.waiting import PATIENCE_S

ONCE = {EffectName.MERGE_PR: 1, EffectName.IMAGE: 1, EffectName.DEPLOY_INIT: 1}
EFFECT_POINTS = [
    f"{name}.{when}"
    for name in ("merge_pr", "image", "deploy_init")
    for when in ("intended", "before_probe", "before_act", "after_act")
]
ASKING = CONFIG + b"[approvals]\nanalysis = true\ndeploy = true\n"
POINTS = [*EFFECT_POINTS, "transition.before_commit", "transition.after_commit"]


class Killed(BaseException):
    """Ends the thread of a process that has died long before."""


def everything_once(bench: Bench) -> None:
    """One of each effect, one next job, one outcome."""
    assert dict(bench.outside.calls) == ONCE
    assert bench.ratchets() == 1
    assert bench.jobs() == [JobKind.PRODUCTION_HEALTH]
    assert stage_of(bench) is Stage.DEPLOY
    states = [row["state"] for row in bench.store.rows("SELECT state FROM effects")]
    assert set(states) == {"applied"}
    assert bench.lease_rows() == 0


def stage_of(bench: Bench) -> Stage:
    return Stage(bench.store.rows("SELECT stage FROM tasks")[0]["stage"])


def two_enter(
    bench: Bench, second: Actor, *, enabled: bool = True, point: str = "merge_pr.before_act"
) -> tuple[Outcome, Outcome, Ownership]:
    """A live finaliser stands at a point of the transition; another process enters the same one."""
    task = bench.before_the_merge()
    points = Points()
    there, go, hook = stopped_at()
    points.on(point, hook)
    first, _ = bench.process("first", enabled=enabled, points=points)
    other, ownership = bench.process("second", enabled=enabled)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.advance_stage, task.id, Actor.MONITOR)
        assert there.wait(PATIENCE_S)
        try:
            seen = other.advance_stage(task.id, second)
        finally:
            go.set()
        return running.result(30), seen, ownership


# --- TC-01 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [Actor.REAPER, Actor.RECONCILER, Actor.WEBHOOK])
def test_tc01_two_entries_into_deploy_staging_do_everything_once(bench: Bench, second: Actor) -> None:
    outcome, deferred, _ = two_enter(bench, second)
    assert (outcome, deferred) == (Outcome.WORKING, Outcome.DEFERRED)
    everything_once(bench)


def test_tc01_the_second_entry_comes_when_the_commit_has_given_the_lease_back(bench: Bench) -> None:
    """Whoever is first goes on; all the same everything happens once."""
    outcome, other, _ = two_enter(bench, Actor.REAPER, point="transition.after_commit")
    assert Outcome.WORKING in (outcome, other)
    everything_once(bench)


def test_tc01_is_red_without_the_mechanism(bench: Bench) -> None:
    """The doubles obey both: with the switch off the second actor merges again."""
    two_enter(bench, Actor.REAPER, enabled=False)
    assert bench.outside.calls[EffectName.MERGE_PR] == 2


# --- TC-02 ------------------------------------------------------------------------------------------------------------


def test_tc02_the_second_writer_of_a_stage_has_lost_the_race(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        assert tasks.update_task_stage_cas(tx, task.id, Stage.DEVELOPMENT, Stage.REVIEW, epoch=task.epoch)
    with store.database.write() as tx:
        late = tasks.update_task_stage_cas(tx, task.id, Stage.DEVELOPMENT, Stage.CANCELLED, epoch=task.epoch)
    assert not late
    assert store.task(task.id).stage is Stage.REVIEW


def test_tc02_the_same_stage_of_a_later_round_is_not_the_one_that_was_judged(store: Store) -> None:
    """ABA: the stage is equal again, the epoch is not (departure 3)."""
    task = store.new_task(stage=Stage.DEVELOPMENT)
    store.move(task.id, Stage.REVIEW)
    store.move(task.id, Stage.DEVELOPMENT)
    with store.database.write() as tx:
        assert not tasks.update_task_stage_cas(tx, task.id, Stage.DEVELOPMENT, Stage.REVIEW, epoch=task.epoch)
    assert store.task(task.id).stage is Stage.DEVELOPMENT


# --- TC-03 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way_out", ["success", "exception", "rollback"])
def test_tc03_the_lease_is_seen_by_others_and_released_on_every_way_out(bench: Bench, way_out: str) -> None:
    task = bench.before_the_merge()
    _, mine = bench.process("first")
    _, others = bench.process("second")

    def leave() -> None:
        with mine.transition(task.id, Actor.MONITOR) as lease:
            assert lease is not None
            [row] = bench.store.rows("SELECT owner, owner_boot_id, stage FROM transition_lease")
            assert tuple(row) == ("monitor", "first", "deploy-staging")
            with others.transition(task.id, Actor.REAPER) as refused:
                assert refused is None
            if way_out == "exception":
                raise ValueError(way_out)
            if way_out == "rollback":
                with bench.database.write() as tx:
                    leases.check(tx, lease)
                    raise DatabaseError("the disk is full")

    if way_out == "success":
        leave()
    else:
        with pytest.raises((ValueError, DatabaseError)):
            leave()
    assert bench.lease_rows() == 0
    with others.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None


@pytest.mark.parametrize("way_out", ["success", "exception", "rollback"])
def test_tc03_a_finaliser_gives_its_lease_back_on_every_way_out(bench: Bench, way_out: str) -> None:
    """The same through the engine: the edge is taken, breaks in the middle, or production is rolled back after it."""
    task = bench.before_the_merge()
    points = Points()
    engine, _ = bench.process("first", points=points)
    if way_out == "exception":

        def fault() -> None:
            raise ValueError(way_out)

        points.on("merge_pr.before_act", fault)
        with pytest.raises(ValueError, match=way_out):
            engine.advance_stage(task.id, Actor.MONITOR)
    else:
        assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    if way_out == "rollback":
        bench.unhealthy(engine, "first")
        engine.advance_stage(task.id, Actor.MONITOR)
        assert bench.outside.calls[EffectName.DEPLOY_UNDO] == 1
        assert bench.store.task(task.id).hold is Hold.ESCALATED
    assert bench.lease_rows() == 0
    _, others = bench.process("second")
    with others.transition(task.id, Actor.REAPER) as lease:
        assert lease is not None


# --- TC-04 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [*EFFECT_POINTS, "transition.before_commit"])
def test_tc04_both_reapers_leave_a_task_to_its_live_owner_on_every_edge(
    bench: Bench, tmp_path: Path, point: str
) -> None:
    """No lease is taken from it, and the look that the job reaper asks for is deferred and counted: nothing is advanced
    a second time."""
    task = bench.before_the_merge()
    with standing_at(bench, task, point) as finaliser, doors_of(bench, tmp_path) as service:
        before, stage = bench.outside.calls.copy(), stage_of(bench)
        left_by_the_dead(bench)
        assert service.app.lease_reaper.run_once() == {"stale": 0, "forced": 0}
        assert service.app.reaper.run_once()["dead_owner"] == 1  # has its task looked at
        service.stands_back(Actor.REAPER)
        assert (bench.outside.calls, stage_of(bench)) == (before, stage)
        assert bench.owner() == "first"
        bench.store.raw("DELETE FROM jobs")  # it has shown what it had to
    assert finaliser.result() is Outcome.WORKING
    everything_once(bench)


def test_tc04_a_job_at_which_its_owner_lives_is_not_reaped(bench: Bench, tmp_path: Path) -> None:
    """Of another process that lives, and of this one while a thread is at it or has only just left it."""
    task = bench.before_the_merge()
    bench.process("first")
    with doors_of(bench, tmp_path) as service:
        for owner, why in (("first", "owner_may_live"), ("service", "within_grace")):
            running = claimed_by(bench, task, owner)
            assert set(service.app.reaper.run_once().values()) == {0}
            assert service.app.reaper.snapshot()["skipped"][why] == 1  # type: ignore[index]
            [row] = bench.store.rows("SELECT status, claimed_by FROM jobs")
            assert tuple(row) == ("running", owner)
            with bench.database.write() as tx:
                assert jobs.finish(tx, running, BootId(owner), JobStatus.DONE)
            bench.store.raw("DELETE FROM jobs")
        assert not bench.outside.calls


def test_tc04_one_of_two_reapers_takes_a_running_job(bench: Bench, tmp_path: Path) -> None:
    """The rowcount guard of ``reap_running_job``: two services see the same dead owner, and its job goes back once."""
    left_by_the_dead(bench, attempts=3)
    with (
        doors_of(bench, tmp_path / "one", "one", driving=False) as one,
        doors_of(bench, tmp_path / "two", "two", driving=False) as two,
    ):
        meeting = threading.Barrier(2, timeout=PATIENCE_S)
        for doors in (one, two):
            doors.meet_before_reaping(meeting)
        with ThreadPoolExecutor(2) as pool:
            seen = list(pool.map(lambda doors: doors.app.reaper.run_once(), (one, two)))
        assert sorted(each["dead_owner"] for each in seen) == [0, 1]
    requeued = "SELECT count(*) AS n FROM events WHERE type = 'job.requeued'"
    assert bench.store.rows(requeued)[0]["n"] == 1


# --- TC-05 ------------------------------------------------------------------------------------------------------------


def test_tc05_a_dead_owner_is_replaced_at_once(bench: Bench, tmp_path: Path) -> None:
    """Its process provably does not exist any more; nothing waits for a term."""
    task = bench.before_the_merge()
    with held_by(bench, task, start_ticks=1), doors_of(bench, tmp_path) as service:
        assert service.app.lease_reaper.run_once() == {"stale": 1, "forced": 0}
        service.comes_to_rest()
        assert service.ownership.snapshot()["stale_reclaims"] == 1
        everything_once(bench)


def test_tc05_a_silent_owner_is_replaced_when_its_term_has_ended(bench: Bench, tmp_path: Path) -> None:
    """Nothing can be proven about a process of another machine: its heartbeat speaks for it, and has stopped."""
    task = bench.before_the_merge()
    with (
        held_by(bench, task, machine_boot_id="another-machine"),
        doors_of(bench, tmp_path) as service,
    ):
        assert service.app.lease_reaper.run_once() == {"stale": 0, "forced": 0}
        bench.store.clock.advance(TTL_S + 1)
        bench.beat("service")
        assert service.app.lease_reaper.run_once() == {"stale": 1, "forced": 0}
        service.comes_to_rest()
        everything_once(bench)


@pytest.mark.parametrize(
    "point", ["merge_pr.before_act", "deploy_init.before_act", "transition.before_commit"]
)
def test_tc05_a_hung_owner_is_replaced_at_the_backstop_and_changes_nothing_when_it_wakes(
    bench: Bench, tmp_path: Path, point: str
) -> None:
    """Its process lives and its thread hangs: the marker does not outlast ``reaper_max_running_s`` (NFR-6)."""
    task = bench.before_the_merge()
    with (
        doors_of(bench, tmp_path, driving=False) as service,
        standing_at(bench, task, point) as hung,
    ):
        backstop = service.app.settings.reaper_max_running_s
        assert service.app.lease_reaper.run_once() == {"stale": 0, "forced": 0}
        bench.store.clock.advance(backstop + 1)
        bench.beat("first")
        bench.beat("service")
        assert service.app.lease_reaper.run_once() == {"stale": 0, "forced": 1}
        assert service.ownership.snapshot()["forced_reclaims"] == 1
        if point == "transition.before_commit":
            assert service.engine.advance_stage(task.id, Actor.REAPER) is Outcome.WORKING
    assert hung.result() in (Outcome.DEFERRED, Outcome.RETRY)
    if point == "transition.before_commit":
        everything_once(bench)
    else:  # the doubles do not fence: what it was about to do, it did; it settled nothing
        assert {
            r["state"] for r in bench.store.rows("SELECT state FROM effects ORDER BY id DESC LIMIT 1")
        } == {"intended"}


# --- TC-06 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_tc06_a_killed_finalisation_converges_without_a_second_effect(bench: Bench, point: str) -> None:
    task = bench.before_the_merge()
    with held_by(bench, task, point=point, start_ticks=1):
        engine, _ = bench.process("second")
        assert engine.advance_stage(task.id, Actor.RECOVERY) is Outcome.WORKING
    everything_once(bench)


def test_tc06_the_finalizer_starts_no_new_deploy(bench: Bench) -> None:
    """DESIGN §7: Phase C ends a deploy that has started; what was never intended is the ordinary actors'."""
    task = bench.before_the_merge()
    engine, _ = bench.process("first")
    assert engine.run_deploy_finalizer(task.id) is Outcome.DEFERRED
    assert bench.outside.calls[EffectName.DEPLOY_INIT] == 0
    assert engine.advance_stage(task.id, Actor.RECOVERY) is Outcome.WORKING
    everything_once(bench)


# --- TC-07 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "why"),
    [({}, "leased"), ({"machine_boot_id": "another-machine"}, "lease_unknown")],
    ids=["alive", "unknown"],
)
def test_tc07_the_reconciler_skips_a_task_that_is_leased(
    bench: Bench, tmp_path: Path, identity: Mapping[str, str], why: str
) -> None:
    """Its pass leaves the task alone and counts why; F-1 itself defers, should it be asked all the same. What cannot be
    known of a lease is a reason to skip."""
    task = bench.before_the_merge()
    with held_by(bench, task, **identity), doors_of(bench, tmp_path) as service:
        assert service.app.reconciler.run_once()["looked_at"] == 0
        assert service.app.reconciler.snapshot()["skipped"][why] == 1  # type: ignore[index]
        assert service.engine.advance_if_gate_passed(task.id) is Outcome.DEFERRED
        assert service.deferred(Actor.RECONCILER) == 1
        assert not bench.outside.calls


# --- TC-08 ------------------------------------------------------------------------------------------------------------


def test_tc08_confirm_deploy_under_a_lease_waits_and_is_applied_once(bench: Bench, tmp_path: Path) -> None:
    """``plane._try_advance_stage`` by the ticket's state: deferred while the task is owned, then the deploy it asked
    for; the same delivery again, and the same word in another one, are no-ops."""
    bench.outside.config = ASKING
    confirm = Step(StepKind.APPROVAL, CONFIRM_DEPLOY, needs="approvals.deploy")
    task = bench.before_the_merge(confirm, tracker="plane", external_id=TICKET)
    with doors_of(bench, tmp_path) as service:
        said = plane_state("Confirm Deploy")
        sent = deferred_while_owned(bench, service, task, "plane", said["event"], said)
        everything_once(bench)
        assert service.outcome(sent) == "stored as confirm-deploy"
        assert words(bench) == ["applied"]
        assert service.receive("plane", said["event"], said) is None
        late = plane_comment("<p>orch approve</p>")
        assert service.receive("plane", late["event"], late, "d-2") is not None
        service.comes_to_rest()  # whoever was woken by it has looked
        assert service.app.inbox.run_once()["handled"] == 1
        service.comes_to_rest()
        assert [word.partition(":")[0] for word in words(bench)] == ["applied", "refused"]
        everything_once(bench)


def test_tc08_approved_under_a_lease_waits_and_is_applied_once(bench: Bench, tmp_path: Path) -> None:
    """The analysis that was on show when the word came is approved once its task is free, and no other one."""
    bench.outside.config = ASKING
    approval = Step(StepKind.APPROVAL, APPROVED, needs="approvals.analysis")
    task = bench.before(Stage.ANALYSIS, approval, tracker="plane", external_id=TICKET)
    with doors_of(bench, tmp_path) as service:
        said = plane_state("Approved")
        sent = deferred_while_owned(bench, service, task, "plane", said["event"], said)
        assert service.outcome(sent) == "stored as approved"
        assert words(bench) == ["applied"]
        with bench.database.read() as tx:
            assert approval.name in evidence.steps_of_round(tx, task)
        assert service.receive("plane", said["event"], said) is None
        assert service.app.inbox.run_once()["handled"] == 0


@pytest.mark.parametrize(
    ("kind", "payload", "noted"),
    [
        ("push", gitea_push("orch/smp-1", "9" * 40), "the branch was moved"),
        ("status", gitea_status(HEAD, "success"), "said success"),
        ("pull_request", gitea_pull("closed", 5, "orch/smp-1"), "was closed"),
    ],
    ids=["handle_push", "handle_ci_status", "handle_pr"],
)
def test_tc08_what_the_forge_tells_under_a_lease_waits_and_writes_no_stage(
    bench: Bench, tmp_path: Path, kind: str, payload: dict[str, Any], noted: str
) -> None:
    """``gitea.handle_push``, ``handle_ci_status``, ``handle_pr``: deferred, then noted once; the task is looked at by
    the ordinary door, which does everything once."""
    task = bench.before_the_merge()
    with doors_of(bench, tmp_path) as service:
        sent = deferred_while_owned(bench, service, task, "gitea", kind, payload)
        assert noted in str(service.outcome(sent))
        assert bench.notes(noted) == 1
        everything_once(bench)
        assert service.receive("gitea", kind, payload) is None
        assert service.app.inbox.run_once()["handled"] == 0
        service.comes_to_rest()
        everything_once(bench)


def test_tc08_a_cancel_under_a_lease_waits_and_is_applied_once(bench: Bench, tmp_path: Path) -> None:
    """A finaliser that dies with the merge intended: the cancel that came meanwhile turns it, once."""
    task = bench.before_the_merge(tracker="plane", external_id=TICKET)
    with doors_of(bench, tmp_path) as service:
        said = plane_state("Cancelled")
        with held_by(bench, task):
            sent = service.receive("plane", said["event"], said)
            assert sent is not None
            assert service.app.inbox.run_once() == {"handled": 0, "deferred": 1, "failed": 0}
            assert service.outcome(sent) is None
        dead(bench, "first")
        bench.store.clock.advance(60)
        bench.beat("service")
        assert service.app.inbox.run_once()["handled"] == 1
        service.comes_to_rest()
        assert stage_of(bench) is Stage.CANCELLED
        assert words(bench) == ["applied"]
        assert service.receive("plane", said["event"], said) is None
        service.comes_to_rest()
        assert dict(bench.outside.calls) == {"revoke merge_pr": 1}


def test_tc08_a_signal_that_came_too_late_is_answered(bench: Bench, tmp_path: Path) -> None:
    """A cancel that arrives while the merge takes place changes nothing and is refused with the reason."""
    task = bench.before_the_merge(tracker="plane", external_id=TICKET)
    with doors_of(bench, tmp_path) as service:
        with standing_at(bench, task, "merge_pr.before_act"):
            said = plane_state("Cancelled")
            assert service.receive("plane", said["event"], said) is not None
            assert service.app.inbox.run_once()["deferred"] == 1
        bench.store.clock.advance(60)
        bench.beat("service")
        assert service.app.inbox.run_once()["handled"] == 1
        service.comes_to_rest()
        [outcome] = words(bench)
        assert outcome.startswith("refused: the change is on main already")
        everything_once(bench)


# --- TC-09 ------------------------------------------------------------------------------------------------------------


def test_tc09_the_switch_turns_the_lease_off_and_nothing_else(bench: Bench) -> None:
    """Departure 1: no lease is written or read; stage writes stay compare-and-swap, effects stay in the ledger."""
    task = bench.before_the_merge()
    bench.process("other")
    row = "INSERT INTO transition_lease (task_id, owner, owner_pid, owner_boot_id) VALUES (:t, 'monitor', 1, 'other')"
    bench.store.raw(row, {"t": task.id})
    engine, ownership = bench.process("first", enabled=False)
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    assert bench.lease_rows() == 1  # another's live lease was neither obeyed nor touched
    assert dict(bench.outside.calls) == ONCE
    with bench.database.write() as tx:
        assert not tasks.update_task_stage_cas(tx, task.id, Stage.DEPLOY, Stage.DONE, epoch=task.epoch)
    assert ownership.snapshot()["enabled"] is False
    assert {row["state"] for row in bench.store.rows("SELECT state FROM effects")} == {"applied"}


@pytest.mark.parametrize(
    ("scope", "leased"),
    [
        (Scope(), True),
        (Scope(repos=frozenset({"other"})), False),
        (Scope(repos=frozenset({"other", REPO})), True),
        (Scope(repos=frozenset()), False),
        (Scope(repos=frozenset(), self_repo=REPO), True),
    ],
    ids=["everyone", "others", "named", "nobody", "the installation itself"],
)
def test_tc09_the_scope_says_whose_tasks_are_leased(bench: Bench, scope: Scope, leased: bool) -> None:
    """An empty list means the installation's own repository only; by default all are in scope (departure 2)."""
    task = bench.before_the_merge()
    _, ownership = bench.process("first", scope=scope)
    with ownership.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        assert lease.epoch == task.epoch + 1
        assert bench.lease_rows() == leased
    assert bench.lease_rows() == 0


def test_tc09_the_unconditional_write_exists_and_the_laws_of_the_schema_hold_for_it(bench: Bench) -> None:
    task = bench.before_the_merge()
    with pytest.raises(ConstraintRefused, match="merge_pr is not applied"), bench.database.write() as tx:
        tasks.update_task_stage(tx, task.id, Stage.DONE)
    callers = [
        path
        for path in Path(inspect.getfile(transition_lease)).parent.rglob("*.py")
        if "update_task_stage(" in path.read_text()
    ]
    assert [path.name for path in callers] == [
        "tasks.py"
    ]  # defined there, called from nowhere: the switch is never that off


# --- TC-10 ------------------------------------------------------------------------------------------------------------


class BrokenDatabase:
    """Refuses everything."""

    @contextmanager
    def write(self) -> Iterator[Tx]:
        raise DatabaseError("The database refused: disk I/O error.")
        yield

    @contextmanager
    def read(self) -> Iterator[Tx]:
        raise DatabaseError("The database refused: disk I/O error.")
        yield

    def close(self) -> None:
        """There is nothing to let go."""


def test_tc10_a_broken_database_is_a_warning_and_nobody_acts(store: Store, logged: Logged) -> None:
    owner = Ownership(
        BrokenDatabase(),
        boot_id=BootId("me"),
        processes=SystemProcesses(),
        clock=store.clock,
        liveness=FinalizerLiveness(),
        term=Term(store.clock, TTL_S),
    )
    with owner.transition(TaskId(1), Actor.MONITOR) as lease:
        assert lease is None
    assert owner.snapshot()["holders"] is None
    told = str(logged)
    assert "lease not acquired" in told
    assert "disk I/O error" in told


def test_tc10_a_corrupt_lease_row_stops_neither_its_task_nor_the_queue(bench: Bench) -> None:
    task = bench.before_the_merge()
    row = (
        "INSERT INTO transition_lease (task_id, owner, owner_pid, owner_boot_id, run_id, stage, acquired_at) "
    )
    bench.store.raw(
        row + "VALUES (:t, 'nobody knows', -7, 'a life that never was', -1, '?', 'soon')", {"t": task.id}
    )
    engine, _ = bench.process("first")
    assert engine.advance_stage(task.id, Actor.RECONCILER) is Outcome.WORKING
    everything_once(bench)


def test_tc10_production_fails_closed(bench: Bench) -> None:
    """A forge that cannot be read is no reason to act, and none to give up."""
    task = bench.before_the_merge()
    bench.outside.readable = False
    engine, _ = bench.process("first")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.RETRY
    assert not bench.outside.calls
    assert [
        row["state"] for row in bench.store.rows("SELECT state FROM effects WHERE name = 'merge_pr'")
    ] == ["in_doubt"]
    bench.outside.readable = True
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    everything_once(bench)


# --- TC-11 ------------------------------------------------------------------------------------------------------------


def test_tc11_the_contracts_of_the_pipeline_stand() -> None:
    """Edges and gates as the seeds know them; additions only (the whole is guarded by the pipeline's snapshot)."""
    advance = [
        (edge.source, edge.target, edge.gate)
        for edges in STAGE_TRANSITIONS.values()
        for edge in edges
        if edge.kind is EdgeKind.ADVANCE
    ]
    assert (Stage.TESTING, Stage.DEPLOY_STAGING, "check_testing") in advance
    assert (Stage.DEPLOY_STAGING, Stage.DEPLOY, "check_staging_log") in advance
    assert (Stage.DEPLOY, Stage.DONE, "check_production") in advance
    assert {edge[2] for edge in advance} <= set(QG_CHECKS)
    assert all(name.startswith("check_") for name in QG_CHECKS)


@pytest.mark.of_the_file
def test_tc11_the_table_is_the_seeds_and_making_it_again_changes_nothing(store: Store) -> None:
    columns = [
        (row["name"], row["type"], row["notnull"], row["dflt_value"], row["pk"])
        for row in store.rows("SELECT * FROM pragma_table_info('transition_lease') ORDER BY cid")
    ]
    assert columns == [
        ("task_id", "INTEGER", 0, None, 1),
        ("owner", "TEXT", 1, None, 0),
        ("owner_pid", "INTEGER", 0, None, 0),
        ("owner_boot_id", "TEXT", 0, None, 0),
        ("run_id", "INTEGER", 0, None, 0),
        ("stage", "TEXT", 0, None, 0),
        ("acquired_at", "TEXT", 1, "datetime('now')", 0),
    ]
    before = [tuple(row) for row in store.rows("SELECT name, sql FROM sqlite_master ORDER BY name")]
    init_db(store.path, clock=store.clock, entropy=store.entropy)
    assert [tuple(row) for row in store.rows("SELECT name, sql FROM sqlite_master ORDER BY name")] == before


# --- TC-12 ------------------------------------------------------------------------------------------------------------


def test_tc12_the_queue_shows_ownership_beside_what_it_showed_before(desk: Desk, serve: Serve) -> None:
    task = desk.file()
    url = serve()
    with (
        desk.ownership.transition(task.id, Actor.FINALIZER),
        desk.ownership.transition(task.id, Actor.REAPER),
    ):
        shown = json.loads(urlopen(f"{url}/queue", timeout=60).read())
    block = shown["transition_lease"]
    assert {"queued", "running", "held", "serial_gate", "merge_gate", "reaper"} <= set(shown)
    assert block["enabled"] is True
    [holder] = block["holders"]
    assert (holder["task"], holder["owner"], holder["stage"]) == (task.work_item, "finalizer", "created")
    assert holder["age_s"] >= 0
    assert block["deferred"] == {"reaper": 1}
    assert (block["stale_reclaims"], block["forced_reclaims"]) == (0, 0)


@pytest.mark.parametrize("kind", ["stale", "forced"])
def test_tc12_a_reclaim_is_alerted_with_a_number_that_can_be_clicked(
    bench: Bench, tmp_path: Path, kind: str
) -> None:
    task = bench.before_the_merge()
    _, ownership = bench.process("second")
    identity = {"start_ticks": 1} if kind == "stale" else {}
    with held_by(bench, task, **identity):
        bench.store.clock.advance(3601.0 if kind == "forced" else 0.0)
        bench.beat("first")
        bench.beat("second")
        assert len(ownership.reclaim(Actor.REAPER, 3600.0)) == 1
    redactor = Redactor(())
    notifier = LogNotifier(tmp_path, bench.store.clock, redactor, get_logger("alerts"))
    Outbox(
        bench.database,
        LocalTracker(tmp_path, bench.store.clock, redactor),
        notifier,
        base_url="https://orch.example",
        interval_s=5.0,
        entropy=bench.store.entropy,
        telemetry=Telemetry(),
    ).run_once()
    [alert] = [each for each in notifier.alerts() if "lease" in str(each["text"])]
    assert alert["work_item"] == task.work_item
    assert alert["url"] == f"https://orch.example/board/{task.work_item}"
    [lesson] = bench.store.rows("SELECT source, kind FROM lessons")
    assert tuple(lesson) == ("auto", f"{kind}-reclaim")


# --- TC-13 ------------------------------------------------------------------------------------------------------------


OWNERSHIP = [transition_lease, finalizer_liveness, leases, judge, reclaims, registration, state_folder, term]


def test_tc13_all_of_ownership_is_looked_at() -> None:
    rest = {path.stem for path in Path(inspect.getfile(judge)).parent.glob("[!_]*.py")}
    assert rest == {module.__name__.rpartition(".")[2] for module in OWNERSHIP[3:]}


@pytest.mark.parametrize("module", OWNERSHIP)
def test_tc13_ownership_can_reach_no_deploy_no_forge_and_no_process(module: object) -> None:
    """NFR-5: it cannot restart production, push, or touch the detached deploy; it has nothing to do it with."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    ours = {name.split(".")[1] for name in imported if name.startswith("orchestrator.")}
    assert ours <= {"db", "domain", "finalizer_liveness", "observability", "ownership", "runtime"}
    assert not {"os", "signal", "subprocess"} & imported
    calls = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {"spawn", "run", "kill", "send_signal", "terminate"} & calls


# --- TC-14 ------------------------------------------------------------------------------------------------------------


def test_tc14_one_actor_alone_does_everything_once(bench: Bench) -> None:
    """The edge and Phase C with the mechanism on; the whole pipeline is ``tests/integration/pipeline``."""
    task = bench.before_the_merge()
    engine, ownership = bench.process("first")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    everything_once(bench)
    assert engine.run_deploy_finalizer(task.id) is Outcome.WORKING
    everything_once(bench)
    shown = ownership.snapshot()
    assert (shown["holders"], shown["deferred"], shown["stale_reclaims"]) == ([], {}, 0)


# --- what the tests above say in one line -----------------------------------------------------------------------------


@contextmanager
def held_by(
    bench: Bench, task: Task, *, point: str = "merge_pr.before_probe", **identity: object
) -> Iterator[None]:
    """A process named "first" owns the task and does not go on from ``point``, for good: what it was is over."""
    points = Points()
    there, go, stop = stopped_at()

    def hook() -> None:
        stop()
        raise Killed

    points.on(point, hook)
    engine, _ = bench.process("first", points=points, **identity)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.advance_stage, task.id, Actor.MONITOR)
        assert there.wait(PATIENCE_S)
        try:
            yield
        finally:
            go.set()
            with pytest.raises(Killed):
                running.result(30)


@contextmanager
def standing_at(bench: Bench, task: Task, point: str) -> Iterator["Future[Outcome]"]:
    """A process named "first" lives and owns the task at ``point`` for the length of the block, then goes on; it has
    come to its end when the block is left."""
    points = Points()
    there, go, hook = stopped_at()
    points.on(point, hook)
    engine, _ = bench.process("first", points=points)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.advance_stage, task.id, Actor.MONITOR)
        assert there.wait(PATIENCE_S)
        try:
            yield running
        finally:
            go.set()
            running.result(30)


def deferred_while_owned(
    bench: Bench, service: Doors, task: Task, source: str, kind: str, payload: Mapping[str, Any]
) -> int:
    """A delivery comes while another living process owns the task, waits, and is dealt with once that is over; its
    number in the inbox."""
    _, theirs = bench.process("first")
    with theirs.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        sent = service.receive(source, kind, payload)
        assert sent is not None
        assert service.app.inbox.run_once() == {"handled": 0, "deferred": 1, "failed": 0}
        assert service.deferred(Actor.WEBHOOK) == 1
        assert (service.outcome(sent), words(bench), dict(bench.outside.calls)) == (None, [], {})
    bench.store.clock.advance(60)
    bench.beat("service")
    assert service.app.inbox.run_once()["handled"] == 1
    service.comes_to_rest()
    return sent


def claimed_by(bench: Bench, task: Task, boot_id: str, attempts: int = 3) -> Job:
    """A running job of the task, of a kind that no step of its stage asks for."""
    with bench.database.write() as tx:
        jobs.enqueue(tx, task, jobs.NewJob(JobKind.CI, max_attempts=attempts))
        job = jobs.claim_next_job(tx, BootId(boot_id))
    assert job is not None
    return job


def left_by_the_dead(bench: Bench, attempts: int = 1) -> None:
    """A running job of the task whose owner has ended."""
    tasks_of = bench.store.rows("SELECT id FROM tasks")
    task = bench.store.task(tasks_of[0]["id"]) if tasks_of else bench.store.new_task(stage=Stage.DEVELOPMENT)
    claimed_by(bench, task, "dead", attempts)


def words(bench: Bench) -> list[str]:
    """What the engine has answered to people, in order."""
    query = "SELECT outcome FROM inbox LEFT JOIN deliveries ON inbox_id = inbox.id WHERE inbox_id IS NULL"
    return [row["outcome"] for row in bench.store.rows(f"{query} ORDER BY inbox.id")]


def dead(bench: Bench, boot_id: str) -> None:
    with bench.database.write() as tx:
        leases.forget_process(tx, BootId(boot_id))
