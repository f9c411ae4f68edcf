"""Seeded bugs: each takes one guard out of the real code (a few: out of an authority). The explorer has to find it."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pytest import MonkeyPatch

from orchestrator import transition_lease
from orchestrator.db import effects, events, jobs, leases, postgres, slots, sqlite, tasks
from orchestrator.db.database import Tx
from orchestrator.db.statements import statement
from orchestrator.deploy.records import Claimant
from orchestrator.domain.effect import Applied, EffectName, EffectState, GivingUp, Intent, NotApplied
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import EffectId
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Lease
from orchestrator.domain.stage import Stage
from orchestrator.effects import judged
from orchestrator.effects.deploy import DeployEffect, start_of
from orchestrator.effects.ledger import Ledger, Open, Proof
from orchestrator.effects.merge import MergeEffect
from orchestrator.forges.local_fence import fence_of
from orchestrator.operations.desk import Operations
from orchestrator.ownership.judge import Judge
from orchestrator.rules.transitions import PROMOTE, StepKind, next_step
from orchestrator.stage_engine import moves, serial_gate, signals
from orchestrator.stage_engine.acts import Acts
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.plans import Plans
from orchestrator.transition_lease import Ownership
from tests.proofs import explorer
from tests.proofs.interleaving import Budget
from tests.proofs.memory_deployer import MemoryDeployer, Record, key_of
from tests.proofs.memory_forge import MemoryForge
from tests.proofs.memory_ledgers import MemoryLedger
from tests.proofs.play import Scenario
from tests.proofs.scenarios import SCENARIOS

GIVEN_UP = "merged and given up"
NO_INTENT = "an effect without a durable intent"
OURS = "an error of ours"
STUCK = "STUCK"
STILL = ("stage_never_back_after_merge", "stage_waits_for_effects", "effects_move_forward")

Apply = Callable[[MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """One guard less, where to look, and what must be found. ``without``: last guards of the schema, dropped too."""

    name: str
    attack: str
    apply: Apply
    scenario: str
    finds: str
    without: tuple[str, ...] = ()
    budget: Budget | None = None
    early: bool = False  # the bug was there before the scenario begins

    def stage(self, ledger: MemoryLedger, patch: MonkeyPatch) -> explorer.Stage:
        """The scenario, with the bug in the code."""
        if self.early:
            self.apply(patch)
        stage = explorer.Stage(self.where, ledger, without=self.without)
        if not self.early:
            self.apply(patch)
        return stage

    @property
    def where(self) -> Scenario:
        found = next(scenario for scenario in SCENARIOS if scenario.name == self.scenario)
        return replace(found, budget=self.budget) if self.budget else found


# --- how a guard is taken out -----------------------------------------------------------------------------------------


def put(owner: object, name: str, value: object) -> Apply:
    """Something else in its place."""
    return lambda patch: patch.setattr(owner, name, value)


def together(*applied: Apply) -> Apply:
    def apply(patch: MonkeyPatch) -> None:
        for each in applied:
            each(patch)

    return apply


def nothing(*args: object, **named: object) -> None:
    """A call that does nothing."""


def epoch_unchecked_in(*functions: str) -> Apply:
    """The lease is believed in these functions; elsewhere it is still compared with the epoch."""
    real = leases.check

    def check(tx: Tx, lease: Lease) -> None:
        if sys._getframe(1).f_code.co_name not in functions:
            real(tx, lease)

    return put(leases, "check", check)


# --- law 4: giving up -------------------------------------------------------------------------------------------------


def _probe_after_revoke_left_out(patch: MonkeyPatch) -> None:
    real = Ledger._probe

    def probe(self: Ledger, effect: Any, intent: Intent, which: str) -> Any:
        return NotApplied({}) if which == "after_revoke" else real(self, effect, intent, which)

    patch.setattr(Ledger, "_probe", probe)


def _refusal_believed(patch: MonkeyPatch) -> None:
    def act(self: Ledger, lease: Lease, task: Any, effect: Any, intent: Intent) -> Proof | Open:
        try:
            effect.act(intent)
        except OutsideError as error:
            return Proof(
                self._move(lease, task, intent, EffectState.REVOKING, ""), EffectState.REVOKED, {}, str(error)
            )
        return Proof(intent, EffectState.APPLIED, effect.probe(intent).fact)

    patch.setattr(Ledger, "_act", act)


def _not_applied_is_enough(patch: MonkeyPatch) -> None:
    """Giving up goes by the probe alone; nothing is revoked."""
    patch.setattr(MergeEffect, "revoke", nothing)


def _revoke_with_the_own_token(patch: MonkeyPatch) -> None:
    def revoke(self: MemoryForge, candidate: Any, token: str, *, held: object = None) -> None:
        def call() -> None:
            self.state.fences[candidate.task_id] = fence_of(candidate)

        self._wire.act("forge.revoke_merge", call)

    patch.setattr(MemoryForge, "revoke_merge", revoke)


def _giving_up_is_not_stored(patch: MonkeyPatch) -> None:
    def give_up(self: Ledger, lease: Lease, task: Any, intent: Intent, why: GivingUp) -> Proof | Open:
        return self._revoke(lease, task, replace(intent, reason=why.reason, cause=why.cause))

    patch.setattr(Ledger, "give_up", give_up)


def _main_does_not_turn_it(patch: MonkeyPatch) -> None:
    patch.setattr(MergeEffect, "turned", nothing)


def _revoking_is_acted_on(patch: MonkeyPatch) -> None:
    real = Ledger.drive

    def drive(
        self: Ledger, lease: Lease, task: Any, intent: Intent, *, turned: GivingUp | None = None
    ) -> Any:
        return real(self, lease, task, replace(intent, state=EffectState.INTENDED), turned=turned)

    patch.setattr(Ledger, "drive", drive)


# --- law 3: decisions -------------------------------------------------------------------------------------------------


def _gates_judged_again(patch: MonkeyPatch) -> None:
    """Who finds an intended merge looks at the gates once more, and sends the task back where they now fail."""
    real = Acts.drive

    def drive(self: Acts, at: Any, intent: Intent, *, cancelled: GivingUp | None = None) -> Any:
        if intent.name is not EffectName.MERGE_PR or at.lease.owner == "monitor":
            return real(self, at, intent, cancelled=cancelled)
        proof = Proof(
            self._tools.ledger._move(at.lease, at.task, intent, EffectState.REVOKING, "the gate"),
            EffectState.REVOKED, {}, "the gate fails now",
        )  # fmt: skip
        return self._back.reject(at, "the gate fails now", brief="", proofs=[proof])

    patch.setattr(Acts, "drive", drive)


def _undo_judged_again(patch: MonkeyPatch) -> None:
    """Who finds an intended undo looks at production once more instead."""
    real = Acts.drive

    def drive(self: Acts, at: Any, intent: Intent, *, cancelled: GivingUp | None = None) -> Any:
        if intent.name is not EffectName.DEPLOY_UNDO or at.lease.owner == "monitor":
            return real(self, at, intent, cancelled=cancelled)
        moved = self._tools.ledger._move(at.lease, at.task, intent, EffectState.REVOKING, "")
        again = jobs.NewJob(JobKind.PRODUCTION_HEALTH, str(intent.judged["sha"]))
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            self._tools.ledger.settle(tx, at.lease, at.task, Proof(moved, EffectState.REVOKED, {}, ""))
            slots.unfreeze(tx, at.task.repo)
            jobs.enqueue(tx, at.task, again)
        return self._moves.mark(at, PROMOTE)

    patch.setattr(Acts, "drive", drive)


def _act_before_the_intent(patch: MonkeyPatch) -> None:
    real = Acts.take

    def take(self: Acts, at: Any, step: Any) -> Any:
        if step.what == "merge_pr":
            with self._tools.database.read() as tx:
                plan = self._plans.of(tx, at, step, None)
            carried = (plan.name, plan.key, 1, EffectState.INTENDED, 0, "", plan.judged)
            at.place.forge.merge(judged.candidate(Intent(EffectId(0), at.task.id, *carried)), None)
        return real(self, at, step)

    patch.setattr(Acts, "take", take)


def _undo_outside_the_ledger(patch: MonkeyPatch) -> None:
    def broken(self: Acts, at: Any, reason: str, *, proofs: Any = ()) -> Any:
        config = at.settings.production
        with self._tools.database.write() as tx:
            last = effects.last_start(tx, config.name)
            assert last is not None
            plan = self._plans.undo(tx, at, config, config.undo, last)
        carried = replace(
            last, name=EffectName.DEPLOY_UNDO, judged=plan.judged, token=plan.token, sequence=10_000
        )
        self._deployer.start(start_of(carried))
        return self._moves.hold(at, moves.Hold.ESCALATED, reason)

    patch.setattr(Acts, "broken", broken)


def _unsettled_not_first(patch: MonkeyPatch) -> None:
    real = StageEngine._step
    patch.setattr(StageEngine, "_step", lambda self, at: real(self, replace(at, unsettled=())))


# --- laws 1 and 2: ownership ------------------------------------------------------------------------------------------


def _epoch_read_before_the_transaction(patch: MonkeyPatch) -> None:
    """The epoch is compared as it was in the last snapshot, not as it is under the lock."""
    seen = threading.local()
    real = leases.lock_epoch

    def lock_epoch(tx: Any, task_id: Any) -> int | None:
        kept: dict[int, int | None] = seen.__dict__.setdefault("epochs", {})
        if sys._getframe(2).f_code.co_name in ("_situation", "_act"):  # which look before they write
            kept[task_id] = real(tx, task_id)
        return kept.get(task_id)

    patch.setattr(leases, "lock_epoch", lock_epoch)
    patch.setattr(sqlite, "statement", _without_epochs)


def _epoch_test_without_its_lock(patch: MonkeyPatch) -> None:
    """The epoch is compared as it is committed, and may be raised before what was permitted by it is written."""
    real = postgres.text_of

    def text_of(name: str, *, snapshot: bool = False) -> bytes:
        return real(name, snapshot=snapshot or name == "leases.epoch")

    patch.setattr(postgres, "text_of", text_of)


def _without_epochs(name: str) -> str:
    """The stage is compared, the epoch only raised."""
    if name == "leases.raise_epoch":
        return "UPDATE transition_epoch SET epoch = epoch + 1 WHERE task_id = :task_id AND :epoch IS NOT NULL"
    if name == "tasks.update_stage_cas":
        return statement(name).split("AND (SELECT epoch")[0] + "AND :epoch IS NOT NULL"
    return statement(name)


def _commits_believe_their_lease(patch: MonkeyPatch) -> None:
    epoch_unchecked_in("write", "settle", "move", "mark", "hold")(patch)
    patch.setattr(sqlite, "statement", _without_epochs)


def _stage_alone(patch: MonkeyPatch) -> None:
    """A person's cancel writes the stage itself, wherever the task stands by then."""

    def cancel(self: Operations, work_item: str, **named: object) -> None:
        with self._database.read() as tx:
            seen = tasks.by_work_item(tx, work_item)
        with self._database.write() as tx:
            slots.free_all(tx, seen.repo, seen.id)
            now = tasks.get(tx, seen.id)
            if not tasks.update_task_stage_cas(tx, seen.id, seen.stage, Stage.CANCELLED, epoch=now.epoch):
                raise OutsideError("moved")
            events.append(tx, EventType.STAGE_CHANGED, "operator", task=now, to_stage=Stage.CANCELLED)

    patch.setattr(Operations, "cancel", cancel)


