"""The state folder that a PostgreSQL database's services share is lost, or not mounted: nothing happens twice
(decision 0021)."""

import os
import shutil
import signal
from typing import Any

import pytest

from orchestrator.config.environment import load_settings
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import OperatorError
from orchestrator.domain.event import EventType
from orchestrator.domain.task import Hold
from orchestrator.main import Service
from orchestrator.ownership.state_folder import NEW_FOLDER
from orchestrator.places import STATE_ID
from orchestrator.stage_engine.resolutions import Resolution
from orchestrator.wiring import Outside, open_app
from tests.fixtures_pipeline import Build, Pipeline, alive
from tests.waiting import wait_until

FORGES = "forges"  # lie elsewhere where a fleet works
WORDS = [Resolution.APPLIED, Resolution.NOT_APPLIED, Resolution.RETRY]


@pytest.fixture
def database_kind() -> str:
    """A SQLite file would be lost with the folder."""
    return "postgres"


def killed_at(line: Pipeline, point: str) -> str:
    """A ticket whose service was killed at a waypoint."""
    line.register()
    item = line.add()
    line.stop()
    assert line.child(point).wait(60) == -9
    return item


def lose(line: Pipeline, *but: str) -> None:
    for entry in line.home.iterdir():
        if entry.name not in but:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def give_up(line: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """``orch restore folder``."""
    outside = Outside(line.environ, clock=line.clock, processes=line.processes)
    settings = load_settings(line.variables())
    with open_app(settings, line.environ, role=NEW_FOLDER, outside=outside) as app:
        return app.new_folder(lambda: None).take(person="Ann", reason="the disk is broken")


def say(line: Pipeline, effect: int, word: Resolution) -> str:
    return line.outcome(line.app.operations.resolve_effect(effect, word, person="Ann", reason="looked at it"))


def starts(line: Pipeline) -> list[str]:
    return [one["token"] for one in line.deployed("production")]


@pytest.mark.long(but=["retry"])
@pytest.mark.parametrize("word", WORDS)
def test_a_start_that_has_begun_is_not_begun_again_but_by_a_person_s_word(
    pipeline: Build, word: Resolution
) -> None:
    line = pipeline(production=True)
    item = killed_at(line, "deploy_init.after_act")
    wait_until(lambda: len(starts(line)) == 1 and line.exits() == 1)
    lose(line, FORGES, "images")
    with pytest.raises(OperatorError, match="not the one that belongs to the database"):
        line.open()
    assert not (line.home / STATE_ID).exists()

    told = give_up(line)
    [doubt] = told["in_doubt"]
    assert (doubt["work_item"], doubt["name"], doubt["environment"]) == (item, "deploy_init", "production")
    line.start()
    line.app.reconciler.run_once()
    [shown] = line.app.operations.effects()
    assert (shown.id, shown.state) == (doubt["effect"], EffectState.IN_DOUBT)
    assert "the state folder with its record is lost" in shown.reason
    assert EventType.EFFECT_IN_DOUBT in [event.type for event in line.events(item)]
    [alert] = line.alerts()
    assert "Ann has given up the state folder as lost: the disk is broken." in alert
    assert f"{item} (production)" in alert
    assert starts(line) == ["1"]

    assert say(line, doubt["effect"], word) == "applied"
    if word is Resolution.RETRY:
        line.done(item)
        assert starts(line) == ["1", "2"]
        return
    line.held(item, Hold.ESCALATED)
    assert starts(line) == ["1"]
    [start] = [one for one in line.story(item).effects if one.name is EffectName.DEPLOY_INIT]
    assert start.state is (EffectState.APPLIED if word is Resolution.APPLIED else EffectState.REVOKED)
    assert line.frozen() is (word is Resolution.NOT_APPLIED)


def test_a_deploy_that_is_watched_is_not_undone_for_want_of_its_record(pipeline: Build) -> None:
    line = pipeline(production=True)
    line.deploys(production={"hang": True})
    line.start()
    item = line.add()
    wait_until(lambda: starts(line))  # before it the runner still needs the folder, for the artefact
    [runner] = line.runners()
    line.stop()
    lose(line, FORGES)
    with pytest.raises(OperatorError, match="not the one"):
        line.open()
    told = give_up(line)
    assert told["in_doubt"] == []
    [watched] = told["not_ended"]
    line.start()
    wait_until(lambda: "the state folder with its record is lost" in line.told(item))
    assert [one for one in line.deployed("production") if one["undo"]] == []
    assert alive(runner)
    os.kill(runner.pid, signal.SIGKILL)
    line.app.operations.resolve_effect(watched["effect"], Resolution.ENDED, person="Ann", reason="killed it")


def test_a_deploy_whose_undo_has_lost_its_artefact_is_a_person_s(pipeline: Build) -> None:
    line = pipeline(production=True).start()
    line.done(line.add("One"))
    line.deploys(production={"hang": True})
    item = line.add("Two")
    wait_until(lambda: len(starts(line)) == 2)
    [runner] = [one for one in line.runners() if alive(one)]
    line.stop()
    os.kill(runner.pid, signal.SIGKILL)
    lose(line, FORGES)
    with pytest.raises(OperatorError, match="not the one"):
        line.open()
    [open_end] = give_up(line)["not_ended"]
    line.start()
    line.app.operations.resolve_effect(open_end["effect"], Resolution.ENDED, person="Ann", reason="looked")
    why = str(line.held(item, Hold.ESCALATED).hold_reason)
    assert "the undo FAILED" in why
    assert "is not in the image store any more" in why
    assert "how the deploy command of production ended is not known (Ann: looked)" in line.told(item)
    assert line.frozen()
    assert line.slots() == ["merge:sample"]  # the freeze's
    assert any("the undo FAILED" in alert for alert in line.alerts())
    line.deploys()
    line.retry(item)
    line.done(item)
    assert len(starts(line)) == 3


def test_a_folder_that_is_unmounted_while_we_run_says_nothing(pipeline: Build) -> None:
    line = pipeline(production=True).start()
    state_id, away = line.home / STATE_ID, line.root / "away"
    line.points.on("deploy_init.intended", lambda: state_id.rename(away))
    item = line.add()
    wait_until(lambda: any(one.state is EffectState.IN_DOUBT for one in line.app.operations.effects()))
    assert "Is it mounted?" in line.why(item)
    assert starts(line) == []
    away.rename(state_id)
    line.done(item)
    assert starts(line) == ["1"]


@pytest.mark.long
def test_what_was_judged_before_keeps_nobody_waiting(pipeline: Build) -> None:
    line = pipeline(staging=True, production=True).start()
    line.done(line.add("One"))
    line.stop()
    lose(line, FORGES)
    assert give_up(line) == {"in_doubt": [], "not_ended": []}
    line.start()
    line.done(line.add("Two"))
    assert [len(line.deployed(name)) for name in ("staging", "production")] == [2, 2]


def test_an_agent_whose_run_is_lost_is_not_started_again_by_itself(pipeline: Build) -> None:
    line = pipeline()
    line.agent({"role": "developer", "until": str(line.root / "go")})
    line.start()
    item = line.add()
    line.started(item, "developer")
    line.stop()
    lose(line, FORGES)
    give_up(line)
    line.start()
    line.held(item, Hold.ESCALATED)
    assert "vanished" in line.why(item)
    assert line.roles(item).count("developer") == 1
    (line.root / "go").touch()


def test_local_forges_that_are_gone_keep_their_repositories_closed(pipeline: Build) -> None:
    line = pipeline().start()
    line.done(line.add("One"))
    item = line.add("Two")
    line.stop()
    lose(line)
    give_up(line)
    app = line.open()
    with Service(app):
        assert not app.guard.open_repositories()
        app.reconciler.run_once()
        assert app.worker.run_once() == {"started": 0}
    assert "sample" in line.why(item)
