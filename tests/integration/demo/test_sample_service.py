"""The sample's own deploy command, with real processes: replace, refuse an old token, take back, end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.demo.sample_repository import Environment, Sample, write_sample
from orchestrator.demo.services import ask, running, stop
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import SystemHttp
from orchestrator.runtime.process import Liveness, SystemProcesses

ONE, TWO = "1" * 40, "2" * 40


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Sample]:
    made = write_sample(
        tmp_path, Git(SystemProcesses()), python=sys.executable, agent='[agent]\nkind = "scripted"'
    )
    yield made
    for environment in (made.staging, made.production):
        assert stop(environment, SystemProcesses(), SystemClock())


def build(sample: Sample, sha: str, target: Path) -> Path:
    subprocess.run(
        [sys.executable, "ci/build.py"],
        cwd=sample.repository,
        env={"PATH": os.environ["PATH"], "ORCH_SHA": sha},
        check=True,
        capture_output=True,
    )
    return (sample.repository / "dist").rename(target)


def deploy(
    environment: Environment, artifact: Path, sha: str, token: int, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "deploy.py", *arguments],
        cwd=artifact,
        env={
            "PATH": os.environ["PATH"],
            "GREETER_PORT": str(environment.port),
            "GREETER_STATE": str(environment.state),
            "ORCH_SHA": sha,
            "ORCH_ARTIFACT": str(artifact),
            "ORCH_ENVIRONMENT": environment.name,
            "ORCH_DEPLOY_TOKEN": str(token),
            **more,
        },
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_deploy_replaces_the_version_before_it(sample: Sample, tmp_path: Path) -> None:
    place, http, processes = sample.staging, SystemHttp(), SystemProcesses()
    first = build(sample, ONE, tmp_path / "one")
    second = build(sample, TWO, tmp_path / "two")
    assert deploy(place, first, ONE, 1).returncode == 0
    before = running(place, processes)
    assert before is not None
    assert ask(place, http).sha == ONE
    assert deploy(place, second, TWO, 2).returncode == 0
    assert ask(place, http).sha == TWO
    assert processes.liveness(before) is Liveness.DEAD


def test_an_overtaken_deploy_is_refused_and_changes_nothing(sample: Sample, tmp_path: Path) -> None:
    place = sample.staging
    first, second = build(sample, ONE, tmp_path / "one"), build(sample, TWO, tmp_path / "two")
    assert deploy(place, second, TWO, 2).returncode == 0
    late = deploy(place, first, ONE, 1)
    assert late.returncode != 0
    assert "deploy token 1 is older than 2" in late.stderr
    assert ask(place, SystemHttp()).sha == TWO


def test_undo_brings_the_version_before_back(sample: Sample, tmp_path: Path) -> None:
    place = sample.production
    first, second = build(sample, ONE, tmp_path / "one"), build(sample, TWO, tmp_path / "two")
    assert deploy(place, first, ONE, 1).returncode == 0
    assert deploy(place, second, TWO, 2).returncode == 0
    taken_back = deploy(
        place, second, TWO, 3, "undo", ORCH_PREVIOUS_ARTIFACT=str(first), ORCH_PREVIOUS_SHA=ONE
    )
    assert taken_back.returncode == 0, taken_back.stderr
    assert ask(place, SystemHttp()).sha == ONE


def test_undo_of_the_first_version_leaves_nothing(sample: Sample, tmp_path: Path) -> None:
    place = sample.production
    first = build(sample, ONE, tmp_path / "one")
    assert deploy(place, first, ONE, 1).returncode == 0
    assert deploy(place, first, ONE, 2, "undo").returncode == 0
    assert running(place, SystemProcesses()) is None
    assert ask(place, SystemHttp()).sha is None


def test_a_version_that_does_not_start_fails_and_leaves_nothing(sample: Sample, tmp_path: Path) -> None:
    place = sample.staging
    broken = build(sample, ONE, tmp_path / "one")
    (broken / "greeter" / "pages" / "version.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    failed = deploy(place, broken, ONE, 1)
    assert failed.returncode != 0
    assert "ended with 7" in failed.stderr
    assert running(place, SystemProcesses()) is None


def test_a_record_of_another_process_is_not_believed(sample: Sample) -> None:
    """Its number is ours, its start time is not: nothing of ours may be ended for it."""
    place = sample.staging
    place.state.mkdir()
    (place.state / "service.json").write_text(f'{{"pid": {os.getpid()}, "start_ticks": 1}}', encoding="utf-8")
    assert running(place, SystemProcesses()) is None
    assert stop(place, SystemProcesses(), SystemClock())
