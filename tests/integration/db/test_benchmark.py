"""The benchmark runs and says what it promises; how fast anything was is nobody's business here."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
RATIOS = ("one actor", "sixteen actors", "claim + finish", "transition growth", "claim growth")


def bench(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--short", "--folder", str(folder), *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_short_form_reports_ratios_and_goes_on_where_it_was(tmp_path: Path) -> None:
    first = bench(tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [size["finished"] for size in stored["sizes"]] == [100, 1000]
    for size in stored["sizes"]:
        assert all(isinstance(size[name], float) for name in RATIOS)
        assert all(rate > 0 for rate in size["per second"].values())
        assert {len(rates) for kind, rates in size["samples"].items() if kind != "fsync"} == {2}
    assert "| finished tasks | one actor |" in first
    assert "Medians of ratios to bare SQL" in first
    assert first.count("rounds …") == 2
    (tmp_path / "samples-100-2-0.05.json").unlink()  # as after a run that was broken off
    again = bench(tmp_path, "--json", str(tmp_path / "again.json"))
    assert again.count("rounds …") == 1
    assert json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))["sizes"][1] == stored["sizes"][1]


def test_the_profile_names_the_seam(tmp_path: Path) -> None:
    said = bench(tmp_path, "--profile")
    assert "'execute' of 'sqlite3.Connection'" in said
    assert "db/sqlite.py" in said


def test_webhooks_are_taken_in_beside_an_endpoint_that_stores_nothing_and_none_of_a_burst_is_lost(
    tmp_path: Path,
) -> None:
    said = bench(tmp_path, "webhooks")
    told = json.loads((tmp_path / "intake.json").read_text(encoding="utf-8"))
    assert set(told["figures"]) == {"8", "32"}
    for figures in told["figures"].values():
        assert set(figures) == {"bare", "stored", "service"}
        assert all(len(one["rates"]) == 2 and one["p99_ms"] > 0 for one in figures.values())
    assert (told["burst"]["deliveries"], told["burst"]["lost"]) == (300, 0)
    assert "A burst of 300 deliveries" in said


def test_a_running_service_is_measured(tmp_path: Path) -> None:
    said = bench(tmp_path, "service")
    [figures] = json.loads((tmp_path / "service.json").read_text(encoding="utf-8")).values()
    assert figures["memory, MiB"] > 1 and figures["wake-up p99, ms"] >= figures["wake-up p50, ms"] > 0
    for name in figures:
        assert f"| {name} |" in said
