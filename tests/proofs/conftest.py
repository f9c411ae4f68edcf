"""Where proofs keep their databases: in memory where the machine has such a folder, for they commit a lot."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs.explorer import quiet

MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="orch-proofs-") as folder:
        yield Path(folder)


@pytest.fixture
def quietly() -> Iterator[None]:
    """Thousands of runs warn of what is meant to happen: nobody reads it."""
    with quiet():
        yield
