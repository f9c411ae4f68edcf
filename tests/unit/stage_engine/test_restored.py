"""What becomes of a task after an accepted restore (DESIGN §3, §6)."""

from orchestrator.db import mail, slots
from orchestrator.domain.ids import Sha
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Landed, Signal
from orchestrator.rules.installation import RESTORED
from tests.fixtures_db import REPO
from tests.fixtures_transition import Bench


def test_a_restored_merge_that_is_not_as_tested_freezes_the_repository(bench: Bench) -> None:
    task = bench.before_the_merge()
    other = Sha("8" * 40)
    bench.outside.landed = lambda candidates: Landed(candidates[0], Sha("9" * 40), other)  # type: ignore[method-assign]
    word = Signal(RESTORED, task.stage, task.round, None, "Ann", "restored")
    with bench.database.write() as tx:
        mail.receive(tx, task, word, source="operator", dedup_key="r")
    bench.process("one")[0].advance_stage(task.id, Actor.MONITOR)
    found = bench.store.task(task.id)
    assert found.stage is Stage.DEPLOY
    with bench.database.read() as tx:
        assert slots.frozen(tx, REPO) is not None, found.hold_reason
