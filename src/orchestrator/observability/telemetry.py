"""Counters of what happened in this process since it started, for ``GET /metrics`` and ``GET /queue``.

The table below is a published contract: names are added, never changed. Counting never fails and never waits for more
than another count.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_LABELS_MAX = 64  # values of one counter's label; what comes after them is counted as "other"
OTHER = "other"


class Metric(StrEnum):
    """Every counter, by its published name."""

    JOBS_CLAIMED = "orch_jobs_claimed_total"
    JOBS_FINISHED = "orch_jobs_finished_total"
    JOBS_REQUEUED = "orch_jobs_requeued_total"
    RUNS_FINISHED = "orch_runs_finished_total"
    RUNS_ADOPTED = "orch_runs_adopted_total"
    TRANSITIONS = "orch_transitions_total"
    LOST_RACES = "orch_lost_races_total"
    LEASE_ACQUIRED = "orch_lease_acquired_total"
    LEASE_DEFERRED = "orch_lease_deferred_total"
    LEASE_RECLAIMED_STALE = "orch_lease_reclaimed_stale_total"
    LEASE_RECLAIMED_FORCED = "orch_lease_reclaimed_forced_total"
    GATES_JUDGED = "orch_gates_judged_total"
    EFFECTS_INTENDED = "orch_effects_intended_total"
    EFFECTS_ACTED = "orch_effects_acted_total"
    EFFECTS_APPLIED = "orch_effects_applied_total"
    EFFECTS_REVOKED = "orch_effects_revoked_total"
    EFFECTS_IN_DOUBT = "orch_effects_in_doubt_total"
    WEBHOOKS_RECEIVED = "orch_webhooks_received_total"
    WEBHOOKS_REPEATED = "orch_webhooks_repeated_total"
    WEBHOOKS_REFUSED = "orch_webhooks_refused_total"
    SIGNALS_APPLIED = "orch_signals_applied_total"
    SIGNALS_REFUSED = "orch_signals_refused_total"
    MESSAGES_SENT = "orch_messages_sent_total"
    MESSAGES_FAILED = "orch_messages_failed_total"
    MESSAGES_PARKED = "orch_messages_parked_total"
    DAEMON_FAULTS = "orch_daemon_faults_total"


@dataclass(frozen=True, slots=True)
class MetricDoc:
    """What a counter counts; ``label`` is the name of its one label, or empty."""

    help: str
    label: str = ""


METRICS: Mapping[Metric, MetricDoc] = {
    Metric.JOBS_CLAIMED: MetricDoc("Jobs taken from the queue.", "kind"),
    Metric.JOBS_FINISHED: MetricDoc("Jobs that ended.", "status"),
    Metric.JOBS_REQUEUED: MetricDoc(
        "Jobs given back to the queue because whoever had them was gone.", "reason"
    ),
    Metric.RUNS_FINISHED: MetricDoc("Executions of an agent that ended.", "outcome"),
    Metric.RUNS_ADOPTED: MetricDoc("Live executions taken over after a restart."),
    Metric.TRANSITIONS: MetricDoc("Stages written.", "stage"),
    Metric.LOST_RACES: MetricDoc("Writes given up because another actor had moved the task.", "actor"),
    Metric.LEASE_ACQUIRED: MetricDoc("Leases taken.", "actor"),
    Metric.LEASE_DEFERRED: MetricDoc(
        "Times an actor stood back because another one owned the task.", "actor"
    ),
    Metric.LEASE_RECLAIMED_STALE: MetricDoc("Leases taken over from an owner that was gone.", "actor"),
    Metric.LEASE_RECLAIMED_FORCED: MetricDoc(
        "Leases taken from a hung owner at the backstop or by a person.", "actor"
    ),
    Metric.GATES_JUDGED: MetricDoc("Judgements of gates.", "verdict"),
    Metric.EFFECTS_INTENDED: MetricDoc("Effects decided on.", "effect"),
    Metric.EFFECTS_ACTED: MetricDoc("Calls that asked an authority to act.", "effect"),
    Metric.EFFECTS_APPLIED: MetricDoc("Effects that a probe showed as applied.", "effect"),
    Metric.EFFECTS_REVOKED: MetricDoc("Effects given up and made impossible.", "effect"),
    Metric.EFFECTS_IN_DOUBT: MetricDoc("Times an effect's fact could not be read.", "effect"),
    Metric.WEBHOOKS_RECEIVED: MetricDoc("Webhooks stored.", "source"),
    Metric.WEBHOOKS_REPEATED: MetricDoc("Webhooks that had been stored before.", "source"),
    Metric.WEBHOOKS_REFUSED: MetricDoc("Webhooks that were not taken.", "reason"),
    Metric.SIGNALS_APPLIED: MetricDoc("People's decisions that were applied.", "kind"),
    Metric.SIGNALS_REFUSED: MetricDoc("People's decisions that no longer fitted.", "kind"),
    Metric.MESSAGES_SENT: MetricDoc("Messages delivered.", "channel"),
    Metric.MESSAGES_FAILED: MetricDoc("Deliveries that failed and will be repeated.", "channel"),
    Metric.MESSAGES_PARKED: MetricDoc("Messages given up until a person looks.", "channel"),
    Metric.DAEMON_FAULTS: MetricDoc("Passes of a daemon that ended in an error.", "daemon"),
}


class Telemetry:
    """The counters of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Metric, dict[str, int]] = {metric: {} for metric in Metric}

    def count(self, metric: Metric, label: str = "", by: int = 1) -> None:
        """Count ``by`` more; ``label`` is the value of the metric's label, ignored where it has none."""
        value = str(label) if METRICS[metric].label else ""
        with self._lock:
            counts = self._counts[metric]
            if value not in counts and len(counts) >= _LABELS_MAX:
                value = OTHER
            counts[value] = counts.get(value, 0) + by

    def total(self, metric: Metric) -> int:
        """The sum over all labels."""
        with self._lock:
            return sum(self._counts[metric].values())

    def snapshot(self) -> dict[str, dict[str, int]]:
        """All counters at one moment: name → label value → count; a counter that never counted is empty."""
        with self._lock:
            return {str(metric): dict(counts) for metric, counts in self._counts.items()}