def _acquire_does_not_raise(patch: MonkeyPatch) -> None:
    """The lease is taken under the epoch that it finds."""
    real = Ownership._take

    def take(self: Ownership, *args: Any) -> Any:
        taken = real(self, *args)
        return replace(taken, epoch=taken.epoch - 1) if isinstance(taken, Lease) else taken

    patch.setattr(Ownership, "_take", take)
    real_raise = leases.raise_epoch

    def raise_epoch(tx: Tx, lease: Lease) -> bool:
        return True if sys._getframe(1).f_code.co_name == "acquire" else real_raise(tx, lease)

    patch.setattr(leases, "raise_epoch", raise_epoch)


def _dead_owner_loses_its_slots(patch: MonkeyPatch) -> None:
    real = transition_lease.tell

    def tell(tx: Tx, case: Any, task: Any, epoch: int) -> None:
        slots.free_all(tx, task.repo, task.id)
        real(tx, case, task, epoch)

    patch.setattr(transition_lease, "tell", tell)


# --- law 7: a person's word -------------------------------------------------------------------------------------------


def _approval_for_whatever_is_on_show(patch: MonkeyPatch) -> None:
    """It waits until somebody asks for an approval, and is then taken for what is on show."""
    real = signals.Signals._approve
    waiting_now = signals.Signals._waiting

    def waiting(self: Any, at: Any) -> Any:
        step = next_step(at.task.stage, at.passed, at.has)
        asked = step is not None and step.kind is StepKind.APPROVAL
        return [word for word in waiting_now(self, at) if asked or word.signal.kind != signals.CONFIRM_DEPLOY]

    patch.setattr(signals.Signals, "_waiting", waiting)

    def approve(self: Any, at: Any, waiting: Any) -> Any:
        with self._tools.database.read() as tx:
            subject = signals.subject_on_show(tx, at.task)
        signal = replace(waiting.signal, stage=at.task.stage, round=at.task.round, subject=subject)
        return real(self, at, replace(waiting, signal=signal))

    patch.setattr(signals.Signals, "_approve", approve)


