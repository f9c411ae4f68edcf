"""The reconciler over a real database: whom it has looked at, whom it leaves alone and why, and whom it calls."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from orchestrator.daemons.reconciler import Reconciler
from orchestrator.daemons.silent_authorities import SilentAuthorities
from orchestrator.daemons.skips import Skip
from orchestrator.db import effects, events, failures, homes, jobs, leases, mail, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import AuthorityUnreachable, DatabaseError
from orchestrator.domain.ids import BootId, EffectId, Home, RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.scope import Scope
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Signal, Task, Ticket
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.ownership.term import Term
from orchestrator.runtime.process import Liveness, ProcessIdentity, SystemProcesses
from orchestrator.transition_lease import Ownership
from tests.fixtures_db import REPO, Store

ALERT_S = 300.0


@dataclass
class Net:
    """A reconciler whose looks are written down, and the main branch that it reads."""

    store: Store
    ownership: Ownership
    woken: list[TaskId] = field(default_factory=list)
    main: Sha | None = Sha("a" * 40)
    readable: bool = True
    scope: Scope = field(default_factory=Scope)

    def __post_init__(self) -> None:
        silent = SilentAuthorities(self.store.database, clock=self.store.clock, alert_s=ALERT_S)
        self.reconciler = Reconciler(
            self.store.database,
            self,  # type: ignore[arg-type]
            self.ownership,
            silent,
            main_of=self._main_of,
            hasten=lambda: 0,
            interval_s=30,
            scope=self.scope,
        )

    def wake(self, ids: Iterable[TaskId]) -> None:
        self.woken.extend(ids)

    def pass_(self) -> list[TaskId]:
        self.woken.clear()
        self.reconciler.run_once()
        return list(self.woken)

    def skipped(self) -> dict[str, int]:
        counts = self.reconciler.snapshot()["skipped"]
        assert isinstance(counts, dict)
        return {why: count for why, count in counts.items() if count}

    def hold(self, task: Task, why: Hold) -> None:
        with self.store.database.write() as tx:
            tasks.hold(tx, task.id, why, "because")

    def alerts(self) -> list[str]:
        with self.store.database.read() as tx:
            return [str(m.payload["text"]) for m in mail.due(tx) if m.kind == "alert"]

    def _main_of(self, repo: RepoName) -> Sha | None:
        if not self.readable:
            raise AuthorityUnreachable("no answer")
        return self.main


@pytest.fixture
def net(store: Store) -> Net:
    processes = SystemProcesses()
    term = Term(store.clock, 3600.0)
    term.renew(store.clock.boottime())
    ownership = Ownership(
        store.database,
        boot_id=BootId("me"),
        processes=processes,
        clock=store.clock,
        liveness=FinalizerLiveness(),
        term=term,
    )
    return Net(store, ownership)


def _leased_by(store: Store, task: Task, boot: str, identity: ProcessIdentity | None) -> None:
    lease = Lease(task.id, Actor.MONITOR, BootId(boot), task.epoch + 1, task.stage)
    with store.database.write() as tx:
        if identity is not None:
            leases.register_process(tx, BootId(boot), "", identity, "serve", "")
        assert leases.acquire(tx, lease, 1, None)


def _say(tx: Tx, task: Task) -> None:
    """A person's word."""
    word = Signal("retry", task.stage, task.round, None, "Ann")
    mail.receive(tx, task, word, source="t", dedup_key="1")


# --- F-1: whom it leaves alone ----------------------------------------------------------------------------------------


def test_a_free_task_is_looked_at_and_what_people_decide_is_not(net: Net) -> None:
    free = net.store.new_task("Free")
    for why in (Hold.ESCALATED, Hold.PERSON):
        net.hold(net.store.new_task(why.value), why)
    working = net.store.new_task("Working", stage=Stage.ANALYSIS)
    with net.store.database.write() as tx:
        jobs.enqueue(tx, working, jobs.NewJob(JobKind.ANALYST))
    assert net.pass_() == [free.id]
    assert net.skipped() == {Skip.ESCALATED: 1, Skip.PERSON: 1, Skip.JOB: 1}
    net.pass_()
    assert net.skipped() == {Skip.ESCALATED: 2, Skip.PERSON: 2, Skip.JOB: 2}


