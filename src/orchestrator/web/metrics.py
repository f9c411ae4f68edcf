"""``GET /metrics``: JSON for the sidecar of old, Prometheus text for a scraper that asks for it.

``schema_version`` rises only when a name changes its meaning; readers tolerate names they do not know.
"""

from collections import Counter

from orchestrator.observability.telemetry import METRICS, Metric, Telemetry
from orchestrator.operations.desk import Operations

SCHEMA_VERSION = 1
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TASKS_LIMIT = 5000  # counted at most; a gauge at the bound is a lower bound

_TEXT_TYPES = ("text/plain", "application/openmetrics-text")
GAUGES = {
    "orch_open_tasks": ("Tasks that have not ended.", "stage"),
    "orch_held_tasks": ("Tasks that do not move although nobody works on them.", "hold"),
    "orch_active_jobs": ("Jobs that wait or run.", "status"),
    "orch_share_running": ("Agents at work under a cap, in all processes of the database.", "share"),
    "orch_share_limit": ("Agents that a cap allows.", "share"),
    "orch_frozen_repos": ("Repositories that take no new work.", ""),
    "orch_unsettled_effects": ("Effects whose outcome no probe has shown yet.", "state"),
}

Gauges = dict[str, dict[str, int]]


def gauges(operations: Operations) -> Gauges:
    """How things stand, by the same names in both formats: name → label value → number."""
    open_tasks = operations.tasks(open_only=True, limit=OPEN_TASKS_LIMIT)
    queue = operations.queue()
    serial_gate = queue["serial_gate"]
    return {
        "orch_open_tasks": _counted([task.stage.value for task in open_tasks]),
        "orch_held_tasks": _counted([task.hold.value for task in open_tasks if task.hold]),
        "orch_active_jobs": {"queued": _length(queue["queued"]), "running": _length(queue["running"])},
        "orch_share_running": _of_shares(queue["shares"], "running"),
        "orch_share_limit": _of_shares(queue["shares"], "limit"),
        "orch_frozen_repos": {"": _length(serial_gate["frozen"]) if isinstance(serial_gate, dict) else 0},
        "orch_unsettled_effects": _counted(_states(queue["effects"])),
    }


def as_json(operations: Operations, telemetry: Telemetry) -> dict[str, object]:
    """The JSON form."""
    return {
        "schema_version": SCHEMA_VERSION,
        "counters": telemetry.snapshot(),
        "gauges": gauges(operations),
    }


def as_prometheus(operations: Operations, telemetry: Telemetry) -> str:
    """The text exposition format, version 0.0.4."""
    lines: list[str] = []
    counted = telemetry.snapshot()
    for metric in Metric:
        doc = METRICS[metric]
        lines += _family(metric.value, "counter", doc.help, doc.label, counted[metric.value])
    for name, values in gauges(operations).items():
        text, label = GAUGES[name]
        lines += _family(name, "gauge", text, label, values)
    return "\n".join(lines) + "\n"


def wants_prometheus(accept: str) -> bool:
    """Whether a scraper asks: text is named and JSON is not named as welcome as it."""
    weights: dict[str, float] = {}
    for part in accept.lower().split(",")[:50]:
        media, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((_weight(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        weights[media] = max(weight, weights.get(media, 0.0))
    text = max(weights.get(media, 0.0) for media in _TEXT_TYPES)
    return text > weights.get("application/json", 0.0)


def _family(name: str, kind: str, text: str, label: str, values: dict[str, int]) -> list[str]:
    """One metric; a counter that never counted is shown as zero where it has no label."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for value, number in sorted(values.items()) if values or label else [("", 0)]:
        shown = f'{{{label}="{_escaped(value)}"}}' if label else ""
        lines.append(f"{name}{shown} {number}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _weight(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _counted(names: list[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _states(effects: object) -> list[str]:
    return [str(effect["state"]) for effect in effects] if isinstance(effects, list) else []


def _of_shares(shares: object, what: str) -> dict[str, int]:
    return {str(share["share"]): int(share[what]) for share in shares} if isinstance(shares, list) else {}


def _length(rows: object) -> int:
    return len(rows) if isinstance(rows, list) else 0
