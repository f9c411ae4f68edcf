"""The orchestrator delivers itself: a real service, restarted by its own deploy command, real kills (S-15)."""

import os
import signal
from collections.abc import Callable

import pytest

from orchestrator.deploy.records import (
    EXIT_FILE,
    REPORTED_FILE,
    START_FILE,
    STARTED_FILE,
    start_folder,
    to_bytes,
)
from orchestrator.domain.effect import EffectName
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage
from orchestrator.runtime.files import publish_exclusive
from tests.fixtures_pipeline import gone
from tests.fixtures_self import LONG, SelfSite
from tests.waiting import wait_until

Make = Callable[..., SelfSite]
BROKEN = {"role": "developer", "write": {"src/BROKEN": "", "src/app.py": "ONE = 2\n"}}


def folder(site: SelfSite, item: str, *, undo: bool = False):  # type: ignore[no-untyped-def]
    start = site.deploy(item)
    if undo:
        assert start.undo is not None
        start = start.undo.start
    return start_folder(site.line.home / "deploys", start.environment, start.sha, start.generation)


def done(site: SelfSite, item: str) -> None:
    """The new version runs, has ended the task, and nothing was undone."""
    story = site.rest(item)
    assert story.task.stage is Stage.DONE, site.why(item)
    assert site.healthz()["sha"] == site.line.main
    assert site.deliveries() == [(site.line.main, False)]
    assert site.effects(item, EffectName.DEPLOY_INIT) == ["applied"]
    assert site.effects(item, EffectName.DEPLOY_UNDO) == ["revoked"]
    site.quiet()
    assert site.deliveries() == [(site.line.main, False)]


def undone(site: SelfSite, item: str) -> None:
    """The old version runs; the task is frozen and a person is called; undone exactly once."""
    site.rest(item)  # a person may have been called before that: while the undo goes on
    wait_until(lambda: "rolled back" in str(site.story(item).task.hold_reason), LONG)
    story = site.story(item)
    assert story.task.stage is Stage.DEPLOY, site.why(item)
    assert EventType.REPO_FROZEN in [event.type for event in story.events]
    assert site.effects(item, EffectName.DEPLOY_INIT) == ["applied"]
    assert site.effects(item, EffectName.DEPLOY_UNDO) == ["applied"]
    site.quiet()
    assert site.deliveries() == [(site.line.main, False), (site.first, True)]
    wait_until(lambda: site.healthz().get("sha") == site.first, LONG)
    assert item in (site.line.home / "alerts.jsonl").read_text()


def test_it_delivers_itself_and_the_new_version_ends_the_task(self_site: Make) -> None:
    site = self_site()
    item = site.file()
    site.start()
    wait_until(lambda: site.healthz().get("sha") == site.first, LONG)
    done(site, item)
    wait_until((folder(site, item) / REPORTED_FILE).exists, LONG)
    old, new = (serve["release"] for serve in site.serves())
    assert (old, new) == (site.first, site.line.main)
    ends = [
        e for e in site.story(item).events if e.type is EventType.STAGE_CHANGED and e.to_stage is Stage.DONE
    ]
    assert [end.actor for end in ends] == ["finalizer"]
    assert "self-deploy" not in site.log()


def test_a_version_that_never_comes_up_is_undone_by_its_own_runner(self_site: Make) -> None:
    site = self_site(report_s=1.5)
    site.line.agent(BROKEN)
    item = site.file()
    site.start()
    undone(site, item)
    claim = site.reading(lambda app: app.deployer.started(site.deploy(item).undo.start))
    assert claim.runner == site.reading(lambda app: app.deployer.started(site.deploy(item))).runner
    starts = [serve["release"] for serve in site.serves()]
    assert starts[0] == starts[-1] == site.first
    assert set(starts[1:-1]) == {site.line.main}
    assert "did not report within" in str(site.story(item).task.hold_reason)


@pytest.mark.long
def test_the_restart_ends_no_agent(self_site: Make) -> None:
    site = self_site()
    site.line.agent({"title": "Another", "role": "analyst", "until": str(site.root / "go")})
    item, other = site.file(), site.file("Another")
    site.start()
    done(site, item)
    [agent] = site.line.agents(other)
    assert not gone(agent["pid"])
    assert len(site.serves()) == 2
    (site.root / "go").touch()
    wait_until(
        lambda: EventType.RUN_FINISHED in [event.type for event in site.story(other).events], LONG, every=0.1
    )
    assert [run["role"] for run in site.line.agents(other)].count("analyst") == 1


