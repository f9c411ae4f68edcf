"""What becomes of a task after an accepted restore (DESIGN §3, §6)."""

from orchestrator.db import evidence, mail, slots
from orchestrator.db import restored as imported
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.ids import Sha
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold, Landed, Signal, Task
from orchestrator.rules.installation import RESTORED
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_db import REPO
from tests.fixtures_transition import BASE, HEAD, TREE, Bench, M

SOMEBODYS, OTHER_TREE = Sha("9" * 40), Sha("8" * 40)


def taken_out(
    bench: Bench,
    tree: Sha,
    *,
    started: bool = False,
    last: EffectName = EffectName.DEPLOY_INIT,
    usable: bool = True,
) -> Task:
    """A task whose merge the backup does not know; main has M, with these files, and maybe production was started."""
    task = bench.before_the_merge()
    if not usable:
        bench.outside.unusable.add(BASE)
    if started:
        with bench.database.write() as tx:
            assert imported.add_effect(
                tx, task, last, f"production:{M}:1", 1, EffectState.APPLIED, token="1",
                judged={"environment": "production", "sha": M, "generation": 1}, fact={},
            )  # fmt: skip
    found = Candidate(task.id, task.round, M, TREE, BASE, HEAD, "n", 900, "f")
    bench.outside.by_hand = Landed(found, SOMEBODYS, tree)
    word = Signal(RESTORED, task.stage, task.round, None, "Ann", "restored")
    with bench.database.write() as tx:
        mail.receive(tx, task, word, source="operator", dedup_key="r")
    bench.process("one")[0].advance_stage(task.id, Actor.MONITOR)
    return bench.store.task(task.id)


def test_a_restored_merge_that_is_not_as_tested_freezes_the_repository(bench: Bench) -> None:
    waiter = bench.waiter_elsewhere()
    found = taken_out(bench, OTHER_TREE)
    assert (found.stage, found.hold) == (Stage.DEPLOY, Hold.ESCALATED)
    with bench.database.read() as tx:
        assert slots.frozen(tx, REPO) is not None, found.hold_reason
        merge = slots.get(tx, slots.merge_slot(REPO))
        assert slots.held_by(tx, found.id) == []
        assert slots.baseline(tx, REPO) is None
    assert merge is not None
    assert merge.frozen
    assert waiter.id in bench.woken


def test_a_restored_merge_that_is_as_tested_gives_its_places_back_and_counts(bench: Bench) -> None:
    waiter = bench.waiter_elsewhere()
    found = taken_out(bench, TREE)
    assert (found.stage, found.hold) == (Stage.DEPLOY, Hold.ESCALATED)
    with bench.database.read() as tx:
        assert slots.frozen(tx, REPO) is None
        assert slots.all_slots(tx) == []
        measured = slots.baseline(tx, REPO)
        steps = evidence.steps_of_round(tx, found)
    assert measured is not None
    assert (measured.merged_sha, measured.percent) == (M, 80.0)
    assert steps == {}
    assert waiter.id in bench.woken


def test_what_is_looked_at_after_a_restore_and_is_ill_is_undone_and_freezes_the_repository(
    bench: Bench,
) -> None:
    found = taken_out(bench, TREE, started=True)
    word = Signal("retry", found.stage, found.round, None, "Ann", "look")
    with bench.database.write() as tx:
        mail.receive(tx, found, word, source="operator", dedup_key="retry")
    engine, _ = bench.process("one")
    assert engine.advance_stage(found.id, Actor.MONITOR) is Outcome.WORKING
    bench.unhealthy(engine, "one")
    engine.advance_stage(found.id, Actor.MONITOR)
    assert bench.outside.calls[EffectName.DEPLOY_INIT] == 0
    with bench.database.read() as tx:
        assert slots.frozen(tx, REPO) is not None, bench.store.task(found.id).hold_reason
    assert bench.outside.calls[EffectName.DEPLOY_UNDO] == 1


def test_nobody_is_told_that_production_was_not_started_where_no_configuration_tells(bench: Bench) -> None:
    found = taken_out(bench, TREE, started=True, usable=False)
    assert (found.stage, found.hold) == (Stage.DEPLOY, Hold.ESCALATED)
    assert "not brought to production" not in str(found.hold_reason)
    assert "production was started with it, or staging" in str(found.hold_reason)


def test_what_was_undone_freezes_the_repository_though_no_configuration_is_usable(bench: Bench) -> None:
    found = taken_out(bench, TREE, started=True, last=EffectName.DEPLOY_UNDO, usable=False)
    assert (found.stage, found.hold) == (Stage.DEPLOY, Hold.ESCALATED)
    with bench.database.read() as tx:
        assert slots.frozen(tx, REPO) is not None, found.hold_reason


def test_what_was_undone_after_the_backup_gives_the_merge_slot_to_the_freeze(bench: Bench) -> None:
    """The backup knows the merge and has the task in *deploy* with its places in hand: a fix could not get in."""
    task = bench.before_the_merge()
    with bench.database.write() as tx:
        assert imported.add_effect(
            tx, task, EffectName.MERGE_PR, M, task.round, EffectState.APPLIED, token="f", judged={}, fact={}
        )
    task = bench.store.move(task.id, Stage.DEPLOY)
    with bench.database.write() as tx:
        assert imported.add_effect(
            tx, task, EffectName.DEPLOY_UNDO, f"production:{M}:2", 1, EffectState.APPLIED, token="2",
            judged={"environment": "production", "sha": M, "generation": 2}, fact={},
        )  # fmt: skip
    bench.outside.by_hand = Landed(Candidate(task.id, 1, M, TREE, BASE, HEAD, "n", 900, "f"), M, TREE)
    word = Signal(RESTORED, task.stage, task.round, None, "Ann", "restored")
    with bench.database.write() as tx:
        mail.receive(tx, task, word, source="operator", dedup_key="r")
    bench.process("one")[0].advance_stage(task.id, Actor.MONITOR)
    found = bench.store.task(task.id)
    assert (found.stage, found.hold) == (Stage.DEPLOY, Hold.ESCALATED)
    with bench.database.read() as tx:
        merge = slots.get(tx, slots.merge_slot(REPO))
        assert slots.frozen(tx, REPO) is not None, found.hold_reason
        assert slots.held_by(tx, found.id) == []
    assert merge is not None
    assert merge.frozen
