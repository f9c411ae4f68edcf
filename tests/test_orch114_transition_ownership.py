"""ORCH-114 by its test plan: TC-01 … TC-14, each named by its id (requirements, "Test plan").

Outside acts are doubles that count and do not fence (see ``fixtures_transition``); the same promises over real git,
real processes and real SIGKILL are in ``tests/proofs`` and ``tests/integration/pipeline``.
"""

import ast
import inspect
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from orchestrator import finalizer_liveness, transition_lease
from orchestrator.daemons.outbox import Outbox
from orchestrator.db import jobs, leases, mail, tasks
from orchestrator.db.database import Tx
from orchestrator.db.migrate import init_db
from orchestrator.domain.effect import EffectName
from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.ids import BootId, TaskId
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.lease import Actor
from orchestrator.domain.scope import Scope
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal, Task
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.gates.quality_gates import QG_CHECKS
from orchestrator.notifications.log import LogNotifier
from orchestrator.observability.log import get_logger
from orchestrator.observability.redactor import Redactor
from orchestrator.observability.telemetry import Telemetry
from orchestrator.ownership import judge, reclaims, registration, term
from orchestrator.ownership.term import Term
from orchestrator.rules.transitions import STAGE_TRANSITIONS, EdgeKind
from orchestrator.runtime.process import SystemProcesses
from orchestrator.stage_engine.signals import CANCEL
from orchestrator.stage_engine.situation import Outcome
from orchestrator.trackers.local import LocalTracker
from orchestrator.transition_lease import Ownership
from tests.fixtures_db import REPO, Store
from tests.fixtures_desk import Desk, Serve
from tests.fixtures_ownership import Logged
from tests.fixtures_transition import TTL_S, Bench, Points, stopped_at
from tests.waiting import PATIENCE_S

ONCE = {EffectName.MERGE_PR: 1, EffectName.IMAGE: 1, EffectName.DEPLOY_INIT: 1}
EFFECT_POINTS = [
    f"{name}.{when}"
    for name in ("merge_pr", "image", "deploy_init")
    for when in ("intended", "before_probe", "before_act", "after_act")
]
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


# --- TC-04, TC-05 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_tc04_the_reaper_defers_to_a_live_owner_on_every_edge(bench: Bench, point: str) -> None:
    outcome, deferred, reaper = two_enter(bench, Actor.REAPER, point=point)
    if point == "transition.after_commit":  # the commit has given the lease back: whoever is first goes on
        assert Outcome.WORKING in (outcome, deferred)
    else:
        assert (outcome, deferred) == (Outcome.WORKING, Outcome.DEFERRED)
        assert reaper.snapshot()["deferred"] == {"reaper": 1}
    everything_once(bench)