def test_what_lies_at_a_lost_worker_is_looked_at_whatever_waits_for_it(net: Net) -> None:
    """Its next job was queued there: nobody else may claim it, and nothing else would tell."""
    for name in ("lives", "lost"):
        task = net.store.new_task(name, stage=Stage.DEVELOPMENT)
        with net.store.database.write() as tx:
            homes.enter(tx, Home(name), host="one", folder="/state", lost_after_s=960.0)
            tasks.set_work_home(tx, task.id, Home(name))
            jobs.enqueue(tx, task, jobs.NewJob(JobKind.DEVELOPER))
    assert net.pass_() == []
    net.store.clock.advance(961.0)
    with net.store.database.write() as tx:
        homes.seen(tx, Home("lives"))
    assert net.pass_() == [task.id]


def test_a_task_whose_dependencies_are_not_done_waits_for_them(net: Net) -> None:
    first = net.store.new_task("First")
    with net.store.database.write() as tx:
        later = tasks.add(tx, REPO, WorkItem("S-99"), Ticket("Later", depends_on=(first.work_item,)))
    assert later is not None
    assert net.pass_() == [first.id, later.id], "nobody has said yet what it waits for"
    net.hold(later, Hold.BLOCKED)
    assert net.pass_() == [first.id]
    assert net.skipped() == {Skip.DEPENDENCIES: 1}


def test_a_blocked_task_is_looked_at_when_main_has_moved(net: Net) -> None:
    task = net.store.new_task()
    net.hold(task, Hold.BLOCKED)
    assert net.pass_() == [task.id]
    assert net.pass_() == net.pass_() == []
    net.readable = False
    assert net.pass_() == []
    assert net.skipped() == {Skip.BLOCKED: 3}
    net.readable = True
    assert net.pass_() == [], "an outage has changed nothing"
    net.main = Sha("b" * 40)
    assert net.pass_() == [task.id]
    assert net.pass_() == []


@pytest.mark.parametrize(
    ("owner", "why"),
    [(Liveness.ALIVE, Skip.LEASED), (Liveness.UNKNOWN, Skip.LEASE_UNKNOWN), (Liveness.DEAD, None)],
)
def test_a_leased_task_is_its_owners(net: Net, owner: Liveness, why: Skip | None) -> None:
    task = net.store.new_task()
    own = SystemProcesses().own()
    elsewhere = ProcessIdentity("another machine", own.pid_namespace, own.pid, own.start_ticks)
    identity = {Liveness.ALIVE: own, Liveness.UNKNOWN: elsewhere, Liveness.DEAD: None}[owner]
    _leased_by(net.store, task, "other", identity)
    assert net.pass_() == ([] if why else [task.id])
    assert net.skipped() == ({why: 1} if why else {})


def test_a_lease_of_our_own_that_no_thread_holds_is_looked_at(net: Net) -> None:
    """Giving it back had failed: nobody else would ever come."""
    task = net.store.new_task()
    _leased_by(net.store, task, "me", SystemProcesses().own())
    assert net.pass_() == [task.id]
    with net.ownership.transition(task.id, Actor.MONITOR) as lease:
        assert lease is not None
        assert net.pass_() == []


