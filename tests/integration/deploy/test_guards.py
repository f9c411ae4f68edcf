"""The runner of a deploy of ourselves as its guard: real runners, real commands, real kills (S-15, Phase B)."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator
from orchestrator.deploy.command import RUNNER_MODULE
from orchestrator.deploy.records import (
    REPORTED_FILE,
    START_FILE,
    STARTED_FILE,
    Claimant,
    ConditionalUndo,
    DeployKind,
    DeployStart,
    reported,
    started,
    to_bytes,
)
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.runtime.files import publish_exclusive
from orchestrator.runtime.process import Liveness
from tests.integration.deploy.test_deploys import LONG, RUNNER_ENV, Site, never, site
from tests.waiting import wait_until

__all__ = ["site"]

UNDO = 'echo "undone $ORCH_GENERATION $ORCH_DEPLOY_TOKEN $ORCH_DEPLOY_KIND" >> "$J"'


def guarded(site: Site, script: str, *, within_s: float, undo: str = UNDO, **changes: object) -> DeployStart:
    """A start with its undo, whose generation and token are higher."""
    back = site.start(undo, generation=2, token="8", sequence=12, kind=DeployKind.UNDO)
    return site.start(script, undo=ConditionalUndo(back, within_s), **changes)


def undo_of(start: DeployStart) -> DeployStart:
    assert start.undo is not None
    return start.undo.start


def ended(site: Site, start: DeployStart) -> None:
    """Its runner, guard included, has ended."""
    runner = site.runner(start)
    wait_until(lambda: site.processes.liveness(runner) is Liveness.DEAD, LONG)


def test_a_version_that_reports_is_not_undone(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"', within_s=LONG)
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    assert site.processes.liveness(site.runner(start)) is Liveness.ALIVE
    assert site.deployer.report(start)
    assert not site.deployer.report(start)
    ended(site, start)
    assert site.lines() == ["deployed"]
    assert site.deployer.started(undo_of(start)) is None


def test_a_version_that_does_not_report_in_time_is_undone_once(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"', within_s=0.3)
    site.deployer.start(start)
    ended(site, start)
    undo = undo_of(start)
    assert site.lines() == ["deployed", "undone 2 8 undo"]
    claim = site.deployer.started(undo)
    assert claim is not None
    assert claim.by is Claimant.CHILD
    assert claim.runner == site.runner(start)
    record = site.deployer.exit(undo)
    assert record is not None
    assert record.succeeded
    site.anew().start(undo)  # whoever settles it later, by the ordinary door
    assert len(site.lines()) == 2


@pytest.mark.parametrize("script", ["exit 7", "sleep 600"], ids=["fails", "hangs"])
def test_a_command_that_fails_is_undone_at_once(site: Site, script: str) -> None:
    start = guarded(site, f'echo deployed >> "$J"; {script}', within_s=LONG, timeout_s=0.5)
    site.deployer.start(start)
    ended(site, start)
    assert site.lines() == ["deployed", "undone 2 8 undo"]


def test_an_ended_command_is_undone(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"; sleep 600', within_s=LONG)
    site.deployer.start(start)
    wait_until(site.lines)
    assert site.deployer.terminate(start)
    ended(site, start)
    assert site.lines() == ["deployed", "undone 2 8 undo"]


@pytest.mark.parametrize(
    "other",
    [
        {"sha": "d" * 40},
        {"token": "6"},
        {"sequence": 10},
        {"installation": "another"},
    ],
    ids=lambda other: str(*other),
)
def test_a_report_of_another_start_is_none(site: Site, other: dict[str, object]) -> None:
    """No process that was there before can be taken for the new one."""
    start = guarded(site, "true", within_s=0.5)
    stranger = dataclasses.replace(start, **other)  # type: ignore[arg-type]
    for each in (start, stranger):
        site.of(each).mkdir(parents=True, exist_ok=True)
    assert site.deployer.report(stranger)
    if site.of(stranger) != site.of(start):
        shutil.copy(site.of(stranger) / REPORTED_FILE, site.of(start))
    said = reported(site.of(start))
    assert said is not None
    assert not said.answers(start)
    site.deployer.start(start)
    ended(site, start)
    assert site.lines() == ["undone 2 8 undo"]


def test_a_report_that_cannot_be_read_is_none(site: Site) -> None:
    start = guarded(site, "true", within_s=0.5)
    site.of(start).mkdir(parents=True)
    (site.of(start) / REPORTED_FILE).write_text("{")
    site.deployer.start(start)
    ended(site, start)
    assert site.lines() == ["undone 2 8 undo"]


def test_an_undo_that_was_called_off_is_not_performed(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"', within_s=LONG)
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    assert site.deployer.revoke(undo_of(start)).by is Claimant.REVOKER
    ended(site, start)
    assert site.lines() == ["deployed"]


def test_an_undo_that_somebody_else_performs_is_not_performed_twice(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"', within_s=1.0)
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    site.deployer.start(undo_of(start))
    ended(site, start)
    assert site.deployer.wait(undo_of(start), never(), LONG)
    assert site.lines() == ["deployed", "undone 2 8 undo"]


def test_calling_off_and_undoing_at_once_have_one_winner(site: Site) -> None:
    """Late by a hair: whoever creates STARTED decides, and both sides see the same."""
    for number in range(1, 6):
        start = guarded(site, "true", within_s=LONG, generation=2 * number - 1, sequence=number)
        back = dataclasses.replace(undo_of(start), generation=2 * number, sequence=100 + number)
        start = dataclasses.replace(start, undo=ConditionalUndo(back, 0.01 * number))
        before = len(site.lines())
        site.deployer.start(start)
        assert site.deployer.wait(start, never(), LONG)
        holder = site.deployer.revoke(back)
        ended(site, start)
        assert len(site.lines()) - before == (holder.by is Claimant.CHILD)


def test_a_runner_that_was_killed_undoes_nothing_and_leaves_it_to_others(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"', within_s=1.0)
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    site.kill_runner(start)
    assert site.anew().started(undo_of(start)) is None
    site.anew().start(undo_of(start))
    assert site.deployer.wait(undo_of(start), never(), LONG)
    assert site.lines() == ["deployed", "undone 2 8 undo"]


def test_a_runner_killed_in_its_undo_leaves_a_claim_and_a_provable_end(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"', within_s=0.2, undo=f"{UNDO}; sleep 600")
    site.deployer.start(start)
    wait_until(lambda: len(site.lines()) == 2, LONG)
    site.kill_runner(start)
    record = wait_until(lambda: site.anew().exit(undo_of(start)), LONG)
    assert record.ending == "killed"
    assert len(site.lines()) == 2


def test_a_start_of_somebody_else_in_the_undos_place_is_left_alone(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"', within_s=0.2)
    place = site.of(undo_of(start))
    place.mkdir(parents=True)
    publish_exclusive(place / START_FILE, to_bytes(dataclasses.replace(undo_of(start), token="1")))
    site.deployer.start(start)
    ended(site, start)
    assert site.lines() == ["deployed"]
    assert started(place) is None


def test_a_claim_that_cannot_be_read_is_not_undone_beside(site: Site) -> None:
    start = guarded(site, 'echo deployed >> "$J"', within_s=0.3)
    place = site.of(undo_of(start))
    place.mkdir(parents=True)
    (place / STARTED_FILE).write_text("{")
    site.deployer.start(start)
    ended(site, start)
    assert site.lines() == ["deployed"]
    with pytest.raises(AuthorityUnreachable):
        site.deployer.started(undo_of(start))


def test_the_command_may_replace_the_program_that_guards_it(site: Site, tmp_path: Path) -> None:
    """An installation in place: the files of the running version are gone when it has to be undone."""
    release = tmp_path / "release"
    shutil.copytree(Path(orchestrator.__file__).parent, release / "orchestrator")
    start = guarded(site, f'rm -r "{release}"; echo deployed >> "$J"', within_s=0.3)
    folder = site.of(start)
    folder.mkdir(parents=True)
    publish_exclusive(folder / START_FILE, to_bytes(start))
    runner = subprocess.run(
        [sys.executable, "-P", "-m", RUNNER_MODULE, str(folder)],
        env={**RUNNER_ENV, "PYTHONPATH": str(release)},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert runner.returncode == 0, runner.stderr
    assert not release.exists()
    assert site.lines() == ["deployed", "undone 2 8 undo"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_polite_signal_does_not_end_the_guard(site: Site, signum: int) -> None:
    start = guarded(site, "true", within_s=0.5)
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    os.kill(site.runner(start).pid, signum)
    ended(site, start)
    assert site.lines() == ["undone 2 8 undo"]
