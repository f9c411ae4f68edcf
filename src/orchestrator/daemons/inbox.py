"""Deals with what trackers and forges have sent: oldest first for each task, while nobody owns the task (law 7, FR-5).

Must hold: a delivery stays open until the commit that says what came of it, so that a kill costs a repetition and
never the signal. One that cannot be understood costs itself a few attempts, is parked with an alert and holds nobody;
one whose task is owned, or of whose owner nothing can be told, waits and holds only the later ones of its task.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import structlog

from orchestrator.db import alerts, inbox, mail, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.db.inbox import Delivery, OpenDelivery
from orchestrator.domain.errors import LostRace, OrchestratorError
from orchestrator.domain.ids import TaskId
from orchestrator.domain.lease import Actor
from orchestrator.domain.task import Task
from orchestrator.observability.never_raise import never_raises
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.waypoints import Waypoints
from orchestrator.stage_engine.signals import subject_on_show
from orchestrator.transition_lease import Ownership
from orchestrator.webhooks.handler import Handled, WebhookHandler

log = structlog.get_logger(__name__)

MAX_PASS = 500  # deliveries dealt with in one pass; the next one comes at once
TOGETHER = 50  # of them in one commit
DEFER_S = 0.5  # leases are short
MAX_DEFER_S = 15.0
FAILED_PAUSE_S = 5.0
OVERDUE_S = 600.0  # far above every pause that a delivery is given while its task is owned
FAULT = "a fault of ours; the log tells more"


@dataclass(frozen=True, slots=True)
class _Due:
    """A delivery that can be dealt with, and the task it is about, if it is about one."""

    inbox_id: int
    task_id: TaskId | None


class Inbox:
    """The one who opens the letters."""

    name = "inbox"

    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        handlers: Iterable[WebhookHandler],
        *,
        interval_s: float,
        wake: Callable[[Iterable[TaskId]], None],
        entropy: Entropy,
        waypoints: Waypoints,
    ) -> None:
        self.interval_s = interval_s  # until the next pass: short while something waits
        self._slow_s = interval_s
        self._database = database
        self._ownership = ownership
        self._handlers = {handler.source: handler for handler in handlers}
        self._wake = wake
        self._entropy = entropy
        self._waypoints = waypoints
        self._looked_again = False

    def run_once(self) -> dict[str, int]:
        """One bounded pass over what is open and due."""
        counts = {"handled": 0, "deferred": 0, "failed": 0}
        self._give_another_chance()
        waiting: set[TaskId] = set()  # tasks of which an earlier delivery has to wait
        for page in self._pages():
            for n in range(0, len(page), TOGETHER):
                free: set[TaskId] = set()  # as of now: the commits before this one took their time
                rows = page[n : n + TOGETHER]
                due = [one for row in rows if (one := self._due(row, waiting, free, counts)) is not None]
                if due:
                    self._deal_with(due, waiting, counts)
            if counts["handled"] + counts["failed"] >= MAX_PASS:
                self.interval_s = 0.0
                return counts
        self.interval_s = min(DEFER_S, self._slow_s) if counts["deferred"] else self._slow_s
        return counts

    def hasten(self) -> int:
        """Have what has been open for too long looked at now, whatever pause it was given (law 7); how much it is."""
        with self._database.read() as tx:
            late = inbox.overdue(tx, OVERDUE_S)
        if late:
            with self._database.write() as tx:
                inbox.hasten(tx, OVERDUE_S)
            self._wake(())
        return late

    def _give_another_chance(self) -> None:
        """At the first pass of a life: what was parked may have waited for this version, or for these settings. One
        look each, and no second alert."""
        if self._looked_again:
            return
        with self._database.write() as tx:
            inbox.unpark_all(tx)
        self._looked_again = True

    def _pages(self) -> Iterator[list[OpenDelivery]]:
        after = 0
        while True:
            with self._database.read() as tx:
                page = inbox.open_page(tx, after=after, limit=MAX_PASS)
            if not page:
                return
            yield page
            after = page[-1].inbox_id

    def _due(
        self, row: OpenDelivery, waiting: set[TaskId], free: set[TaskId], counts: dict[str, int]
    ) -> _Due | None:
        """What can be dealt with now. What has to wait lets the later ones of its task wait, too."""
        task_id = row.task_id if row.task_id is not None else self._bind(row.inbox_id)
        if task_id in waiting:
            return None
        if row.due and (task_id is None or task_id in free):
            return _Due(row.inbox_id, task_id)
        if row.due and task_id is not None and self._ownership.free(task_id, Actor.WEBHOOK):
            free.add(task_id)
            return _Due(row.inbox_id, task_id)
        if row.due:
            pause = min(DEFER_S * 2 ** min(row.deferrals, 10), MAX_DEFER_S)
            with self._database.write() as tx:
                inbox.defer(tx, row.inbox_id, self._entropy.jitter(pause))
        counts["deferred"] += 1
        if task_id is not None:
            waiting.add(task_id)
        return None

    def _deal_with(self, due: Sequence[_Due], waiting: set[TaskId], counts: dict[str, int]) -> None:
        """All in one commit; where that fails, each in its own, so that the one in the way pays alone."""
        ids = [one.inbox_id for one in due]
        self._waypoints.reach("inbox.before_handle", inbox=ids)
        ended = self._handle(ids)
        if not isinstance(ended, str):
            self._waypoints.reach("inbox.after_handle", inbox=ids)
            counts["handled"] += len(ended)
            self._wake(sorted({task_id for handled in ended for task_id in handled.wake}))
        elif len(due) > 1:
            for one in due:
                if one.task_id not in waiting:
                    self._deal_with([one], waiting, counts)
        else:
            self._failed(due[0], ended)
            counts["failed"] += 1
            if due[0].task_id is not None:
                waiting.add(due[0].task_id)

    @never_raises(FAULT, log)
    def _handle(self, ids: Sequence[int]) -> list[Handled] | str:
        """Deal with deliveries in one commit; an error of ours is one delivery's, not the queue's (law 9)."""
        ended = []
        try:
            with self._database.read() as tx:
                found = [inbox.open_delivery(tx, inbox_id) for inbox_id in ids]
            deliveries = [self._read(delivery) for delivery in found if delivery is not None]
            with self._database.write() as tx:
                # All of them before any task is held still: services wait for each other at the first that both want.
                still = [delivery for read in deliveries if (delivery := inbox.still_open(tx, read))]
                for delivery in still:
                    ended.append(self._handled(tx, delivery))
                    if not mail.handled(tx, delivery.inbox_id, ended[-1].outcome):
                        raise LostRace(f"delivery {delivery.inbox_id} was closed by another")
        except OrchestratorError as error:
            return str(error)
        return ended

    @never_raises(None, log)
    def _bind(self, inbox_id: int) -> TaskId | None:
        """Its task was not known when it came: if it is now, then the delivery is about what that shows now."""
        with self._database.read() as tx:
            task = self._task(tx, inbox.open_delivery(tx, inbox_id))
        if task is None:
            return None
        with self._database.write() as tx:
            fresh = tasks.get(tx, task.id)
            inbox.bind(tx, inbox_id, fresh, subject_on_show(tx, fresh))
        return task.id

    def _read(self, delivery: Delivery) -> Delivery:
        """With what its handler makes of it while no writer waits."""
        handler = self._handlers.get(delivery.source)
        return replace(delivery, said=handler.read(delivery.kind, delivery.payload)) if handler else delivery

    def _handled(self, tx: Tx, delivery: Delivery) -> Handled:
        handler = self._handlers.get(delivery.source)
        if handler is None:
            return Handled("of no source that this version knows")
        task = self._task(tx, delivery)
        return handler.handle(tx, delivery, task and tasks.held_still(tx, task.id))

    def _task(self, tx: Tx, delivery: Delivery | None) -> Task | None:
        handler = self._handlers.get(delivery.source) if delivery is not None else None
        if delivery is None or handler is None:
            return None
        if delivery.task_id is not None:
            return tasks.get(tx, delivery.task_id)
        return handler.task_of(tx, delivery.kind, delivery.payload)

    def _failed(self, row: _Due, reason: str) -> None:
        with self._database.write() as tx:
            delivery = inbox.open_delivery(tx, row.inbox_id)
            if delivery is None:
                return
            about = tasks.get(tx, row.task_id).work_item if row.task_id is not None else None
            pause = FAILED_PAUSE_S * 2**delivery.attempts
            if inbox.failed(tx, row.inbox_id, reason, self._entropy.jitter(pause)):
                text = (
                    f"A delivery of {delivery.source} ({delivery.kind}, inbox {row.inbox_id}) was looked at "
                    f"{inbox.MAX_ATTEMPTS} times and is parked: {reason}"
                )
                alerts.call(tx, text, "inbox", row.inbox_id, task_id=row.task_id, work_item=about)
        log.warning(
            "delivery not handled",
            task=about,
            inbox=row.inbox_id,
            attempts=delivery.attempts + 1,
            reason=reason,
        )
