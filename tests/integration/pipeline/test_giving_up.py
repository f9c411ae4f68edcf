"""Giving up is durable with its reason: whoever finishes it says why, and does what the reason asks for (law 4)."""

import signal

import pytest

from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.stage import Stage
from tests.fixtures_pipeline import Build, Pipeline


def _filed(line: Pipeline) -> str:
    line.open().register_repository(line.person.folder, name=line.repo, prefix="S")
    item = line.add()
    line.stop()
    return item


def _killed_at(line: Pipeline, point: str) -> None:
    assert line.child(point).wait(60) == -signal.SIGKILL


def _effect(line: Pipeline, item: str, name: EffectName) -> Intent:
    return next(effect for effect in line.story(item).effects if effect.name is name)


@pytest.mark.long
def test_a_crash_while_revoking_loses_no_findings(pipeline: Build) -> None:
    """The build that failed is given up by the next owner, and the developer is told what the build had said."""
    line = pipeline(image=True, staging=True)
    line.agent({"role": "developer", "round": 1, "write": {"UNBUILDABLE": "", "src/new.py": "N = 1\n"}},
               {"role": "developer", "run": [["rm", "UNBUILDABLE"]]})  # fmt: skip
    item = _filed(line)
    _killed_at(line, "image.before_revoke")
    line.open()
    assert _effect(line, item, EffectName.IMAGE).state is EffectState.REVOKING
    line.start()
    line.done(item)
    told = [run["notes"] for run in line.agents(item) if run["role"] == "developer"]
    assert "src cannot be built" in told[1]
    assert "src cannot be built" in _effect(line, item, EffectName.IMAGE).reason


def test_a_crash_while_revoking_loses_no_cancel(pipeline: Build) -> None:
    """The next owner cancels in the commit that settles the revoked merge; no round of work is begun between."""
    line = pipeline(staging=True)
    item = _filed(line)
    _killed_at(line, "merge_pr.before_act")
    line.open()
    receipt = line.app.operations.cancel(item, person="Ann", reason="not wanted")
    line.stop()
    _killed_at(line, "merge_pr.before_revoke")
    line.start()
    line.stage(item, Stage.CANCELLED)
    assert ("deploy-staging", "cancelled", "cancel") in line.moves(item)
    merge = _effect(line, item, EffectName.MERGE_PR)
    assert (merge.state, merge.reason) == (EffectState.REVOKED, "cancelled by Ann: not wanted")
    assert line.outcome(receipt)
    assert line.merges() == []