# --- slots and production ---------------------------------------------------------------------------------------------


def _merge_slot_freed_at_deploy(patch: MonkeyPatch) -> None:
    patch.setattr(moves, "FREEING", moves.FREEING | {Stage.DEPLOY})


def _cancel_keeps_the_slots(patch: MonkeyPatch) -> None:
    patch.setattr(moves, "FREEING", moves.FREEING - {Stage.CANCELLED})


def _one_generation(patch: MonkeyPatch) -> None:
    real = effects.draw_generation

    def draw(tx: Tx, environment: str, sha: str) -> tuple[int, int] | None:
        drawn = real(tx, environment, sha)
        return (1, drawn[1]) if drawn else None

    patch.setattr(effects, "draw_generation", draw)


def _started_again_without_the_slot(patch: MonkeyPatch) -> None:
    """A person's retry starts the deploy without asking who has the merge slot."""
    patch.setattr(serial_gate, "take_again", nothing)


def _lent_at_any_time(patch: MonkeyPatch) -> None:
    """A person may lift a freeze, or lend its slot, while production is being rolled back."""
    patch.setattr(serial_gate, "_refuse_over_an_undo", nothing)
    real = slots.lend

    def lend(tx: Tx, repo: Any, task_id: Any) -> None:
        freeze = slots.frozen(tx, repo)
        if freeze is not None and freeze.task_id is not None:
            slots.give_to_freeze(tx, repo, freeze.task_id)
            slots.free(tx, freeze.task_id, slots.environment_slot("production"))
        real(tx, repo, task_id)

    patch.setattr(slots, "lend", lend)
    held = slots.get
    patch.setattr(serial_gate.slots, "get", lambda tx, name: None if _lending() else held(tx, name))


