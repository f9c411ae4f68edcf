"""The benchmark runs and says what it promises; how fast anything was is nobody's business here."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tables
from benchmarks.bare import BareSqlite, Params
from benchmarks.files import Files, FileStore
from benchmarks.product import Product
from orchestrator.db.database import Database, Row, Tx

ROOT = Path(__file__).parents[3]
RATIOS = (
    "one actor",
    "sixteen actors",
    "claim + finish",
    "four processes",
    "transition growth",
    "claim growth",
)
PLACE = "<!-- figures: {} -->\n"


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
    page = tmp_path / "page.md"
    page.write_text(
        "".join(
            f"{PLACE.format(name)}as it was\n<!-- end -->\n"
            for name in ("transitions-sqlite", "peers", "service")
        )
    )
    tables.main(tmp_path, page=page)
    [ours, beside_peers, other] = page.read_text().split("<!-- end -->")[:3]
    assert first.split("rounds …\n")[-1].split("\n\nThe figures")[0] in ours
    assert "cores, load" in ours and "as it was" not in ours
    assert "| idle CPU | huey 0.1 %; procrastinate 0.3 %; DBOS 1.1 % | – |" in beside_peers
    assert "as it was" in other
    (tmp_path / "samples-sqlite-100-2-0.05.json").unlink()  # as after a run that was broken off
    again = bench(tmp_path, "--json", str(tmp_path / "again.json"))
    assert again.count("rounds …") == 1
    assert json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))["sizes"][1] == stored["sizes"][1]


@pytest.mark.long
def test_postgresql_is_measured_the_same_way(tmp_path: Path) -> None:
    """A server of the benchmark's own, which has ended when the command has."""
    said = bench(tmp_path, "--database", "postgres")
    stored = json.loads((tmp_path / "results-postgres.json").read_text(encoding="utf-8"))
    assert stored["database"].startswith("PostgreSQL ")
    for size in stored["sizes"]:
        assert all(isinstance(size[name], float) for name in RATIOS)
        assert all(rate > 0 for rate in size["per second"].values())
    assert "sixteen actors ≥ 1.4 of one bare connection" in said


class Said:
    """A transaction that notes what it is asked."""

    def __init__(self, tx: Tx, names: list[str]) -> None:
        self._tx = tx
        self._names = names

    def execute(self, name: str, /, **params: object) -> int:
        self._names.append(name)
        return self._tx.execute(name, **params)

    def one(self, name: str, /, **params: object) -> Row | None:
        self._names.append(name)
        return self._tx.one(name, **params)

    def all(self, name: str, /, **params: object) -> Sequence[Row]:
        self._names.append(name)
        return self._tx.all(name, **params)


class Listened:
    """A database that notes what is written in each transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.said: list[list[str]] = []

    @contextmanager
    def write(self) -> Iterator[Tx]:
        with self._database.write() as tx:
            self.said.append([])
            yield Said(tx, self.said[-1])

    @contextmanager
    def read(self) -> Iterator[Tx]:
        with self._database.read() as tx:
            yield tx

    def close(self) -> None:
        self._database.close()


class ListenedBare(BareSqlite):
    """A bare connection that notes the same."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.said: list[list[str]] = []

    def begin(self) -> None:
        super().begin()
        self.said.append([])

    def run(self, name: str, params: Params) -> Any:
        self.said[-1].append(name)
        return super().run(name, params)


def test_the_yardstick_says_what_the_product_says_in_the_same_transactions(tmp_path: Path) -> None:
    store = Files(tmp_path, tmp_path).prepared(1)
    assert isinstance(store, FileStore)
    listened = Listened(store.open())
    product, bare = Product(listened), ListenedBare(store.path)
    for _ in range(2):  # the first job of a stage and its agent enters a lane
        product.transition(store.movers()[0])
    listened.said.clear()
    for each in (product, bare):
        each.transition(store.movers()[0])
        assert each.claim_and_finish()
    assert len(bare.said) == 4
    assert listened.said == bare.said
    product.close()
    bare.close()


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


def test_recovery_is_measured_from_the_first_line_of_a_new_life(tmp_path: Path) -> None:
    said = bench(tmp_path, "recovery")
    told = json.loads((tmp_path / "recovery-sqlite.json").read_text(encoding="utf-8"))
    assert set(told) == {"a push not made yet", "40 tasks"}
    assert all(len(taken) == 1 and 0 < taken[0] < 600 for taken in told.values())
    assert "| 40 tasks | 5 |" in said


@pytest.mark.long
def test_what_takes_place_is_counted_per_hundred_kills(tmp_path: Path) -> None:
    said = bench(tmp_path, "kills")
    told = json.loads((tmp_path / "kills-sqlite-short.json").read_text(encoding="utf-8"))
    for mode in ("random", "targeted"):
        assert len(told[mode]) == 2
        for one in told[mode]:
            assert one["tasks"] == 2 and one["findings"] == []
            assert set(one["duplicates"].values()) == set(one["lost"].values()) == {0}
        assert f"| {mode} |" in said


def test_a_running_service_is_measured(tmp_path: Path) -> None:
    said = bench(tmp_path, "service")
    [figures] = json.loads((tmp_path / "service.json").read_text(encoding="utf-8")).values()
    assert figures["memory, MiB"] > 1 and figures["wake-up p99, ms"] >= figures["wake-up p50, ms"] > 0
    for name in figures:
        assert f"| {name} |" in said
