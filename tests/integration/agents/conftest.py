from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agents.run_folder import RunFolder
from orchestrator.runtime.sweep import sweep
from tests.integration.agents.running import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for number in range(1, bench.count + 1):
        launch = RunFolder(tmp_path / f"run-{number}").launch()
        if launch is not None:
            sweep(launch.marker)
