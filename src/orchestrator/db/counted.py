"""Counts what was stored, by the events that tell of it: once its commit has taken place, wherever it was decided.

Every durable change has an event (law 11), so that no actor can forget to count. Where the answer to a COMMIT was lost,
its events are not counted: counters are for people, and decide nothing.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from orchestrator.db.database import Database, Row, Tx
from orchestrator.domain.event import EventType
from orchestrator.domain.lease import Actor
from orchestrator.observability.telemetry import Metric, Telemetry

Counts = list[tuple[Metric, str]]
Told = Mapping[str, Any]  # an event's own row, and what it says in ``data``


class CountedDatabase:
    """A database whose commits are counted."""

    def __init__(self, real: Database, telemetry: Telemetry) -> None:
        self._real = real
        self._telemetry = telemetry

    @contextmanager
    def write(self) -> Iterator[Tx]:
        """A transaction; it is counted when it is durable."""
        counts: Counts = []
        with self._real.write() as tx:
            yield _CountedTx(tx, counts)
        for metric, label in counts:
            self._telemetry.count(metric, label)

    def read(self) -> AbstractContextManager[Tx]:
        """One consistent snapshot."""
        return self._real.read()

    def close(self) -> None:
        """Let go of the database."""
        self._real.close()


class _CountedTx:
    def __init__(self, tx: Tx, counts: Counts) -> None:
        self._tx = tx
        self._counts = counts
        self.one: Callable[..., Row | None] = tx.one
        self.all: Callable[..., Sequence[Row]] = tx.all

    def execute(self, name: str, /, **params: object) -> int:
        changed = self._tx.execute(name, **params)
        if name == "events.append" and (count := COUNTED.get(EventType(str(params["type"])))) is not None:
            found = count({**params, "data": json.loads(str(params["data"]))})
            if found is not None:
                self._counts.append(found)
        return changed


def _by(metric: Metric, name: str) -> Callable[[Told], tuple[Metric, str] | None]:
    """Counted by what the event says under a name; one that says nothing there tells of something else."""

    def count(told: Told) -> tuple[Metric, str] | None:
        return (metric, str(told["data"][name])) if name in told["data"] else None

    return count


def _intended(told: Told) -> tuple[Metric, str] | None:
    """One that comes back from doubt, with a reason, was decided on before."""
    return None if "reason" in told["data"] else (Metric.EFFECTS_INTENDED, str(told["data"]["effect"]))


def _settled(told: Told) -> tuple[Metric, str]:
    applied = told["data"]["state"] == "applied"
    return Metric.EFFECTS_APPLIED if applied else Metric.EFFECTS_REVOKED, str(told["data"]["effect"])


def _given_back(told: Told) -> tuple[Metric, str] | None:
    """Not what an agent's own end has led to."""
    gone = told["actor"] in (Actor.REAPER, Actor.RECOVERY)
    return (Metric.JOBS_REQUEUED, str(told["data"]["error"])) if gone else None


COUNTED: Mapping[EventType, Callable[[Told], tuple[Metric, str] | None]] = {
    EventType.STAGE_CHANGED: lambda told: (Metric.TRANSITIONS, str(told["to_stage"])),
    EventType.GATE_JUDGED: _by(Metric.GATES_JUDGED, "verdict"),
    EventType.EFFECT_INTENDED: _intended,
    EventType.EFFECT_SETTLED: _settled,
    EventType.EFFECT_IN_DOUBT: _by(Metric.EFFECTS_IN_DOUBT, "effect"),
    EventType.SIGNAL_APPLIED: _by(Metric.SIGNALS_APPLIED, "signal"),
    EventType.SIGNAL_REFUSED: _by(Metric.SIGNALS_REFUSED, "signal"),
    EventType.JOB_FINISHED: _by(Metric.JOBS_FINISHED, "status"),
    EventType.JOB_REQUEUED: _given_back,
}
