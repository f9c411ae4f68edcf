"""COMMIT took place and its answer was lost: nothing is done twice, nothing forgotten, whichever it was (law 2).

The waypoint ``db.after_commit`` is the seam: it is reached once the commit is durable, in the thread that made it.
"""

import threading
from collections import Counter
from typing import Any

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.forges.local import LocalForge
from orchestrator.stage_engine.resolutions import Resolution
from tests.fixtures_pipeline import ILL, Build, Pipeline, Points
from tests.waiting import wait_until

ROLES = ["analyst", "developer", "reviewer", "tester", "deployer"]


class LostAnswers(Points):
    """Points at which a thread's next commit, or a later one, loses its answer."""

    def __init__(self, every: int = 0) -> None:
        """``every``: that one of all commits of the threads that drive tasks, too."""
        super().__init__()
        self._every, self._seen = every, 0
        self._lock = threading.Lock()
        self._coming: dict[int, int] = {}
        self.lost = 0

    def lose_after(self, point: str, *, commits: int = 1, **data: object) -> None:
        """From the point on, the thread's n-th commit."""
        self.on(point, lambda: self._coming.update({threading.get_ident(): commits}), **data)

    def reach(self, name: str, **data: object) -> None:
        super().reach(name, **data)
        if name == "db.after_commit" and self._loses():
            self.lost += 1
            raise DatabaseError("The answer to COMMIT was lost.")

    def _loses(self) -> bool:
        with self._lock:
            me = threading.get_ident()
            left = self._coming.pop(me, 0) - 1
            if left > 0:
                self._coming[me] = left
            if self._every and threading.current_thread().name.startswith("orch-driver"):
                self._seen += 1
                return self._seen % self._every == 0
            return left == 0


def _losing(pipeline: Build, every: int = 0, **parts: Any) -> tuple[Pipeline, LostAnswers]:
    line = pipeline(**parts)
    points = LostAnswers(every)
    line.points = points
    return line, points


def _each_once(line: Pipeline, item: str) -> None:
    """One merge, one build, one start each, one run of each role, and each told once."""
    line.done(item, 90)
    [merge] = line.merges()
    assert merge == line.main == line.running("staging") == line.running("production")
    assert Counter(start["env"] for start in line.journal("deploys")) == {"staging": 1, "production": 1}
    assert len(line.journal("builds")) == 1
    assert len(line.pulls()) == 1
    assert line.roles(item) == ROLES
    assert line.baseline() == 80.0
    assert line.slots() == []
    effects = line.story(item).effects
    assert {effect.state for effect in effects} == {EffectState.APPLIED}
    names = Counter(effect.name for effect in effects)
    assert (names[EffectName.MERGE_PR], names[EffectName.IMAGE], names[EffectName.RATCHET]) == (1, 2, 1)
    events = line.events(item)
    told = Counter((e.type, e.data["sequence"]) for e in events if "sequence" in e.data)
    assert set(told.values()) == {1}
    moves = [move for move in line.moves(item) if move[0] != move[1]]
    assert len(moves) == len(set(moves))


EFFECT_STEPS = [
    "effect:push/branch",
    "effect:open_pr",
    "effect:push/candidate",
    "effect:image",
    "effect:deploy_init/staging",
    "effect:merge_pr",
    "effect:image/production",
    "effect:deploy_init/production",
]


@pytest.mark.long(but=["effect:merge_pr", "effect:deploy_init/production"])
@pytest.mark.parametrize("step", EFFECT_STEPS)
def test_of_an_intent(pipeline: Build, step: str) -> None:
    """What was stored is driven forward; no second intent is stored beside it."""
    line, points = _losing(pipeline, coverage=True, image=True, staging=True, production=True)
    points.lose_after("step.begin", step=step)
    line.start()
    item = line.add()
    _each_once(line, item)
    assert points.lost == 1


@pytest.mark.long
@pytest.mark.parametrize("effect", ["push", "open_pr", "image", "deploy_init", "merge_pr"])
def test_of_a_settlement(pipeline: Build, effect: str) -> None:
    """What was settled is settled: with its step's mark, or with the stage that it leads to."""
    line, points = _losing(pipeline, coverage=True, image=True, staging=True, production=True)
    points.lose_after(f"{effect}.after_probe", which="second")
    line.start()
    item = line.add()
    _each_once(line, item)
    assert points.lost == 1


