"""What is in the image store is lost, while the store itself is there: a deploy is undone by what is left, and a person
is called where nothing is."""

import shutil
from collections.abc import Callable
from pathlib import Path

from orchestrator.db import failures
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import ILL, Build, Pipeline
from tests.waiting import wait_until


def _good(line: Pipeline) -> None:
    line.start()
    line.done(line.add("Good"))


def _broken(line: Pipeline, lose: Callable[[], object]) -> str:
    """A version that has been started and is ill; what is lost is gone before it is judged."""
    line.deploys(production=ILL)

    def hook() -> None:
        wait_until(lambda: len(line.deployed("production")) == 2)  # it has its copy of the artefact
        lose()

    line.points.on("deploy_init.after_act", hook)
    return line.add("Bad")


def _objects(line: Pipeline) -> set[Path]:
    return set((line.home / "images" / "objects").iterdir())


def _remove(objects: set[Path]) -> None:
    for each in objects:
        shutil.rmtree(each)


def test_an_undo_does_not_need_the_artefact_of_what_it_undoes(pipeline: Build) -> None:
    line = pipeline(production=True)
    _good(line)
    kept = _objects(line)
    item = _broken(line, lambda: _remove(_objects(line) - kept))
    assert "was rolled back" in str(line.held(item, Hold.ESCALATED).hold_reason)
    good, bad, undo = line.deployed("production")
    assert undo["undo"]
    assert undo["digest"] == good["digest"] != bad["digest"]


def test_where_no_artefact_is_left_the_undo_has_failed_and_a_retry_builds_anew(pipeline: Build) -> None:
    line = pipeline(production=True)
    _good(line)
    good = line.main
    item = _broken(line, lambda: _remove(_objects(line)))
    task = line.held(item, Hold.ESCALATED)
    assert "the undo FAILED" in str(task.hold_reason)
    assert f"of {good} is not in the image store any more" in str(task.hold_reason)
    assert line.frozen()
    assert any("the undo FAILED" in alert for alert in line.alerts())
    assert [start["undo"] for start in line.deployed("production")] == [False, False]
    line.deploys()
    line.retry(item)
    line.done(item)
    assert not line.frozen()


def test_a_store_that_is_not_there_is_waited_for(pipeline: Build) -> None:
    line = pipeline(production=True)
    _good(line)
    images, away = line.home / "images", line.root / "away"

    def unmount() -> None:
        images.rename(away)
        images.mkdir()

    item = _broken(line, unmount)

    def failure() -> str:
        with line.app.database.read() as tx:
            return str(failures.of_task(tx, line.task(item).id))

    wait_until(lambda: "cannot be used" in failure())
    assert (line.task(item).stage, line.task(item).hold) == (Stage.DEPLOY, None)
    images.rmdir()
    away.rename(images)
    assert "was rolled back" in str(line.held(item, Hold.ESCALATED).hold_reason)
