"""Attacks on giving up and going on, each by its number in the reviews that the protocol answers (laws 3 and 4)."""

import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orchestrator.domain.effect import Applied, EffectName, EffectState, Intent
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.effects.merge import MergeEffect
from orchestrator.runtime.process import Completed, SystemProcesses
from tests.fixtures_pipeline import ILL, Build, Pipeline
from tests.waiting import wait_until


def _merges(line: Pipeline, item: str) -> list[Intent]:
    return [effect for effect in line.story(item).effects if effect.name is EffectName.MERGE_PR]


def _filed(line: Pipeline) -> str:
    line.register()
    item = line.add()
    line.stop()
    return item


def _killed_at(line: Pipeline, point: str) -> None:
    assert line.child(point).wait(60) == -signal.SIGKILL


class Merging(SystemProcesses):
    """Git for real, but for the one transaction that moves main: ``merge`` is called in its place."""

    def __init__(self, merge: Callable[[Callable[[], Completed]], Completed]) -> None:
        super().__init__()
        self._merge = merge

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        steps = more.get("stdin") or b""
        if not all(step in steps for step in (b"\nverify refs/orch/fence/", b"\nupdate refs/heads/main ")):
            return super().run(argv, **more)
        alone = {**more, "pass_fds": ()}  # who sends it late holds no lock of ours any more
        return self._merge(lambda: super(Merging, self).run(argv, **alone))


def _no(why: str) -> Completed:
    return Completed((), 1, b"", why.encode())


def test_h1_a_merge_that_was_on_its_way_when_it_was_given_up_never_lands(pipeline: Build) -> None:
    """Merged and rolled back: the sender sleeps before its call leaves, and meanwhile the task is cancelled."""
    late: list[Callable[[], Completed]] = []

    def on_its_way(send: Callable[[], Completed]) -> Completed:
        late.append(send)
        return _no("no answer")

    line = pipeline()
    line.processes = Merging(on_its_way)
    line.start()
    before = line.main
    item = line.add()
    wait_until(lambda: late)
    line.app.operations.cancel(item, person="Ann")
    line.stage(item, Stage.CANCELLED)
    for send in late:
        refused = send()
        assert (refused.returncode, b"refs/orch/fence" in refused.stderr) == (128, True), refused.stderr
    assert line.main == before
    assert [merge.state for merge in _merges(line, item)] == [EffectState.REVOKED]


@pytest.mark.long
def test_h2_a_refusal_is_no_outcome(pipeline: Build) -> None:
    """The forge merges and answers with an error: what it shows counts, not what it said."""

    def refused(send: Callable[[], Completed]) -> Completed:
        assert send().returncode == 0
        return _no("409 merge push out of date")

    line = pipeline()
    line.processes = Merging(refused)
    line.start()
    item = line.add()
    assert line.done(item).round == 1
    assert [merge.state for merge in _merges(line, item)] == [EffectState.APPLIED]
    assert len(line.merges()) == 1


@pytest.mark.long
def test_h5_an_undo_is_driven_forward_though_production_has_recovered(pipeline: Build) -> None:
    """Done and undone: the finaliser dies before the undo, and its successor finds production healthy."""
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    good = line.main
    line.deploys(production=ILL)
    item = line.add("Bad")
    line.stop()
    _killed_at(line, "deploy_undo.before_act")
    assert line.main != good
    (line.root / "running-production").write_text(line.main)
    line.start()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEPLOY
    wait_until(lambda: line.running("production") == good)
    assert [start["undo"] for start in line.deployed("production")] == [False, False, True]
    assert line.frozen()


@pytest.mark.long
def test_n3_a_merge_that_main_has_left_behind_is_given_up_for_a_new_candidate(pipeline: Build) -> None:
    """Driven forward for ever: M can never land once somebody has pushed, so it is revoked and built anew."""
    line = pipeline().start()
    theirs: list[str] = []
    line.points.on("merge_pr.intended", lambda: theirs.append(line.push_to_main({"other.txt": "1"})))
    item = line.add()
    line.done(item)
    first, second = _merges(line, item)
    assert (first.state, second.state) == (EffectState.REVOKED, EffectState.APPLIED)
    assert ("deploy-staging", "deploy-staging", "renew") in line.moves(item)
    assert line.forge.git("rev-parse", f"{line.merges()[-1]}^1") == theirs[0]
    assert line.roles(item).count("developer") == 1


def test_n3b_every_candidate_that_a_task_ever_had_is_asked_for(pipeline: Build) -> None:
    """One intent for each M, by its own key; and whichever of them landed is found by the probe of any."""
    line = pipeline().start()
    line.points.on("merge_pr.intended", lambda: line.push_to_main({"other.txt": "1"}))
    item = line.add()
    line.done(item)
    given_up, landed = _merges(line, item)
    one, two = (candidate.sha for candidate in line.story(item).candidates)
    assert (given_up.key, landed.key) == (one, two)
    known = line.story(item).candidates
    seen = MergeEffect(line.app.places, lambda task_id: known, line.app.guard).probe(given_up)
    assert isinstance(seen, Applied)
    assert seen.fact["merged"] == two == line.merges()[-1]


@pytest.mark.long
def test_n4_a_giving_up_that_was_decided_is_finished_though_its_reason_is_gone(pipeline: Build) -> None:
    """Stuck for ever: the fence of an intent that others drive forward is moved by whoever wakes up late."""
    line = pipeline()
    item = _filed(line)
    _killed_at(line, "merge_pr.before_act")
    base = line.main
    line.push_to_main({"other.txt": "1"})
    _killed_at(line, "merge_pr.before_revoke")
    line.forge.git("update-ref", "refs/heads/main", base)  # main is where it was: nothing would turn it now
    line.start()
    line.done(item)
    first, second = _merges(line, item)
    assert (first.state, second.state) == (EffectState.REVOKED, EffectState.APPLIED)
    assert "main moved" in first.reason
    with pytest.raises(OutsideError):
        line.app.places.of(line.repo).forge.merge(line.story(item).candidates[0], None)
    assert len(line.merges()) == 1
