"""The door: a delivery is committed before it is acknowledged, once by its id and once by its content (law 7).

Must hold: nothing is judged here, so that the sender gets its answer in milliseconds; what a person's word was about
is read in the very transaction that stores it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.db import inbox
from orchestrator.db.database import Database
from orchestrator.domain.ids import TaskId
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.stage_engine.signals import subject_on_show
from orchestrator.webhooks.fields import ID_LIMIT, MalformedDelivery, clean
from orchestrator.webhooks.handler import WebhookHandler

# What differs between repeats of one event: the hook it came through, and the sender's caches. The times of the thing
# itself (`updated_at`) are no such field: they tell a second closing from the first.
VOLATILE = frozenset({"secret", "webhook_id", "last_login", "mergeable"})
DEPTH_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Received:
    """``inbox_id`` is None where the delivery repeats one that is stored."""

    inbox_id: int | None

    @property
    def repeated(self) -> bool:
        """True for a repeat."""
        return self.inbox_id is None


class Receiver:
    """Stores what arrives. The signature has been verified by whoever calls it."""

    def __init__(
        self,
        database: Database,
        handlers: Iterable[WebhookHandler],
        *,
        arrived: Callable[[], None],
        wake: Callable[[Iterable[TaskId]], None],
        telemetry: Telemetry,
    ) -> None:
        """``arrived`` has the inbox looked at soon, ``wake`` a task."""
        self._database = database
        self._handlers = {handler.source: handler for handler in handlers}
        self._arrived = arrived
        self._wake = wake
        self._telemetry = telemetry

    def receive(self, source: str, kind: str, delivery_id: str | None, payload: object) -> Received:
        """Store a delivery durably, bound to what its task shows now.

        A repeat is not stored. Its task is looked at all the same, for a look at the truth costs nothing; and where the
        first one is parked, that is looked at once more.

        :raises MalformedDelivery: it cannot be stored: an unknown source, no object, values that are no JSON.
        """
        handler = self._handlers.get(source)
        if handler is None or not isinstance(payload, Mapping):
            raise MalformedDelivery("The delivery is of no known source, or no JSON object.")
        kind = clean(kind)[:ID_LIMIT]
        new = inbox.NewDelivery(
            source=source,
            kind=kind,
            dedup_key=content_key(source, kind, payload),
            delivery_id=clean(delivery_id)[:ID_LIMIT] or None if delivery_id else None,
            payload=_encoded(payload),
        )
        with self._database.write() as tx:
            task = handler.task_of(tx, kind, payload)
            subject = subject_on_show(tx, task) if task is not None else None
            stored = inbox.store(tx, new, task, subject)
            known = inbox.task_of_repeat(tx, new) if stored is None else None
            unparked = stored is None and inbox.unpark_repeated(tx, new)
        self._telemetry.count(Metric.WEBHOOKS_RECEIVED if stored else Metric.WEBHOOKS_REPEATED, source)
        if stored is not None or unparked:
            self._arrived()
        if known is not None:
            self._wake([known])
        return Received(stored)


def content_key(source: str, kind: str, payload: object) -> str:
    """What makes a delivery the same event, whatever id it came under (gitea: two hooks, one push)."""
    digest = hashlib.sha256(_encoded([source, kind, _essence(payload)], sort=True).encode("ascii"))
    return f"{source}:{digest.hexdigest()}"


def _essence(value: object, depth: int = 0) -> object:
    """The payload without what is volatile; repositories and accounts by their names alone."""
    if depth > DEPTH_LIMIT:
        raise MalformedDelivery("The delivery is nested too deeply.")
    if isinstance(value, list):
        return [_essence(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    for name, beside in (("full_name", "owner"), ("login", "avatar_url")):
        if name in value and beside in value:
            return {kept: _essence(value[kept], depth + 1) for kept in (name, "html_url") if kept in value}
    return {name: _essence(item, depth + 1) for name, item in value.items() if name not in VOLATILE}


def _encoded(value: object, *, sort: bool = False) -> str:
    """JSON in ASCII: hostile text (NUL, lone surrogates) is kept as escapes, which no database can choke on."""
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=sort)
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedDelivery(f"The delivery is no JSON: {type(error).__name__}.") from error