def _lending() -> bool:
    return sys._getframe(2).f_code.co_name == "lend"


def _two_starts_at_a_time(patch: MonkeyPatch) -> None:
    def text(name: str) -> str:
        said = statement(name)
        return said.replace("LIMIT 1", "LIMIT 0") if name == "effects.unsettled_in_environment" else said

    patch.setattr(sqlite, "statement", text)


def _token_of_the_task(patch: MonkeyPatch) -> None:
    """The target is shown the task's own epoch, which says nothing about other tasks'."""
    real = Plans._start

    def start(self: Plans, tx: Tx, at: Any, *rest: Any) -> Any:
        return replace(real(self, tx, at, *rest), token=str(at.lease.epoch))

    patch.setattr(Plans, "_start", start)


def _fix_keeps_nothing_for_the_freeze(patch: MonkeyPatch) -> None:
    """What a rejected or cancelled fix gives back is free for whoever waits."""
    patch.setattr(slots, "free_all", lambda tx, repo, task_id: tx.execute("slots.free_all", task_id=task_id))


def _closed_by_a_fix_on_trial(patch: MonkeyPatch) -> None:
    """What was merged since counts as the fix before it is done."""

    def text(name: str) -> str:
        said = statement(name)
        return said.replace("AND tasks.stage = 'done'", "") if name == "effects.done_since" else said

    patch.setattr(sqlite, "statement", text)


