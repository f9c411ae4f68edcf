"""The pipeline as data: a contract (NFR-3), total, and in step with the gates that exist."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.stage import Stage, Track
from orchestrator.gates.quality_gates import QG_CHECKS
from orchestrator.rules.transitions import (
    STAGE_STEPS,
    STAGE_TRANSITIONS,
    WRITTEN_BY,
    EdgeKind,
    StepKind,
    advance_target,
    allowed,
    mermaid,
    next_step,
    reject_target,
)

SNAPSHOT = Path(__file__).with_name("pipeline_snapshot.json")
PARTS = sorted({step.needs for steps in STAGE_STEPS.values() for step in steps if step.needs})
FORWARD = list(Stage)


def _as_data() -> dict[str, object]:
    return {
        "gates": sorted(QG_CHECKS),
        "transitions": {
            stage: [[e.target, e.kind, e.gate, e.track] for e in edges]
            for stage, edges in STAGE_TRANSITIONS.items()
        },
        "steps": {stage: [[step.name, step.needs] for step in steps] for stage, steps in STAGE_STEPS.items()},
    }


def test_pipeline_is_the_one_that_was_agreed() -> None:
    """Changed on purpose? Then the snapshot changes in the same commit, and names are only ever added."""
    assert json.loads(json.dumps(_as_data())) == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_every_gate_of_an_edge_and_of_a_step_exists_and_every_gate_is_used() -> None:
    named = {edge.gate for edges in STAGE_TRANSITIONS.values() for edge in edges if edge.gate}
    steps = {step.what for each in STAGE_STEPS.values() for step in each if step.kind is StepKind.GATE}
    assert named <= set(QG_CHECKS)
    assert steps == set(QG_CHECKS)
    for stage, edges in STAGE_TRANSITIONS.items():
        own = {step.what for step in STAGE_STEPS[stage] if step.kind is StepKind.GATE}
        gates = {edge.gate for edge in edges if edge.kind is EdgeKind.ADVANCE}
        assert gates <= own, stage
    assert {s.what for each in STAGE_STEPS.values() for s in each if s.kind is StepKind.RECORD} == set(
        WRITTEN_BY
    )


@pytest.mark.parametrize("stage", list(Stage))
def test_every_step_is_reached_in_order_and_then_the_edge(stage: Stage) -> None:
    for size in range(len(PARTS) + 1):
        for has in combinations(PARTS, size):
            wanted = [step for step in STAGE_STEPS[stage] if not step.needs or step.needs in has]
            passed: list[str] = []
            while (step := next_step(stage, passed, has)) is not None:
                assert step.name not in passed
                passed.append(step.name)
            assert passed == [step.name for step in wanted]
    names = [step.name for step in STAGE_STEPS[stage]]
    assert len(names) == len(set(names))


@given(
    stage=st.sampled_from(list(Stage)),
    passed=st.frozensets(st.sampled_from(sorted({s.name for each in STAGE_STEPS.values() for s in each}))),
    has=st.frozensets(st.sampled_from(PARTS)),
)
def test_next_step_is_total_and_never_one_that_is_behind(
    stage: Stage, passed: frozenset[str], has: frozenset[str]
) -> None:
    step = next_step(stage, passed, has)
    if step is None:
        assert all(s.name in passed or (s.needs and s.needs not in has) for s in STAGE_STEPS[stage])
    else:
        assert step in STAGE_STEPS[stage]
        assert step.name not in passed
        before = STAGE_STEPS[stage][: STAGE_STEPS[stage].index(step)]
        assert all(s.name in passed or s.needs not in has for s in before if s.needs)
        assert all(s.name in passed for s in before if not s.needs)


def test_every_stage_can_be_reached_and_can_end() -> None:
    targets = {stage: {edge.target for edge in edges} for stage, edges in STAGE_TRANSITIONS.items()}
    reached, todo = set[Stage](), {Stage.CREATED}
    while todo:
        reached |= todo
        todo = {target for stage in todo for target in targets[stage]} - reached
    assert reached == set(Stage)
    ends = {Stage.DONE, Stage.CANCELLED}
    for _ in Stage:
        ends |= {stage for stage in Stage if targets[stage] & ends}
    assert ends == set(Stage)


def test_terminal_stages_lead_nowhere_and_after_the_merge_there_is_no_way_back() -> None:
    assert STAGE_TRANSITIONS[Stage.DONE] == STAGE_TRANSITIONS[Stage.CANCELLED] == ()
    assert {edge.target for edge in STAGE_TRANSITIONS[Stage.DEPLOY]} == {Stage.DEPLOY, Stage.DONE}
    for stage in Stage:
        may = not stage.terminal and stage is not Stage.DEPLOY
        assert allowed(stage, Stage.CANCELLED, EdgeKind.CANCEL) is may
        assert allowed(stage, Stage.DEPLOY, EdgeKind.RESTORE) is may


@pytest.mark.parametrize("track", [*Track, None])
def test_a_passed_gate_leads_forward_on_every_track_until_done(track: Track | None) -> None:
    stage, way = Stage.CREATED, [Stage.CREATED]
    while not stage.terminal:
        target = advance_target(stage, track)
        assert FORWARD.index(target) > FORWARD.index(stage)
        assert allowed(stage, target, EdgeKind.ADVANCE)
        stage = target
        way.append(stage)
    assert stage is Stage.DONE
    assert (Stage.ARCHITECTURE in way) is (track is not Track.FAST)


@pytest.mark.parametrize("stage", list(Stage))
def test_a_rejection_leads_where_an_edge_is(stage: Stage) -> None:
    rejects = [edge.target for edge in STAGE_TRANSITIONS[stage] if edge.kind is EdgeKind.REJECT]
    if not rejects:
        with pytest.raises(LookupError):
            reject_target(stage)
        return
    assert allowed(stage, reject_target(stage), EdgeKind.REJECT)
    for wanted in rejects:
        assert reject_target(stage, wanted) is wanted
    assert reject_target(stage, Stage.DONE) in rejects


def test_no_step_acts_before_the_gate_that_it_needs() -> None:
    """The order that the promise rests on: checks on M, then staging, then a person, then the merge."""
    order = [step.name for step in STAGE_STEPS[Stage.DEPLOY_STAGING]]
    assert order.index("candidate:merge") == 0
    assert order.index("gate:check_candidate") < order.index("effect:image")
    assert (
        order.index("gate:check_staging")
        < order.index("gate:check_staging_log")
        < order.index("approval:confirm-deploy")
    )
    assert order[-1] == "effect:merge_pr"


def test_diagram_shows_every_edge_but_cancels_and_restores() -> None:
    drawn = mermaid()
    left_out = (EdgeKind.CANCEL, EdgeKind.RESTORE)
    edges = [edge for each in STAGE_TRANSITIONS.values() for edge in each if edge.kind not in left_out]
    arrows = [line for line in drawn.splitlines() if "-->" in line and "[*]" not in line]
    assert len(arrows) == len(edges)
