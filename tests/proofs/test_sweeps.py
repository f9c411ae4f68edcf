"""The short forms of the sweeps; what they do at length is told in ``docs/explanation/proofs.md``."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs import kill

MEMORY = Path("/dev/shm")  # a sweep is not about disks


@pytest.fixture
def place() -> Iterator[Path]:
    """Where scenarios are played."""
    folder = Path(tempfile.mkdtemp(prefix="orch-proofs-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(300)
def test_kill_sweep(place: Path) -> None:
    found = kill.sweep([3, 5], place, kills=12)
    assert [(scenario.seed, scenario.findings) for scenario in found] == [(3, []), (5, [])]
    assert all(scenario.counts["kills"] >= 8 for scenario in found)