@pytest.mark.long
def test_a_version_that_crashes_again_and_again_is_undone(self_site: Make) -> None:
    """It comes up, recovers, and dies before it has stayed for as long as its environment asks: that is no report."""
    site = self_site(report_s=6.0, stable_s=5.0)
    site.line.agent({"role": "developer", "write": {"src/FLAKY": "", "src/app.py": "ONE = 2\n"}})
    item = site.file()
    site.start()
    undone(site, item)
    assert not (folder(site, item) / REPORTED_FILE).exists()
    assert len([serve for serve in site.serves() if serve["release"] == site.line.main]) > 1


@pytest.mark.long(but=["deploy_init.before_act"])
@pytest.mark.parametrize("point", ["deploy_init.intended", "deploy_init.before_act", "deploy_init.after_act"])
def test_killed_in_phase_a_it_is_started_once_and_ends(self_site: Make, point: str) -> None:
    site = self_site()
    item = site.file()
    assert site.line.child(point).wait(LONG) == -signal.SIGKILL
    site.start()
    done(site, item)


@pytest.mark.long
def test_runner_killed_in_phase_b_leaves_the_undo_to_whoever_comes_next(self_site: Make) -> None:
    """Two faults at once: nobody is left to undo it, until a person brings a version back that runs."""
    site = self_site(report_s=30.0, health_s=3.0)
    site.line.agent(BROKEN)
    item = site.file()
    site.start()
    place = wait_until(
        lambda: site.effects(item, EffectName.DEPLOY_INIT) and folder(site, item), LONG, every=0.1
    )
    wait_until((place / EXIT_FILE).exists, LONG)
    [runner] = site.line.runners()
    os.kill(runner.pid, signal.SIGKILL)
    wait_until(lambda: site.serves()[-1]["release"] == site.line.main, LONG)
    assert site.deliveries() == [(site.line.main, False)]
    site.switch(site.first)
    undone(site, item)


@pytest.mark.long
def test_a_late_version_finds_its_deploy_undone(self_site: Make) -> None:
    """It comes up in the very moment in which it is undone: STARTED has decided, and both sides act on that."""
    site = self_site(report_s=1.0)
    gate = site.root / "go"
    site.line.agent({"role": "developer", "write": {"src/LATE": str(gate), "src/app.py": "ONE = 2\n"}})
    item = site.file()
    site.start()
    wait_until(lambda: site.effects(item, EffectName.DEPLOY_INIT), LONG, every=0.1)
    wait_until((folder(site, item, undo=True) / STARTED_FILE).exists, LONG)
    gate.touch()
    undone(site, item)


@pytest.mark.long
def test_a_marker_without_a_deploy_is_named_and_started_once(self_site: Make) -> None:
    site = self_site()
    item = site.file()
    assert site.line.child("deploy_init.before_act").wait(LONG) == -signal.SIGKILL
    place = folder(site, item)
    place.mkdir(parents=True)
    publish_exclusive(place / START_FILE, to_bytes(site.deploy(item)))
    site.start()
    done(site, item)
    assert "INITIATED, but never started" in site.log()
    assert item in site.log()


@pytest.mark.long
def test_a_deploy_without_a_marker_is_named_and_believed(self_site: Make) -> None:
    site = self_site()
    item = site.file()
    assert site.line.child("deploy_init.after_act").wait(LONG) == -signal.SIGKILL
    (folder(site, item) / START_FILE).unlink()
    site.start()
    done(site, item)
    assert "INITIATED record is gone" in site.log()
    assert item in site.log()


def test_a_claim_that_cannot_be_read_is_held_and_a_person_called(self_site: Make) -> None:
    site = self_site(report_s=2.0)
    site.line.settings |= {"ORCH_IN_DOUBT_ALERT_S": "1", "ORCH_RECONCILER_INTERVAL_S": "0.5"}
    item = site.file()
    assert site.line.child("deploy_init.after_act").wait(LONG) == -signal.SIGKILL
    place = folder(site, item)
    wait_until((place / EXIT_FILE).exists, LONG)
    (place / STARTED_FILE).write_text("{")
    site.start()
    wait_until(lambda: site.effects(item, EffectName.DEPLOY_INIT) == ["in_doubt"], LONG, every=0.1)
    alerts = site.line.home / "alerts.jsonl"
    wait_until(lambda: alerts.exists() and item in alerts.read_text(), LONG)
    assert "self-deploy in doubt" in site.log()
    assert site.story(item).task.stage is Stage.DEPLOY