def test_leases_that_cannot_be_read_leave_every_task_alone(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    net.store.new_task()

    def unreadable(tx: Tx) -> None:
        raise DatabaseError("unreadable")

    with monkeypatch.context() as patch:
        patch.setattr(leases, "all_rows", unreadable)
        assert net.pass_() == []
    assert net.skipped() == {Skip.LEASE_UNKNOWN: 1}
    assert len(net.pass_()) == 1


def test_a_persons_word_is_looked_at_whatever_holds_the_task(net: Net) -> None:
    task = net.store.new_task()
    net.hold(task, Hold.ESCALATED)
    with net.store.database.write() as tx:
        _say(tx, task)
    assert net.pass_() == [task.id]


def test_an_epoch_from_the_future_is_told_once(net: Net) -> None:
    task = net.store.new_task()
    net.store.raw(
        f"INSERT INTO events (task_id, type, actor, epoch, at) VALUES ({task.id}, 'note', '?', 99, '')"
    )
    for _ in range(2):
        assert net.pass_() == [task.id]  # the queue goes on
    [alert] = net.alerts()
    assert task.work_item in alert
    assert net.store.epoch(task.id) == 100


def test_an_epoch_that_is_not_believed_is_told_once_and_the_queue_goes_on(net: Net) -> None:
    odd, other = net.store.new_task(), net.store.new_task()
    net.store.raw(f"UPDATE transition_epoch SET epoch = {2**63 - 1} WHERE task_id = {odd.id}")
    with net.store.database.write() as tx:
        _say(tx, odd)  # nor is a person's word followed
    for _ in range(2):
        assert net.pass_() == [other.id]
    assert net.skipped() == {"epoch_not_believed": 2}
    [alert] = net.alerts()
    assert odd.work_item in alert


def test_tasks_out_of_scope_are_left_alone_and_counted_whatever_waits(net: Net) -> None:
    other = RepoName("other")
    with net.store.database.write() as tx:
        tx.execute("repositories.add", name=other, forge="local", location="/other", prefix="OTH")
        mine = tasks.add(tx, other, WorkItem("OTH-1"), Ticket("Mine"))
        assert mine is not None
    net.hold(net.store.new_task(), Hold.BLOCKED)
    _failing(net)  # an effect that is not settled
    far = Net(net.store, net.ownership, scope=Scope(repos=frozenset({other})), main=None)
    assert far.pass_() == [mine.id]
    assert far.skipped() == {"out_of_scope": 2}
    net.store.clock.advance(ALERT_S + 1)
    far.pass_()
    assert len(far.alerts()) == 1, "people are told of every silent authority"


# --- H20: an authority that stays silent ------------------------------------------------------------------------------


def _failing(net: Net, name: EffectName = EffectName.MERGE_PR, **judged: object) -> EffectId:
    task = net.store.new_task(stage=Stage.DEPLOY_STAGING)
    lease = Lease(task.id, Actor.MONITOR, BootId("me"), task.epoch, task.stage)
    with net.store.database.write() as tx:
        carried = judged or {"repo": "sample"}
        effect = effects.intend(tx, lease, name, f"k{task.id}", 1, token="t", judged=carried)
        failures.note(tx, task.id, "no route to host")
    return effect.effect_id


def _settle(net: Net, effect_id: EffectId) -> None:
    with net.store.database.write() as tx:
        intent = effects.get(tx, effect_id)
        assert intent is not None
        epoch = leases.lock_epoch(tx, intent.task_id) or 0
        lease = Lease(intent.task_id, Actor.MONITOR, BootId("me"), epoch, Stage.DEPLOY_STAGING)
        effects.settle(tx, lease, intent, EffectState.APPLIED, {}, "")


def test_h20_a_person_is_called_once_for_an_authority_and_told_when_it_is_over(net: Net) -> None:
    merges = [_failing(net) for _ in range(12)]
    net.store.clock.advance(ALERT_S - 1)
    net.pass_()
    assert net.alerts() == []
    net.store.clock.advance(2)
    net.pass_()
    [alert] = net.alerts()
    assert "the forge of sample" in alert and "no route to host" in alert
    assert "and 2 more" in alert
    net.store.clock.advance(ALERT_S)
    _failing(net)  # the same outage
    net.pass_()
    again = Net(net.store, net.ownership)  # nor does a restart tell it again
    again.pass_()
    assert len(net.alerts()) == 1
    for effect in merges:
        _settle(net, effect)
    net.pass_()
    assert len(net.alerts()) == 1, "one effect is still in doubt"
    _settle(net, EffectId(13))
    net.pass_()
    net.pass_()
    assert len(net.alerts()) == 2
    assert "Nothing is in doubt any more at the forge of sample" in net.alerts()[1]
    _failing(net)
    net.store.clock.advance(ALERT_S + 1)
    net.pass_()
    assert len(net.alerts()) == 3, "another outage is another call"
    with net.store.database.read() as tx:
        assert tx.one("authorities.silent") is not None
    assert net.store.rows("SELECT count(*) FROM events WHERE type = 'note'")[0][0] == 3


def test_each_authority_has_its_own_call(net: Net) -> None:
    net.store.drop_guard("start_has_its_place", "effects")
    _failing(net, EffectName.PUSH, repo="sample")
    _failing(net, EffectName.DEPLOY_INIT, environment="production", repo="sample")
    _failing(net, EffectName.DEPLOY_UNDO, environment="production", repo="other")
    _failing(net, EffectName.IMAGE, repo="sample", sha="x")
    net.store.clock.advance(ALERT_S + 1)
    net.pass_()
    assert sorted(alert.split(" has not shown")[0].split("Z ")[-1] for alert in net.alerts()) == [
        "the environment production",
        "the forge of sample",
        "the image store",
    ]


def test_an_effect_that_is_being_done_calls_nobody(net: Net) -> None:
    """A long build is intended for as long as it takes; nothing has failed."""
    task = net.store.new_task(stage=Stage.DEPLOY_STAGING)
    lease = Lease(task.id, Actor.MONITOR, BootId("me"), task.epoch, task.stage)
    with net.store.database.write() as tx:
        effects.intend(tx, lease, EffectName.IMAGE, "k", 1, token="t", judged={"repo": "sample"})
    net.store.clock.advance(10 * ALERT_S)
    assert net.pass_() == [task.id]
    assert net.alerts() == []
    with net.store.database.read() as tx:
        assert events.of_task(tx, task.id) == []
