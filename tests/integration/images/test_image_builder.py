"""Builds by real commands: an artefact, or a clear refusal."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.domain.errors import ConfigError
from orchestrator.domain.ids import Sha
from orchestrator.images.builder import LOG_LIMIT, BuildFailed, ImageBuilder
from orchestrator.repo_config.records import ImageConfig
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.process import SystemProcesses
from tests.fixtures_pipeline import gone

SHA = Sha("c0ffee" + "0" * 34)
ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "checkout").mkdir()
    return tmp_path / "checkout"


def build(checkout: Path, script: str, artifact: str = "dist", timeout_s: float = 60.0) -> Path:
    config = ImageConfig(command=("sh", "-c", script), artifact=artifact, timeout_s=timeout_s)
    return ImageBuilder(processes=SystemProcesses(), entropy=SystemEntropy()).build(
        checkout, config, ENV, checkout.parent / "log", sha=SHA
    )


def test_a_build_leaves_its_artefact(checkout: Path) -> None:
    artifact = build(checkout, 'mkdir dist; echo "$ORCH_SHA" > dist/version; echo built')
    assert artifact == checkout / "dist"
    assert (artifact / "version").read_text() == f"{SHA}\n"
    assert (checkout.parent / "log").read_text() == "built\n"


def test_a_build_sees_only_what_it_was_given(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "hunter2")
    assert "hunter2" not in build(checkout, "env > dist").read_text()


@pytest.mark.parametrize("script", ["echo why; exit 3", "echo why; mkdir dist; exit 3"])
def test_a_failed_build_is_refused_with_the_end_of_its_log(checkout: Path, script: str) -> None:
    with pytest.raises(BuildFailed, match="exit code 3") as caught:
        build(checkout, script)
    assert caught.value.log_tail == "why\n"
    assert str(checkout.parent / "log") in str(caught.value)


def test_a_build_that_leaves_nothing_is_refused(checkout: Path) -> None:
    with pytest.raises(BuildFailed, match="left no artefact at 'dist'"):
        build(checkout, "echo fine")


def test_what_a_build_leaves_running_is_ended(checkout: Path) -> None:
    """Even in a session of its own, and whether the build ends well or not."""
    for end in ("mkdir dist", "exit 3"):
        with suppress(BuildFailed):
            build(checkout, f"setsid sleep 600 & echo $! > ../helper; {end}")
        assert gone(int((checkout.parent / "helper").read_text()))


def test_a_build_that_hangs_is_ended(checkout: Path) -> None:
    with pytest.raises(BuildFailed, match=r"did not end within 0\.3 s"):
        build(checkout, "mkdir dist; sleep 600", timeout_s=0.3)


def test_a_program_that_does_not_exist_is_named(checkout: Path) -> None:
    config = ImageConfig(command=("no-such-program",), artifact="dist")
    with pytest.raises(BuildFailed, match="no-such-program"):
        ImageBuilder(processes=SystemProcesses(), entropy=SystemEntropy()).build(
            checkout, config, ENV, checkout.parent / "log", sha=SHA
        )


@pytest.mark.parametrize("artifact", ["", ".", "..", "../outside", "/etc", "dist/../../outside"])
def test_a_place_outside_the_checkout_is_refused_before_anything_runs(checkout: Path, artifact: str) -> None:
    with pytest.raises(ConfigError, match="not inside the checkout"):
        build(checkout, "touch ran", artifact)
    assert not (checkout / "ran").exists()


@pytest.mark.parametrize(
    ("script", "artifact", "error"),
    [("ln -s /etc dist", "dist", BuildFailed), ("ln -s /etc dist", "dist/passwd", ConfigError)],
)
def test_a_link_in_the_artefacts_place_is_refused(
    checkout: Path, script: str, artifact: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        build(checkout, script, artifact)


def test_the_log_of_a_flood_is_cut_to_its_end(checkout: Path) -> None:
    build(checkout, "mkdir dist; head -c 20000000 /dev/zero; echo THE END")
    log = checkout.parent / "log"
    assert log.stat().st_size <= LOG_LIMIT
    assert log.read_bytes().endswith(b"THE END\n")
