"""Numbers of the ledger are drawn for what is intended, and for nothing else."""

from orchestrator.domain.lease import Actor
from tests.fixtures_transition import Bench


def test_a_start_takes_one_number(bench: Bench) -> None:
    task = bench.before_the_merge()
    engine, _ = bench.process("one")
    for _ in range(4):
        engine.advance_stage(task.id, Actor.MONITOR)
    drawn = {row["name"]: row["sequence"] for row in bench.store.rows("SELECT name, sequence FROM effects")}
    assert "deploy_init" in drawn
    assert sorted(drawn.values()) == list(range(min(drawn.values()), max(drawn.values()) + 1))
    [ledger] = bench.store.rows("SELECT sequence FROM installation")
    assert ledger["sequence"] == max(drawn.values())
