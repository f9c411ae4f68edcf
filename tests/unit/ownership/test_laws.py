"""The laws as invariants: three processes, two tasks, any order of steps, and owners that wake up too late.

Every process is one whose death cannot be proven, so that only its heartbeat speaks for it: time passes, another takes
over, and the first goes on as if nothing had happened. Whatever it then does must leave no trace.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.db import effects, events, leases, slots, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import ConstraintRefused, LostRace
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId, Sha, TaskId
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.finalizer_liveness import FinalizerLiveness
from orchestrator.ownership.term import Term
from orchestrator.runtime.process import ProcessIdentity, SystemProcesses
from orchestrator.transition_lease import Ownership
from tests.clock import FakeClock
from tests.fixtures_db import REPO, open_store

TTL_S = 30.0
PROCESSES = 3
FREE_OF_SLOTS = {Stage.DEVELOPMENT, Stage.TESTING, Stage.CANCELLED, Stage.DONE}
UNSETTLED = {EffectState.INTENDED, EffectState.REVOKING, EffectState.IN_DOUBT}
STAGING = [slots.merge_slot(REPO), slots.environment_slot("staging")]

processes = st.integers(0, PROCESSES - 1)
numbers = st.integers(0, 1)
goals = st.sampled_from(
    [Stage.DEVELOPMENT, Stage.TESTING, Stage.DEPLOY_STAGING, Stage.DEPLOY, Stage.DONE, Stage.CANCELLED]
)
names = st.sampled_from([EffectName.MERGE_PR, EffectName.IMAGE])


class SlotBusy(Exception):
    """Leaves the write block without a trace."""


class Laws(RuleBasedStateMachine):
    """What actors may try, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.store = open_store(Path(self.folder.name) / "orch.db", self.clock)
        self.tasks = [self.store.new_task(stage=Stage.DEVELOPMENT).id for _ in range(2)]
        self.terms: dict[BootId, Term] = {}
        self.owners = [self._process(BootId(f"process-{n}")) for n in range(PROCESSES)]
        self.held: dict[tuple[int, TaskId], tuple[Lease, ExitStack]] = {}
        self.epochs: dict[TaskId, int] = {}
        self.stages: dict[TaskId, Stage] = {}
        self.merged: set[TaskId] = set()
        self.settled: dict[int, str] = {}
        self.baseline = 0.0
        self.serial = 0

    def _process(self, boot_id: BootId) -> Ownership:
        with self.store.database.write() as tx:
            elsewhere = ProcessIdentity("another-machine", "pid:[1]", 7, 7)
            leases.register_process(tx, boot_id, "there", elsewhere, "serve", "")
        self.terms[boot_id] = Term(self.clock, TTL_S)
        self.terms[boot_id].renew(self.clock.boottime())
        return Ownership(
            self.store.database,
            boot_id=boot_id,
            processes=SystemProcesses(),
            clock=self.clock,
            liveness=FinalizerLiveness(),
            term=self.terms[boot_id],
        )

    def teardown(self) -> None:
        for _, stack in self.held.values():
            stack.close()
        self.store.database.close()
        self.folder.cleanup()

    @rule(process=processes, number=numbers)
    def acquire(self, process: int, number: int) -> None:
        task_id = self.tasks[number]
        if (process, task_id) in self.held:
            return
        stack = ExitStack()
        lease = stack.enter_context(self.owners[process].transition(task_id, Actor.RECONCILER))
        if lease is None:
            stack.close()
        else:
            assert lease.epoch == self.store.epoch(task_id)
            self.held[process, task_id] = (lease, stack)

    @rule(process=processes, number=numbers)
    def leave(self, process: int, number: int) -> None:
        held = self.held.pop((process, self.tasks[number]), None)
        if held is not None:
            held[1].close()

    @rule(process=processes)
    def heartbeat(self, process: int) -> None:
        self._beat(process)

    @rule(seconds=st.sampled_from([1.0, TTL_S / 2, TTL_S * 2]), frozen=st.sets(processes))
    def time_passes(self, seconds: float, frozen: set[int]) -> None:
        """Some stand still meanwhile; the others are heard of."""
        self.clock.advance(seconds)
        for process in set(range(PROCESSES)) - frozen:
            self._beat(process)

    def _beat(self, process: int) -> None:
        boot_id, since = self.owners[process].boot_id, self.clock.boottime()
        with self.store.database.write() as tx:
            assert leases.heartbeat(tx, boot_id)
        self.terms[boot_id].renew(since)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), goal=goals)
    def move(self, data: st.DataObject, goal: Stage) -> None:
        """A whole transition in one commit, by an owner that may be stale."""
        key, lease = self._any_lease(data)
        task_id = key[1]

        def write(tx: Tx) -> None:
            leases.check(tx, lease)
            task = tasks.get(tx, task_id)
            if goal in FREE_OF_SLOTS:
                slots.free_all(tx, REPO, task_id)
            if goal is Stage.DEPLOY_STAGING and slots.take_all(tx, REPO, task_id, STAGING) is not None:
                raise SlotBusy
            if not tasks.update_task_stage_cas(tx, task_id, lease.stage, goal, epoch=lease.epoch):
                raise LostRace("moved")
            events.append(
                tx, EventType.STAGE_CHANGED, lease.owner, task=task, to_stage=goal, epoch=lease.epoch + 1
            )
            self.owners[key[0]].release(tx, lease, epoch=lease.epoch + 1)

        if self._attempt(lease, write):
            self.held.pop(key)[1].close()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), name=names)
    def intend(self, data: st.DataObject, name: EffectName) -> None:
        _, lease = self._any_lease(data)

        def write(tx: Tx) -> None:
            round_ = tasks.get(tx, lease.task_id).round
            effects.intend(tx, lease, name, "k", round_, token="t", judged={})

        self._attempt(lease, write)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), state=st.sampled_from(list(EffectState)))
    def advance_an_effect(self, data: st.DataObject, state: EffectState) -> None:
        """To any state at all, permitted or not."""
        _, lease = self._any_lease(data)
        known = self._effects(lease.task_id)
        if not known:
            return
        intent = data.draw(st.sampled_from(known))

        def write(tx: Tx) -> None:
            if state.settled:
                effects.settle(tx, lease, intent, state, {}, "")
            else:
                effects.move(tx, lease, intent, state, "")

        self._attempt(lease, write)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), measured=st.floats(0, 100))
    def ratchet(self, data: st.DataObject, measured: float) -> None:
        _, lease = self._any_lease(data)
        self.serial += 1

        def write(tx: Tx) -> None:
            leases.check(tx, lease)
            slots.ratchet(tx, REPO, Sha(f"{self.serial:040}"), measured, lease.task_id)

        self._attempt(lease, write)

    def _any_lease(self, data: st.DataObject) -> tuple[tuple[int, TaskId], Lease]:
        key = data.draw(st.sampled_from(sorted(self.held)))
        return key, self.held[key][0]

    def _attempt(self, lease: Lease, write: object) -> bool:
        """Run it. A stale owner is refused, and whoever is refused has changed nothing."""
        assert callable(write)
        before = self._dump()
        stale = self.store.epoch(lease.task_id) != lease.epoch
        try:
            with self.store.database.write() as tx:
                write(tx)
        except (LostRace, ConstraintRefused, SlotBusy):
            assert self._dump() == before
            return False
        assert not stale
        return True

    def _dump(self) -> list[tuple[object, ...]]:
        tables = ("tasks", "transition_epoch", "transition_lease", "effects", "slots", "events", "task_edges",
                  "coverage_baseline")  # fmt: skip
        return [(table, *row) for table in tables for row in self.store.rows(f"SELECT * FROM {table}")]

    def _effects(self, task_id: TaskId) -> list[Intent]:
        with self.store.database.read() as tx:
            return effects.of_task(tx, task_id)

    @invariant()
    def at_most_one_owner_may_write(self) -> None:
        for task_id in self.tasks:
            newest = self.store.epoch(task_id)
            able = [
                lease for lease, _ in self.held.values() if (lease.task_id, lease.epoch) == (task_id, newest)
            ]
            assert len(able) <= 1

    @invariant()
    def whom_others_may_take_for_dead_does_not_trust_itself(self) -> None:
        """Law 12: our own term ends before theirs does."""
        with self.store.database.read() as tx:
            silent = {row.boot_id for row in leases.processes(tx, TTL_S) if row.silent}
        for boot_id in silent:
            assert self.terms[boot_id].number() is None

    @invariant()
    def a_lease_that_was_taken_over_is_not_trusted_any_more(self) -> None:
        """Not even when its owner is heard of again, and though its epoch were not looked at."""
        for lease, _ in self.held.values():
            if lease.epoch != self.store.epoch(lease.task_id):
                with pytest.raises(LostRace):
                    self.terms[lease.boot_id].check(lease)

    @invariant()
    def epochs_only_rise_and_with_every_stage(self) -> None:
        for task_id in self.tasks:
            task = self.store.task(task_id)
            assert task.epoch >= self.epochs.get(task_id, 0)
            if task.stage is not self.stages.get(task_id, task.stage):
                assert task.epoch > self.epochs[task_id]
            self.epochs[task_id] = task.epoch

    @invariant()
    def no_stage_before_deploy_after_the_merge(self) -> None:
        for task_id in self.tasks:
            stage, before = self.store.task(task_id).stage, self.stages.get(task_id)
            if before is not None and before.terminal:
                assert stage is before
            if before is not None and stage is not before and task_id in self.merged:
                assert stage in (Stage.DEPLOY, Stage.DONE)
            applied = [e for e in self._effects(task_id) if e.state is EffectState.APPLIED]
            merges = [e for e in applied if e.name is EffectName.MERGE_PR]
            assert len(merges) <= 1
            if stage in (Stage.DEPLOY, Stage.DONE):
                assert merges
            if merges:
                self.merged.add(task_id)
            self.stages[task_id] = stage

    @invariant()
    def what_is_settled_stays_and_an_ended_task_has_nothing_open(self) -> None:
        for task_id in self.tasks:
            known = {effect.effect_id: effect.state for effect in self._effects(task_id)}
            for effect_id, state in known.items():
                assert self.settled.get(effect_id, state) == state
                if state.settled:
                    self.settled[effect_id] = state
            if self.store.task(task_id).stage.terminal:
                assert not UNSETTLED & set(known.values())

    @invariant()
    def slots_go_with_the_stage(self) -> None:
        held = self.store.rows("SELECT task_id, count(*) AS n FROM slots GROUP BY 1")
        for row in held:
            stage = self.store.task(row["task_id"]).stage
            assert stage not in FREE_OF_SLOTS
            assert row["n"] == len(STAGING)
        assert len(held) <= 1

    @invariant()
    def the_story_rebuilds_the_stage(self) -> None:
        for task_id in self.tasks:
            told = self.store.rows(
                "SELECT to_stage FROM events WHERE task_id = :id AND type = 'stage.changed' ORDER BY id DESC LIMIT 1",
                {"id": task_id},
            )
            if told:
                assert told[0]["to_stage"] == self.store.task(task_id).stage

    @invariant()
    def the_baseline_never_falls(self) -> None:
        with self.store.database.read() as tx:
            now = slots.baseline(tx, REPO)
        assert (now.percent if now else 0.0) >= self.baseline
        self.baseline = now.percent if now else 0.0


TestLaws = Laws.TestCase
TestLaws.settings = settings(
    max_examples=10, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
