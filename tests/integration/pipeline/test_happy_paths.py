"""A ticket from filed to running software: what git, the store, the environments and the journals show of it."""

from collections import Counter

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage, Track
from orchestrator.domain.task import Hold
from orchestrator.observability.telemetry import Metric
from orchestrator.rules.trailers import trailers
from tests.fixtures_pipeline import Build
from tests.waiting import wait_until

FULL = ["analyst", "architect", "developer", "reviewer", "tester", "deployer"]


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres"], indirect=True)
def test_full_track_tested_tree_is_merged_built_and_running(pipeline: Build) -> None:
    line = pipeline(coverage=True, image=True, staging=True, production=True).start()
    before = line.main
    item = line.add("Add a greeting", labels=())
    task = line.done(item)

    [merge] = line.merges()
    story = line.story(item)
    [candidate] = story.candidates
    assert merge == line.main == candidate.sha
    assert line.forge.git("rev-parse", "main^1") == before
    assert line.forge.git("rev-parse", "main^2") == task.head_sha
    assert trailers(line.forge.git("log", "-1", "--format=%B", "main"))["Orch-Nonce"] == candidate.nonce
    assert line.show(f"src/change_{item.replace('-', '_')}.py") == "CHANGE = 1"

    assert line.roles(item) == FULL
    assert [run["sha"] for run in line.journal("checks")] == [task.gated_sha, merge]
    assert [build["sha"] for build in line.journal("builds")] == [merge]
    staging, production = line.journal("deploys")
    assert (staging["env"], production["env"]) == ("staging", "production")
    assert (
        staging["sha"] == production["sha"] == merge == line.running("staging") == line.running("production")
    )
    assert staging["digest"] == production["digest"]
    assert f"change_{item.replace('-', '_')}.py" in production["files"]

    baseline = line.app.operations.baseline("sample")
    assert baseline is not None
    assert (baseline.percent, baseline.merged_sha) == (80.0, merge)
    assert line.slots() == []
    count = [(e.name, e.state) for e in story.effects].count
    for name, times in ((EffectName.MERGE_PR, 1), (EffectName.RATCHET, 1), (EffectName.DEPLOY_INIT, 2)):
        assert count((name, EffectState.APPLIED)) == times
    assert all(effect.state is EffectState.APPLIED for effect in story.effects)
    [pull] = line.pulls()
    assert pull["branch"] == task.branch
    assert [document.name for document in story.documents] == ["14-staging-log.md"]
    assert "14-staging-log.md" not in line.forge.git("ls-tree", "-r", "--name-only", "main")


def test_fast_track_leaves_architecture_out_and_needs_no_environments(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "analyst", "track": "fast"})
    item = line.add(labels=())
    task = line.done(item)
    assert task.track is Track.FAST
    assert line.roles(item) == ["analyst", "developer", "reviewer", "tester"]
    assert line.main == line.merges()[-1]
    assert line.journal("deploys") == line.journal("builds") == []


def test_events_alone_rebuild_stage_and_round(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "reviewer", "round": 1, "verdict": "rejected", "findings": ["Say hello louder."]})
    item = line.add()
    task = line.done(item)

    stage, rounds, epochs = Stage.CREATED, dict.fromkeys(Stage, 0), []
    for event in line.events(item):
        if event.type is not EventType.STAGE_CHANGED:
            assert event.stage in (stage, None)
            continue
        assert event.stage is stage
        assert event.to_stage is not None
        stage = event.to_stage
        rounds[stage] += 1
        assert event.data["round"] == rounds[stage]
        epochs.append(event.epoch or 0)
    assert (stage, rounds[stage]) == (task.stage, task.round) == (Stage.DONE, 1)
    assert rounds[Stage.DEVELOPMENT] == rounds[Stage.REVIEW] == 2
    assert epochs == sorted(set(epochs))


@pytest.mark.long
def test_why_says_at_every_point_who_does_what(pipeline: Build) -> None:
    line = pipeline("[approvals]\nanalysis = true\n").start()
    line.agent({"role": "analyst", "until": str(line.root / "go")})
    item = line.add()
    line.started(item, "analyst")
    assert "runs analyst, attempt 1" in line.why(item)
    (line.root / "go").touch()
    line.wait_for(item, lambda task: task.hold)
    assert "waits (person)" in line.why(item)
    assert f"orch task approve {item}" in line.why(item)
    assert "next: approval:approved" in line.why(item)
    line.app.operations.approve(item, person="Ann")
    line.done(item)
    assert "waits for nothing" in line.why(item)


@pytest.mark.long
def test_without_leases_the_stages_and_effects_stay_as_safe(pipeline: Build) -> None:
    """The kill-switch turns off law 1 alone (departure 1)."""
    settings = {"ORCH_TRANSITION_LEASE_ENABLED": "false"}
    line = pipeline(coverage=True, staging=True, production=True, settings=settings).start()
    items = [line.add("One"), line.add("Two")]
    for item in items:
        line.done(item)
    assert len(line.merges()) == 2
    assert len(line.deployed("production")) == 2
    assert line.running("production") == line.main


@pytest.mark.long
def test_what_happens_is_counted_once_it_is_stored(pipeline: Build) -> None:
    """Counters of ``GET /metrics`` by their labels, held against the task's own story."""
    line = pipeline("[approvals]\nanalysis = true\n", production=True).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    assert (
        line.outcome(line.app.operations.reject(item, person="Ann", reason="Say which users.")) == "applied"
    )
    line.wait_for(item, lambda task: task.round == 2 and task.hold is Hold.PERSON)
    assert line.outcome(line.app.operations.approve(item, person="Ann")) == "applied"
    line.done(item)
    told = line.events(item)

    def stored(type: EventType, name: str, **data: object) -> dict[str, int]:
        some = [event for event in told if event.type is type and data.items() <= event.data.items()]
        return dict(Counter(str(event.data[name]) for event in some))

    moved = dict(Counter(str(event.to_stage) for event in told if event.type is EventType.STAGE_CHANGED))
    counts = line.app.telemetry.snapshot
    wait_until(
        lambda: counts()[Metric.TRANSITIONS] == moved
    )  # the last of them is stored first, then counted
    counted = counts()
    assert counted[Metric.GATES_JUDGED] == stored(EventType.GATE_JUDGED, "verdict")
    assert counted[Metric.EFFECTS_INTENDED] == stored(EventType.EFFECT_INTENDED, "effect")
    assert counted[Metric.EFFECTS_APPLIED] == stored(EventType.EFFECT_SETTLED, "effect", state="applied")
    assert counted[Metric.EFFECTS_ACTED]["merge_pr"] == counted[Metric.EFFECTS_APPLIED]["merge_pr"] == 1
    assert counted[Metric.SIGNALS_APPLIED] == {"reject": 1, "approved": 1}
    assert counted[Metric.JOBS_FINISHED] == stored(EventType.JOB_FINISHED, "status")