def _claims_are_not_exclusive(patch: MonkeyPatch) -> None:
    def start(self: MemoryDeployer, start: Any) -> None:
        claim = self._claim(start, Claimant.CHILD)
        self.state.starts[key_of(start)] = Record(start, claim)
        self._commands.command(f"deploy.command {start.environment}", lambda: self._take_effect(start))

    patch.setattr(MemoryDeployer, "_start", start)


def _start_known_by_its_answer(patch: MonkeyPatch) -> None:
    """An undo is settled as soon as it was sent, not when it is claimed."""
    patch.setattr(DeployEffect, "probe", lambda self, intent: Applied({}))


# --- authorities ------------------------------------------------------------------------------------------------------


def _act_sets_the_fence(patch: MonkeyPatch) -> None:
    real = MemoryForge._merge

    def merge(self: MemoryForge, candidate: Any, held: Any) -> None:
        self.state.fences[candidate.task_id] = fence_of(candidate)
        real(self, candidate, held)

    patch.setattr(MemoryForge, "_merge", merge)


def _old_value_read_later(patch: MonkeyPatch) -> None:
    def merge(self: MemoryForge, candidate: Any, held: Any) -> None:
        if self.state.fences.get(candidate.task_id) != fence_of(candidate):
            raise OutsideError("fenced")
        before = self.state.heads["main"]
        self.state.heads["main"] = candidate.sha
        self.state.merges.append((before, candidate.sha))

    patch.setattr(MemoryForge, "_merge", merge)


CANCEL = "merge: a cancel, a late call"
TWO = "merge: two owners, a late call"
MAIN = "merge: main moves, two owners, a late call"
MOVED = "merge: main has moved, two give up"
LIVING = "merge: crash, lost answers, living owners"
UNDO = "production unhealthy: two undo"
EARLY = "two tasks: one unhealthy, the slot lent too early"
FIX_CANCELLED = "the fix: cancelled"
AGAIN = "unhealthy: unfrozen and started again"

