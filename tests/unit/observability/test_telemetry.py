"""Counters: a table with help, exact under threads, bounded labels."""

import re
import threading
from pathlib import Path

import orchestrator
from orchestrator.observability.telemetry import METRICS, OTHER, Metric, Telemetry


def test_every_counter_is_described() -> None:
    assert set(METRICS) == set(Metric)
    for metric, doc in METRICS.items():
        assert re.fullmatch(r"orch_[a-z_]+_total", metric)
        assert doc.help.endswith(".")


def test_every_counter_is_counted_somewhere() -> None:
    """One that stands at zero for ever says that nothing happens."""
    package = Path(orchestrator.__file__).parent
    modules = [path for path in package.rglob("*.py") if path.name != "telemetry.py"]
    told = "\n".join(path.read_text(encoding="utf-8") for path in modules)
    assert [metric.name for metric in Metric if f"Metric.{metric.name}" not in told] == []


def test_counts_by_label() -> None:
    telemetry = Telemetry()
    telemetry.count(Metric.LEASE_DEFERRED, "reaper")
    telemetry.count(Metric.LEASE_DEFERRED, "reaper", by=2)
    telemetry.count(Metric.LEASE_DEFERRED, "webhook")
    telemetry.count(Metric.RUNS_ADOPTED, "ignored")
    snapshot = telemetry.snapshot()
    assert snapshot["orch_lease_deferred_total"] == {"reaper": 3, "webhook": 1}
    assert snapshot["orch_runs_adopted_total"] == {"": 1}
    assert snapshot["orch_jobs_claimed_total"] == {}
    assert telemetry.total(Metric.LEASE_DEFERRED) == 4


def test_a_snapshot_is_a_copy() -> None:
    telemetry = Telemetry()
    telemetry.snapshot()["orch_runs_adopted_total"][""] = 5
    assert telemetry.total(Metric.RUNS_ADOPTED) == 0


def test_labels_are_bounded() -> None:
    telemetry = Telemetry()
    for number in range(1000):
        telemetry.count(Metric.JOBS_CLAIMED, f"kind-{number}")
    counts = telemetry.snapshot()[Metric.JOBS_CLAIMED]
    assert len(counts) <= 65 and sum(counts.values()) == 1000 and counts[OTHER] > 900


def test_threads_lose_nothing() -> None:
    telemetry = Telemetry()

    def count() -> None:
        for _ in range(2000):
            telemetry.count(Metric.TRANSITIONS, "deploy")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert telemetry.total(Metric.TRANSITIONS) == 8000
