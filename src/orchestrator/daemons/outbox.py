"""Sends what transitions have written: at least once, in order per task, with a stable id; a poison message parks,
and a person is told of it. Each further channel of alerts has an outbox of its own, and a thread with it, and so has
each tracker elsewhere: one that is slow or down holds nothing else."""

from collections.abc import Mapping

import structlog

from orchestrator.db import alerts, mail, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import OrchestratorError, OutsideError
from orchestrator.domain.stage import Stage
from orchestrator.notifications.notifier import Notifier, NotNow, Undeliverable
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.runtime.entropy import Entropy
from orchestrator.trackers.tracker import Tracker, TrackerAway

log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 5.0
MAX_PAUSE_S = 3600.0  # so that what is refused for an hour, by a server out of order, is not parked yet
CLAIM_S = 60.0  # longer than any sending takes
MAX_WAIT_S = 3600.0  # for a channel: whatever it asks for, it is looked at again by then
REASON_LIMIT = 500  # characters of an error in an alert


class MalformedMessage(OutsideError):
    """A stored message does not say what its kind has to say; it fails like one that could not be sent."""


class Outbox:
    """The postman."""

    def __init__(
        self,
        database: Database,
        tracker: Tracker,
        notifier: Notifier,
        *,
        base_url: str,
        interval_s: float,
        entropy: Entropy,
        telemetry: Telemetry,
        channel: str | None = None,
        of: str | None = None,
    ) -> None:
        """``channel``: sends nothing but the copies of alerts for it; ``of``: nothing but what tickets of a tracker
        elsewhere are told."""
        self.name = "-".join(["outbox", *filter(None, (channel, of))])
        self.interval_s = interval_s  # until the next pass: what a channel asks for that takes nothing now
        self._usual_s = interval_s
        self._channel = channel
        self._of = of
        self._database = database
        self._tracker = tracker
        self._notifier = notifier
        self._base_url = base_url.rstrip("/")
        self._entropy = entropy
        self._telemetry = telemetry

    def run_once(self) -> dict[str, int]:
        """Send everything that is due; a message that fails holds only its own task's later ones. A channel that takes
        nothing for a while ends the pass."""
        counts = {"sent": 0, "failed": 0}
        self.interval_s = self._usual_s
        while True:
            with self._database.read() as tx:
                due = mail.due(tx, channel=self._channel, tracker=self._of)
            progress = 0
            for message in due:
                if not self._ours(message):
                    continue
                try:
                    sent = self._deliver(message)
                except (NotNow, TrackerAway) as error:
                    self.interval_s = min(error.after_s, MAX_WAIT_S)
                    with self._database.write() as tx:
                        mail.put_off(tx, message, error.after_s)
                    return counts
                counts["sent" if sent else "failed"] += 1
                progress += sent
            if not progress:
                return counts

    def _ours(self, message: mail.OutgoingMessage) -> bool:
        """Whether no other service sends it just now. The log and the local tracker know a repeat by its id; a further
        channel does not, and a tracker elsewhere does where the first has arrived."""
        if self._channel is None and self._of is None:
            return True
        with self._database.write() as tx:
            return mail.claim(tx, message, CLAIM_S)

    def _deliver(self, message: mail.OutgoingMessage) -> bool:
        try:
            self._send(message)
        except (NotNow, TrackerAway):
            raise
        except OrchestratorError as error:
            pause = min(FIRST_PAUSE_S * 2**message.attempts, MAX_PAUSE_S)
            with self._database.write() as tx:
                found = mail.failed(
                    tx,
                    message,
                    str(error)[:2000],
                    self._entropy.jitter(pause),
                    for_good=isinstance(error, Undeliverable),
                )
                if found.parked:
                    alerts.parked(tx, message, str(error)[:REASON_LIMIT], found.work_item or _about(message))
            metric = Metric.MESSAGES_PARKED if found.parked else Metric.MESSAGES_FAILED
            self._telemetry.count(metric, message.channel)
            log.warning(
                "message not sent",
                task=found.work_item,
                message=message.stable_id,
                kind=message.kind,
                attempts=message.attempts + 1,
                parked=found.parked,
                reason=str(error),
            )
            return False
        with self._database.write() as tx:
            mail.sent(tx, message)
        self._telemetry.count(Metric.MESSAGES_SENT, message.channel)
        return True

    def _send(self, message: mail.OutgoingMessage) -> None:
        payload = message.payload
        if not isinstance(payload, Mapping):  # the schema asks for JSON, not for an object
            raise MalformedMessage(f"The message {message.stable_id} holds no fields.")
        if message.kind == "alert":
            work_item = _about(message)
            url = f"{self._base_url}/board/{work_item}" if work_item and self._base_url else None
            self._notifier.send(
                _text(payload, "text"), work_item=work_item, url=url, message_id=message.stable_id
            )
            return
        if message.task_id is None:
            return
        with self._database.read() as tx:
            task = tasks.get(tx, message.task_id)
        if message.kind == "tracker.stage":
            self._tracker.show_stage(
                task,
                _stage(payload),
                message.stable_id,
                reason=str(payload.get("reason", "")),
                said_at=message.said_at,
            )
        else:
            self._tracker.comment(task, _text(payload, "text"), message.stable_id)


def _about(message: mail.OutgoingMessage) -> str | None:
    """The work item that an alert says it is about."""
    payload: object = message.payload
    named = payload.get("work_item") if isinstance(payload, Mapping) else None
    return str(named) if named else None


def _text(payload: Mapping[str, object], name: str) -> str:
    if name not in payload:
        raise MalformedMessage(f"The stored message has no {name!r}.")
    return str(payload[name])


def _stage(payload: Mapping[str, object]) -> Stage:
    text = _text(payload, "stage")
    try:
        return Stage(text)
    except ValueError as error:
        raise MalformedMessage(f"The stored message names no stage: {text[:100]!r}.") from error
