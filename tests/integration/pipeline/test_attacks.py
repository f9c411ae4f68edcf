"""Attacks on giving up and going on, each by its number in the reviews that the protocol answers (laws 3 and 4)."""

import signal
from collections.abc import Callable

import pytest

from orchestrator.domain.effect import Applied, EffectName, EffectState, Intent
from orchestrator.domain.errors import AuthorityUnreachable, OutsideError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold
from orchestrator.effects.merge import MergeEffect
from orchestrator.forges.local import LocalForge
from tests.fixtures_pipeline import Build, Pipeline
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


def test_h1_a_merge_that_was_on_its_way_when_it_was_given_up_never_lands(
    pipeline: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged and rolled back: the sender sleeps before its call leaves, and meanwhile the task is cancelled."""
    line = pipeline().start()
    real, late = LocalForge.merge, list[Callable[[], None]]()

    def on_its_way(forge: LocalForge, candidate: Candidate, number: int | None, **more: object) -> None:
        late.append(lambda: real(forge, candidate, number, **more))  # type: ignore[arg-type]

    monkeypatch.setattr(LocalForge, "merge", on_its_way)
    before = line.main
    item = line.add()
    wait_until(lambda: late, 40)
    line.app.operations.cancel(item, person="Ann")
    line.stage(item, Stage.CANCELLED)
    for call in late:
        with pytest.raises(OutsideError):
            call()
    assert line.main == before
    assert [merge.state for merge in _merges(line, item)] == [EffectState.REVOKED]


def test_h2_a_refusal_is_no_outcome(pipeline: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forge merges and answers with an error: what it shows counts, not what it said."""
    line = pipeline().start()
    real = LocalForge.merge

    def refused(forge: LocalForge, candidate: Candidate, number: int | None, **more: object) -> None:
        real(forge, candidate, number, **more)  # type: ignore[arg-type]
        raise AuthorityUnreachable("409 merge push out of date")

    monkeypatch.setattr(LocalForge, "merge", refused)
    item = line.add()
    assert line.done(item).round == 1
    assert [merge.state for merge in _merges(line, item)] == [EffectState.APPLIED]
    assert len(line.merges()) == 1


def test_h5_an_undo_is_driven_forward_though_production_has_recovered(pipeline: Build) -> None:
    """Done and undone: the finaliser dies before the undo, and its successor finds production healthy."""
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    good = line.main
    line.deploys(production={"runs": "2" * 40})
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
