"""The door: a delivery is committed before it is acknowledged, once by its id and once by its content (law 7).

Must hold: nothing is judged here, so that the sender gets its answer in milliseconds; what a person's word was about
is read in the very transaction that stores it. Several that arrive together share one commit; one that cannot be
stored costs itself alone.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from orchestrator.db import inbox
from orchestrator.db.database import Database, Tx
from orchestrator.domain.errors import DatabaseError, InvariantError, OrchestratorError
from orchestrator.domain.ids import TaskId
from orchestrator.observability.never_raise import never_raises
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.stage_engine.signals import subject_on_show
from orchestrator.webhooks.fields import ID_LIMIT, MalformedDelivery, clean, text
from orchestrator.webhooks.handler import WebhookHandler

log = structlog.get_logger(__name__)

# What differs between repeats of one event: the hook it came through, and the sender's caches. The times of the thing
# itself (`updated_at`) are no such field: they tell a second closing from the first.
VOLATILE = frozenset(
    {"secret", "webhook_id", "hook_id", "last_login", "mergeable", "mergeable_state", "rebaseable"}
)
DEPTH_LIMIT = 50
_PLAIN = json.JSONEncoder(allow_nan=False)
_SORTED = json.JSONEncoder(allow_nan=False, sort_keys=True)
FAULT = "The delivery could not be read or stored: a fault of ours; the log tells more."


@dataclass(frozen=True, slots=True)
class Letter:
    """What has arrived, as it came: ``kind`` and ``delivery_id`` as the headers say, ``raw`` what was signed."""

    source: str
    kind: str
    delivery_id: str | None
    raw: bytes


@dataclass(frozen=True, slots=True)
class Received:
    """``inbox_id`` is None where the delivery repeats one that is stored."""

    inbox_id: int | None

    @property
    def repeated(self) -> bool:
        """True for a repeat."""
        return self.inbox_id is None


Ended = Received | OrchestratorError
"""What became of a letter; an error says why it is not stored."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A delivery that has been read and can be stored."""

    handler: WebhookHandler
    new: inbox.NewDelivery
    payload: object


@dataclass(frozen=True, slots=True)
class _Stored:
    """What was found while it was stored."""

    received: Received
    task_of_repeat: TaskId | None
    unparked: bool


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
        :raises DatabaseError: it is not stored.
        """
        [ended] = self.store([self._opened(source, kind, delivery_id, payload)])
        if isinstance(ended, OrchestratorError):
            raise ended
        return ended

    @never_raises(InvariantError(FAULT), log)
    def open(self, letter: Letter) -> Opened | OrchestratorError:
        """Read what has arrived; an error says why it cannot be stored."""
        try:
            return self._opened(letter.source, letter.kind, letter.delivery_id, parsed(letter.raw))
        except MalformedDelivery as error:
            return error

    def store(self, opened: Sequence[Opened]) -> list[Ended]:
        """Store deliveries in one commit; where one of them is in the way, each in its own. A database is away for all
        of them. What became of each, in their order; raises nothing."""
        stored = self._committed(opened) if opened else []
        if isinstance(stored, list):
            self._tell(opened, stored)
            return [one.received for one in stored]
        if len(opened) == 1 or isinstance(stored, DatabaseError):
            return [stored or InvariantError(FAULT)] * len(opened)
        return [ended for one in opened for ended in self.store([one])]

    def _opened(self, source: str, kind: str, delivery_id: str | None, payload: object) -> Opened:
        handler = self._handlers.get(source)
        if handler is None or not isinstance(payload, dict):
            raise MalformedDelivery("The delivery is of no known source, or no JSON object.")
        signed = text(payload, handler.envelope.kind_in_body) if handler.envelope.kind_in_body else ""
        kind = (signed or clean(kind))[:ID_LIMIT]
        if not kind:
            raise MalformedDelivery("The delivery does not say of what kind it is.")
        new = inbox.NewDelivery(
            source=source,
            kind=kind,
            dedup_key=content_key(source, kind, payload),
            delivery_id=clean(delivery_id)[:ID_LIMIT] or None if delivery_id else None,
            payload=_encoded(payload),
        )
        return Opened(handler, new, payload)

    @never_raises(None, log)
    def _committed(self, opened: Sequence[Opened]) -> list[_Stored] | OrchestratorError:
        try:
            with self._database.write() as tx:
                return [_store_one(tx, one) for one in opened]
        except OrchestratorError as error:
            return error

    def _tell(self, opened: Sequence[Opened], stored: Sequence[_Stored]) -> None:
        """What is durable is counted, and looked at."""
        for one, found in zip(opened, stored, strict=True):
            new = not found.received.repeated
            self._telemetry.count(
                Metric.WEBHOOKS_RECEIVED if new else Metric.WEBHOOKS_REPEATED, one.new.source
            )
        if any(found.unparked or not found.received.repeated for found in stored):
            self._arrived()
        known = [found.task_of_repeat for found in stored if found.task_of_repeat is not None]
        if known:
            self._wake(known)


def parsed(raw: bytes) -> object:
    """JSON as data; of a name that is there twice the last value counts, here and wherever it is read later.

    :raises MalformedDelivery: it is none, or nested too deeply.
    """
    try:
        payload: object = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedDelivery(f"The delivery is no JSON: {type(error).__name__}.") from error
    return payload


def content_key(source: str, kind: str, payload: object) -> str:
    """What makes a delivery the same event, whatever id it came under (gitea: two hooks, one push)."""
    digest = hashlib.sha256(_encoded([source, kind, _essence(payload)], sort=True).encode("ascii"))
    return f"{source}:{digest.hexdigest()}"


def _store_one(tx: Tx, one: Opened) -> _Stored:
    task = one.handler.task_of(tx, one.new.kind, one.payload)
    subject = subject_on_show(tx, task) if task is not None else None
    inbox_id = inbox.store(tx, one.new, task, subject)
    if inbox_id is not None:
        return _Stored(Received(inbox_id), None, unparked=False)
    return _Stored(Received(None), inbox.task_of_repeat(tx, one.new), inbox.unpark_repeated(tx, one.new))


def _essence(value: object, depth: int = 0) -> object:
    """The payload without what is volatile; repositories and accounts by their names alone."""
    if depth > DEPTH_LIMIT:
        raise MalformedDelivery("The delivery is nested too deeply.")
    if isinstance(value, list):
        return [_essence(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    for name, beside in (("full_name", "owner"), ("login", "avatar_url")):
        if name in value and beside in value:
            return {kept: _essence(value[kept], depth + 1) for kept in (name, "html_url") if kept in value}
    return {name: _essence(item, depth + 1) for name, item in value.items() if name not in VOLATILE}


def _encoded(value: object, *, sort: bool = False) -> str:
    """JSON in ASCII: hostile text (NUL, lone surrogates) is kept as escapes, which no database can choke on."""
    try:
        return (_SORTED if sort else _PLAIN).encode(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedDelivery(f"The delivery is no JSON: {type(error).__name__}.") from error
