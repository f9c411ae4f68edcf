"""After done: an environment is watched by its last settled start, through rollback and the same SHA again (N22)."""

import pytest

from orchestrator.daemons.drift_watch import LOOKS
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import ILL, Build, Pipeline
from tests.waiting import wait_until


def _look(line: Pipeline, times: int = 1) -> dict[str, str]:
    """State by environment after some looks."""
    for _ in range(times):
        line.app.drift_watch.run_once()
    block = line.app.operations.queue()["drift"]
    assert isinstance(block, dict)
    return {w["environment"]: str(w["state"]) for w in block["environments"]}


def _told(line: Pipeline) -> list[str]:
    return [alert for alert in line.alerts() if "brought there" in alert or "again." in alert]


def test_drift_is_told_once_and_a_later_deploy_is_none(pipeline: Build) -> None:
    line = pipeline(staging=True, production=True).start()
    first = line.add("First")
    line.done(first)
    assert _look(line) == {"production": "as deployed", "staging": "as deployed"}
    starts = len(line.journal("deploys"))
    (line.root / "running-production").write_text("4" * 40)
    _look(line, LOOKS + 2)
    (told,) = _told(line)
    assert first in told
    assert "4" * 40 in told
    line.restart()
    assert _look(line, LOOKS + 1)["production"] == "drifted"
    assert len(_told(line)) == 1
    assert len(line.journal("deploys")) == starts  # it starts nothing

    second = line.add("Second")
    line.done(second)
    assert _look(line, LOOKS) == {"production": "as deployed", "staging": "as deployed"}
    assert len(_told(line)) == 1


@pytest.mark.long
def test_rollback_and_the_same_sha_again_are_starts_of_their_own(pipeline: Build) -> None:
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    good = line.running("production")
    line.deploys(production=ILL)
    bad = line.add("Bad")
    line.held(bad, Hold.ESCALATED)
    wait_until(lambda: line.running("production") == good)
    wait_until(lambda: _look(line)["production"] == "as deployed")  # what the undo has brought back
    (line.root / "running-production").write_text("4" * 40)
    _look(line, LOOKS)
    assert [bad in alert and good in alert for alert in _told(line)] == [True]
    line.deploys()
    line.retry(bad)
    line.done(bad)
    again = line.running("production")
    assert again == line.main
    assert _look(line, LOOKS)["production"] == "as deployed"
    assert len(_told(line)) == 1  # another start has come: the undo's drift is nobody's any more
    (line.root / "running-production").write_text(good)
    _look(line, LOOKS)
    assert len(_told(line)) == 2
    (line.root / "running-production").write_text(again)
    _look(line)
    assert "again." in _told(line)[-1]


@pytest.mark.long
def test_the_kill_switch_lets_nobody_look(pipeline: Build) -> None:
    line = pipeline(production=True)
    line.settings |= {"ORCH_DRIFT_WATCH_ENABLED": "false", "ORCH_DRIFT_INTERVAL_S": "0.05"}
    line.start()
    line.done(line.add())
    assert line.app.operations.queue()["drift"] == {"enabled": False, "scope": ["*"], "environments": []}
