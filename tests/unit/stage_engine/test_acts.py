"""Effect steps: what is intended when, and what is never intended again."""

import pytest

from orchestrator.db import effects
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import LostRace
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.rules.transitions import OPEN_PR
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_transition import Bench, M, Points


def stop_here() -> None:
    raise LostRace("the test ends here")


@pytest.mark.parametrize("reason", ["given up by Ann: no", "restored: accepted", "the branch was moved"])
def test_what_was_given_up_in_this_round_is_done_again_under_a_key_of_its_own(
    bench: Bench, reason: str
) -> None:
    """At the bound of rejections the round stays the same; a person's "go on" must not end in a fault of ours."""
    task = bench.before(Stage.DEVELOPMENT, OPEN_PR)
    bench.given_up(task, EffectName.OPEN_PR, "orch/smp-1", reason)
    engine, _ = bench.process("one")
    assert engine.advance_stage(task.id, Actor.MONITOR) is Outcome.WORKING
    with bench.database.read() as tx:
        known = [(e.key, e.state) for e in effects.of_task(tx, task.id)]
    assert known == [("orch/smp-1", EffectState.REVOKED), ("orch/smp-1#2", EffectState.APPLIED)]


def test_a_revoked_m_never_comes_back(bench: Bench) -> None:
    task = bench.before_the_merge()
    bench.given_up(task, EffectName.MERGE_PR, M, "given up by Ann: no", candidate={"base_sha": "b" * 40})
    points = Points()
    points.on("transition.after_commit", stop_here)
    engine, _ = bench.process("one", points=points)
    engine.advance_stage(task.id, Actor.MONITOR)
    found = bench.store.task(task.id)
    assert (found.stage, found.round) == (Stage.DEPLOY_STAGING, task.round + 1)
    assert bench.outside.calls[EffectName.MERGE_PR] == 0