MUTATIONS = (
    Mutation(
        "a task's epoch at the environment",
        "H6",
        _token_of_the_task,
        "the fix: a target that compares tokens",
        "refused the newest start",
        early=True,
    ),
    Mutation("give up without revoke", "H1", _not_applied_is_enough, CANCEL, GIVEN_UP, STILL),
    Mutation("revoke with the own token", "H1", _revoke_with_the_own_token, CANCEL, GIVEN_UP, STILL),
    Mutation(
        "no probe after the revoke",
        "law 4",
        _probe_after_revoke_left_out,
        CANCEL,
        "settled as revoked and is on main",
        STILL,
    ),
    Mutation("a refusal is believed", "H2", _refusal_believed, TWO, GIVEN_UP, STILL),
    Mutation(
        "giving up is not stored", "N4", _giving_up_is_not_stored, CANCEL, "not given up in the ledger", STILL
    ),
    Mutation("giving up is acted on", "N4", _revoking_is_acted_on, CANCEL, STUCK, (), Budget(1, crashes=1)),
    Mutation("main does not turn a merge", "N3", _main_does_not_turn_it, MOVED, STUCK),
    Mutation("gates are judged again", "H10", _gates_judged_again, TWO, GIVEN_UP, STILL),
    Mutation(
        "an undo is judged again",
        "H5",
        _undo_judged_again,
        "production: the gate changes its mind",
        "settled as revoked",
        STILL,
    ),
    Mutation("acts before its intent", "law 3", _act_before_the_intent, TWO, NO_INTENT),
    Mutation("an undo outside the ledger", "H5", _undo_outside_the_ledger, UNDO, NO_INTENT),
    Mutation("unsettled effects are not first", "H19", _unsettled_not_first, CANCEL, OURS),
    Mutation(
        "a release with an unsettled effect", "H19", _unsettled_not_first, CANCEL, "unsettled effect", STILL
    ),
    Mutation(
        "epoch off on intents", "H1", epoch_unchecked_in("take", "intend"), CANCEL, "unsettled effect", STILL
    ),
    Mutation(
        "epoch off on settlements and stages",
        "H1",
        _commits_believe_their_lease,
        CANCEL,
        "a lease is left",
        STILL,
        Budget(2, late=1),
    ),
    Mutation(
        "epoch read before the transaction",
        "H3",
        _epoch_read_before_the_transaction,
        CANCEL,
        "unsettled effect",
        STILL,
    ),
    Mutation("a stage written on the stage alone", "H4", _stage_alone, CANCEL, GIVEN_UP, STILL),
    Mutation("acquire does not raise the epoch", "H1", _acquire_does_not_raise, TWO, "two owners"),
    Mutation(
        "living owners are taken for dead",
        "law 6",
        put(Judge, "replaceable", lambda *_: True),
        LIVING,
        "which lives",
    ),
    Mutation(
        "a dead owner loses its slots", "H17", _dead_owner_loses_its_slots, LIVING, "without the merge slot"
    ),
    Mutation(
        "an approval for another round",
        "H14",
        _approval_for_whatever_is_on_show,
        "confirmed: main moves under the confirmation",
        "without a person's word",
    ),
    Mutation("merge slot freed at deploy", "N5", _merge_slot_freed_at_deploy, TWO, "without the merge slot"),
    Mutation("cancel keeps its slots", "N9", _cancel_keeps_the_slots, CANCEL, OURS),
    Mutation(
        "cancel keeps its slots, unguarded",
        "N9",
        _cancel_keeps_the_slots,
        CANCEL,
        "no use for it",
        ("stage_frees_its_slots",),
    ),
    Mutation("a key without generation", "H7", _one_generation, AGAIN, STUCK),
    Mutation(
        "started again without the slot",
        "N10",
        _started_again_without_the_slot,
        AGAIN,
        "started without its slot",
    ),
    Mutation(
        "a freeze lifted over an undo",
        "N6",
        _lent_at_any_time,
        "two tasks: one unhealthy, one waits, unfrozen",
        "an undo is unsettled: the freeze stays",
        ("place_stays_for_a_start",),
    ),
    Mutation(
        "lent before the undo is settled",
        "N6",
        _lent_at_any_time,
        EARLY,
        "an undo is unsettled: the slot is not lent",
        ("place_stays_for_a_start",),
    ),
    Mutation(
        "lent before the undo is settled, unguarded",
        "N6",
        together(_lent_at_any_time, _two_starts_at_a_time),
        EARLY,
        "an undo rolls back another task's deploy",
        ("freeze_is_not_lent_over_an_undo", "freeze_stays_for_an_undo", "place_stays_for_a_start"),
    ),
    Mutation(
        "the fix does not give the slot back",
        "N9",
        _fix_keeps_nothing_for_the_freeze,
        FIX_CANCELLED,
        "its merge slot is never free",
    ),
    Mutation(
        "the fix does not give the slot back, unguarded",
        "N9",
        _fix_keeps_nothing_for_the_freeze,
        FIX_CANCELLED,
        "frozen, but the merge slot is free",
        ("frozen_slot_is_never_free",),
    ),
    Mutation(
        "closed by a fix on trial",
        "N8",
        _closed_by_a_fix_on_trial,
        "the fix: on trial",
        "done, but production does not contain it",
    ),
    Mutation(
        "claims are not exclusive",
        "H8",
        _claims_are_not_exclusive,
        "production: two owners, slow and late starts",
        "two starts of one generation",
    ),
    Mutation("a start known by its answer", "H8", _start_known_by_its_answer, UNDO, "settled as applied"),
    Mutation("the act sets the fence", "N4", _act_sets_the_fence, CANCEL, GIVEN_UP, STILL),
    Mutation("main's old value is read later", "N1", _old_value_read_later, MAIN, "not built on it"),
)

ON_POSTGRES = (
    Mutation(
        "epoch test without FOR UPDATE",
        "H3",
        _epoch_test_without_its_lock,
        CANCEL,
        "ended with an unsettled effect",
        budget=Budget(1),
    ),
)
"""Holes that only transactions side by side can have."""