def test_tc04_one_of_two_reapers_takes_a_running_job(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        jobs.enqueue(tx, task, jobs.NewJob(JobKind.DEVELOPER))
        job = jobs.claim_next_job(tx, BootId("dead"))
    assert job is not None
    with store.database.write() as tx:
        first = jobs.reap_running_job(tx, job, "its owner is dead")
        second = jobs.reap_running_job(tx, job, "its owner is dead")
    assert (first, second) == (JobStatus.QUEUED, None)


def test_tc05_a_dead_owner_is_replaced_at_once(bench: Bench) -> None:
    """Its process provably does not exist any more; nothing waits for a term."""
    task = bench.before_the_merge()
    with held_by(bench, task, start_ticks=1):
        engine, reaper = bench.process("second")
        assert engine.advance_stage(task.id, Actor.REAPER) is Outcome.WORKING
        assert reaper.snapshot()["stale_reclaims"] == 1
    everything_once(bench)


def test_tc05_a_silent_owner_is_replaced_when_its_term_has_ended(bench: Bench) -> None:
    """Nothing can be proven about a process of another machine: its heartbeat speaks for it, and has stopped."""
    task = bench.before_the_merge()
    with held_by(bench, task, machine_boot_id="another-machine"):
        engine, reaper = bench.process("second")
        assert engine.advance_stage(task.id, Actor.REAPER) is Outcome.DEFERRED
        bench.store.clock.advance(TTL_S + 1)
        bench.beat("second")
        assert engine.advance_stage(task.id, Actor.REAPER) is Outcome.WORKING
        assert reaper.snapshot()["stale_reclaims"] == 1
    everything_once(bench)


@pytest.mark.parametrize(
    "point", ["merge_pr.before_act", "deploy_init.before_act", "transition.before_commit"]
)
def test_tc05_a_hung_owner_is_replaced_at_the_backstop_and_changes_nothing_when_it_wakes(
    bench: Bench, point: str
) -> None:
    """Its process lives and its thread hangs: the marker does not outlast ``reaper_max_running_s`` (NFR-6)."""
    task = bench.before_the_merge()
    points = Points()
    there, go, hook = stopped_at()
    points.on(point, hook)
    hung, ownership = bench.process("first", points=points)
    other, _ = bench.process("second")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(hung.advance_stage, task.id, Actor.MONITOR)
        assert there.wait(PATIENCE_S)
        try:
            assert ownership.reclaim(Actor.REAPER, 3600.0) == []
            bench.store.clock.advance(3601.0)
            bench.beat("first")
            bench.beat("second")
            assert len(ownership.reclaim(Actor.REAPER, 3600.0)) == 1
            assert ownership.snapshot()["forced_reclaims"] == 1
            if point == "transition.before_commit":
                assert other.advance_stage(task.id, Actor.REAPER) is Outcome.WORKING
        finally:
            go.set()
        assert running.result(30) in (Outcome.DEFERRED, Outcome.RETRY)
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


def test_tc07_the_reconciler_skips_a_task_that_is_leased(bench: Bench) -> None:
    task = bench.before_the_merge()
    with held_by(bench, task):
        engine, reconciler = bench.process("second")
        assert engine.advance_if_gate_passed(task.id) is Outcome.DEFERRED
        assert reconciler.snapshot()["deferred"] == {"reconciler": 1}
        assert not bench.outside.calls
        bench.beat("first")


def test_tc07_what_cannot_be_known_of_a_lease_is_a_reason_to_skip(bench: Bench) -> None:
    task = bench.before_the_merge()
    engine, _ = bench.process("second")
    with held_by(bench, task, machine_boot_id="another-machine"):
        assert engine.advance_if_gate_passed(task.id) is Outcome.DEFERRED
    assert not bench.outside.calls


# --- TC-08 ------------------------------------------------------------------------------------------------------------


def test_tc08_a_signal_under_a_lease_waits_and_is_applied_once(bench: Bench) -> None:
    task = bench.before_the_merge()
    engine, webhook = bench.process("second")
    with held_by(bench, task):
        say(bench, task, CANCEL)
        assert engine.advance_stage(task.id, Actor.WEBHOOK) is Outcome.DEFERRED
        assert webhook.snapshot()["deferred"] == {"webhook": 1}
        assert outcomes(bench) == [None]
    dead(bench, "first")
    assert engine.advance_stage(task.id, Actor.WEBHOOK) is Outcome.ENDED
    assert stage_of(bench) is Stage.CANCELLED
    assert outcomes(bench) == ["applied"]
    assert engine.advance_stage(task.id, Actor.WEBHOOK) is Outcome.ENDED
    assert dict(bench.outside.calls) == {"revoke merge_pr": 1}


def test_tc08_a_signal_that_came_too_late_is_answered(bench: Bench) -> None:
    task = bench.before_the_merge()
    points = Points()
    points.on("merge_pr.before_act", lambda: say(bench, task, CANCEL))
    engine, _ = bench.process("first", points=points)
    engine.advance_stage(task.id, Actor.MONITOR)
    [outcome] = outcomes(bench)
    assert outcome is not None
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
    with bench.database.write() as tx, pytest.raises(Exception, match="merge_pr is not applied"):
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


OWNERSHIP = [transition_lease, finalizer_liveness, leases, judge, reclaims, registration, term]


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


def say(bench: Bench, task: Task, kind: str) -> None:
    with bench.database.write() as tx:
        signal = Signal(kind, task.stage, task.round, None, "Ann", "not wanted any more")
        mail.receive(tx, task, signal, source="plane", dedup_key=bench.store.entropy.uuid())


def outcomes(bench: Bench) -> list[str | None]:
    return [row["outcome"] for row in bench.store.rows("SELECT outcome FROM inbox ORDER BY id")]


def dead(bench: Bench, boot_id: str) -> None:
    with bench.database.write() as tx:
        leases.forget_process(tx, BootId(boot_id))