@pytest.mark.long
def test_of_a_lease(pipeline: Build) -> None:
    line, points = _losing(pipeline, coverage=True, image=True, staging=True, production=True)
    points.lose_after("transition.after_commit", target=Stage.DEPLOY)
    line.start()
    item = line.add()
    _each_once(line, item)
    assert points.lost == 1


@pytest.mark.long
def test_of_going_in_doubt_and_coming_back(pipeline: Build) -> None:
    line, points = _losing(pipeline)
    forge, away = line.forge.folder, line.root / "away"
    points.on("merge_pr.intended", lambda: forge.rename(away))
    points.lose_after("merge_pr.after_probe", which="first")
    line.start()
    item = line.add()
    wait_until(lambda: any(e.state is EffectState.IN_DOUBT for e in line.app.operations.effects()))
    assert points.lost == 1
    points.lose_after("merge_pr.after_probe", which="first")  # the move back, or the note of one more failure
    away.rename(forge)
    line.done(item)
    assert points.lost == 2
    kinds = Counter(e.type for e in line.events(item) if e.data.get("effect") == "merge_pr")
    assert kinds[EventType.EFFECT_IN_DOUBT] == 1
    assert len(line.merges()) == 1


@pytest.mark.long
@pytest.mark.parametrize("which", ["revoking", "revoked"])
def test_of_giving_up(pipeline: Build, which: str) -> None:
    """The reason is not lost with the answer: the developer is told why the build was given up."""
    line, points = _losing(pipeline, image=True, staging=True)
    line.agent({"role": "developer", "round": 1, "write": {"UNBUILDABLE": "", "src/new.py": "N = 1\n"}},
               {"role": "developer", "run": [["rm", "UNBUILDABLE"]]})  # fmt: skip
    points.lose_after("image.after_probe", which="second" if which == "revoking" else "after_revoke")
    line.start()
    item = line.add()
    line.done(item, 90)
    assert points.lost == 1
    told = [run["notes"] for run in line.agents(item) if run["role"] == "developer"]
    assert len(told) == 2
    assert "src cannot be built" in told[1]
    assert line.moves(item).count(("deploy-staging", "development", "reject")) == 1


@pytest.mark.long
@pytest.mark.parametrize("commits", [1, 2])
def test_of_an_undo(pipeline: Build, commits: int) -> None:
    """Its intent with the freeze, and its settling with the hand-over of the slot."""
    line, points = _losing(pipeline, production=True)
    line.start()
    line.done(line.add("Good"))
    good = line.main
    line.deploys(production=ILL)
    if commits == 1:
        points.lose_after("check_production.judged", commits=2)  # the first keeps the gate's answer
    else:
        points.lose_after("deploy_undo.after_probe", which="second")
    item = line.add("Bad")
    line.held(item, Hold.ESCALATED)
    wait_until(lambda: line.running("production") == good)
    assert points.lost == 1
    assert [start["undo"] for start in line.deployed("production")] == [False, False, True]
    assert line.frozen()
    assert line.slots() == ["merge:sample"]
    assert len([e for e in line.events(item) if e.type is EventType.REPO_FROZEN]) == 1


@pytest.mark.long
def test_of_a_persons_word_on_an_effect(pipeline: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    line, points = _losing(pipeline)
    line.start()
    with monkeypatch.context() as patch:
        patch.setattr(LocalForge, "merge", lambda *_, **__: None)
        item = line.add()
        merge = wait_until(lambda: next((e for e in line.app.operations.effects() if e.attempts), None))
        points.lose_after("merge_pr.after_probe", which="after_revoke")
        say = line.app.operations.resolve_effect
        assert line.outcome(say(merge.id, Resolution.RETRY, person="Ann", reason="lost")) == "applied"
    line.done(item)
    assert points.lost == 1
    assert len(line.story(item).candidates) == 2
    assert len(line.merges()) == 1


@pytest.mark.long(but=["5"])
@pytest.mark.parametrize("every", [3, 5])
def test_of_many(pipeline: Build, every: int) -> None:
    """Whatever is committed while tasks are driven: leases, intents, marks, stages, notes."""
    line, points = _losing(pipeline, every, coverage=True, image=True, staging=True, production=True)
    line.start()
    item = line.add()
    _each_once(line, item)
    assert points.lost >= 3
