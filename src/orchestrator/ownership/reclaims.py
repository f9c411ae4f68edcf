"""Takes leases away from owners that are dead or hung, observably (law 6, FR-3, FR-6).

What must hold: the epoch rises and the row goes in one commit with an event, a lesson and an alert, so that an owner
that wakes up changes nothing; only exactly what was judged is taken; one broken row holds up no other.
"""

import threading
from dataclasses import dataclass
from enum import StrEnum

import structlog

from orchestrator.db import alerts, events, leases, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.db.leases import Held, LeaseRow
from orchestrator.domain.errors import LostRace, NotFound, OrchestratorError, OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId, TaskId
from orchestrator.domain.lease import Actor, why_not_believed
from orchestrator.domain.scope import Scope
from orchestrator.domain.task import Task
from orchestrator.finalizer_liveness import FinalizerLiveness, Finalizing
from orchestrator.observability.never_raise import never_raises
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.ownership.judge import Judge, age_s, warn_if_odd
from orchestrator.ownership.term import Term
from orchestrator.runtime.clock import Clock

log = structlog.get_logger(__name__)

KNOWN_OWNERS = frozenset(actor.value for actor in Actor)


class Why(StrEnum):
    """What kind of reclaim it was; counted apart."""

    STALE = "stale"  # its owner is dead
    FORCED = "forced"  # its owner lives and hangs, or a person said so


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """A lease that was taken away."""

    task_id: TaskId
    work_item: str | None  # None: a row for a task that does not exist
    why: Why
    owner: str
    since: str | None
    own: bool  # a thread of this very process had it


@dataclass(frozen=True, slots=True)
class Case:
    """Who is to lose a task, and why. ``held``: the durable row; ``entry``: what a thread of this process does."""

    task_id: TaskId
    actor: Actor
    why: Why
    reason: str
    held: Held | None
    entry: Finalizing | None
    person: str = ""

    def owner(self) -> str:
        """As people read it; what is no actor is quoted and cut, for anything may be in the row."""
        if self.held is None:
            return self.entry.owner.value if self.entry else "nobody"
        named = self.held.row.owner
        return named if named in KNOWN_OWNERS else ascii(named)[:60]


class Reclaims:
    """Of one process."""

    def __init__(
        self,
        database: Database,
        *,
        boot_id: BootId,
        judge: Judge,
        liveness: FinalizerLiveness,
        term: Term,
        scope: Scope,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._database = database
        self._boot_id = boot_id
        self._judge = judge
        self._liveness = liveness
        self._term = term
        self._scope = scope
        self._clock = clock
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(Why, 0)
        self._seen: dict[
            TaskId, tuple[Held, float]
        ] = {}  # leases of the last pass, and since when they are known

    def counts(self) -> dict[Why, int]:
        """How many there were."""
        with self._lock:
            return dict(self._counts)

    def sweep(self, actor: Actor, max_held_s: float, of: Scope) -> list[Reclaimed]:
        """Look at every lease ``of`` these repositories: take those of dead owners, and of owners that have had one for
        longer than ``max_held_s``, whoever they are.
        """
        cases = [*self._stored(actor, max_held_s), *self._own(actor, max_held_s)]
        return [
            done for case in cases if self._covered(case, of) and (done := self.take_away(case)) is not None
        ]

    def _covered(self, case: Case, of: Scope) -> bool:
        with self._database.read() as tx:
            known = _known(tx, case.task_id)
        return known is None or of.covers(known.repo)  # what belongs to no task is nobody's to leave alone

    @never_raises(None, log)
    def of_person(self, task_id: TaskId, person: str, reason: str) -> Case | None:
        """The case of a person who takes a task from its owner; None where it has none."""
        with self._database.read() as tx:
            known = _known(tx, task_id)
            leased = known is not None and self._scope.covers(known.repo)
            held = leases.held(tx, task_id, self._term.process_ttl_s) if leased else None
        entry = self._liveness.get(task_id) if held is None else self._entry_of(held.row)
        if held is None and entry is None:
            return None
        said = reason or "released by a person"
        return Case(task_id, Actor.OPERATOR, Why.FORCED, said, held, entry, person)

    def take_away(self, case: Case) -> Reclaimed | None:
        """Do it; None where it is not what was judged any more, or could not be stored."""
        try:
            with self._database.write() as tx:
                known = _known(tx, case.task_id)
                if known is not None and (odd := why_not_believed(known.epoch)) is not None:
                    raise OutsideError(f"{known.work_item}: {odd}")
                if case.held is not None:
                    _remove(tx, case, case.held, self._term.process_ttl_s)
                if known is not None:
                    epoch = case.held.epoch if case.held else known.epoch
                    if not leases.fence(tx, known.id, epoch):
                        raise LostRace(f"the epoch is no longer {epoch}")
                    tell(tx, case, known, epoch + 1)
        except LostRace as lost:
            log.info("lease not reclaimed", task_id=case.task_id, reason=str(lost))
            return None
        except OrchestratorError as error:
            log.warning("lease not reclaimed", task_id=case.task_id, reason=str(error))
            return None
        if case.entry is not None:
            self._liveness.end(case.task_id, case.entry)
        self.count(case)
        since = case.held.row.acquired_at if case.held else None
        work_item = known.work_item if known else None
        return Reclaimed(case.task_id, work_item, case.why, case.owner(), since, case.entry is not None)

    def count(self, case: Case) -> None:
        """One more, once it is stored; with a warning, for somebody's work was cut off."""
        with self._lock:
            self._counts[case.why] += 1
        stale = case.why is Why.STALE
        metric = Metric.LEASE_RECLAIMED_STALE if stale else Metric.LEASE_RECLAIMED_FORCED
        self._telemetry.count(metric, case.actor)
        log.warning(
            "lease reclaimed",
            task_id=case.task_id,
            kind=case.why.value,
            owner=case.owner(),
            by=case.actor.value,
            reason=case.reason,
        )

    def _stored(self, actor: Actor, max_held_s: float) -> list[Case]:
        """The rows whose owner has to lose them."""
        if not self._scope.enabled:
            self._seen = {}
            return []
        read_at = self._clock.boottime()
        with self._database.read() as tx:
            found = [leases.held(tx, row.task_id, self._term.process_ttl_s) for row in leases.all_rows(tx)]
        rows = [
            held for held in found if held and (held.row.repo is None or self._scope.covers(held.row.repo))
        ]
        for held in rows:
            if held.row.task_id not in self._seen:
                warn_if_odd(held.row)
        self._seen = {held.row.task_id: self._first_seen(held, read_at) for held in rows}
        judged = ((held, self._sentence(held, read_at, max_held_s)) for held in rows)
        return [
            Case(held.row.task_id, actor, why, reason, held, self._entry_of(held.row))
            for held, verdict in judged
            if verdict is not None
            for why, reason in [verdict]
        ]

    def _sentence(self, held: Held, read_at: float, max_held_s: float) -> tuple[Why, str] | None:
        too_long = f"it was held for more than {max_held_s:g} s (backstop)"
        if held.row.owner_boot_id == self._boot_id:
            entry = self._liveness.get(held.row.task_id)
            if entry is None:  # giving it back had failed
                return Why.STALE, "nobody of its process is at it any more"
            return (Why.FORCED, too_long) if read_at - entry.started_ts > max_held_s else None
        if self._judge.replaceable(held, read_at):
            return Why.STALE, "its owner is dead"
        if self._held_for(held, read_at) > max_held_s and not self._term.apart():
            return Why.FORCED, too_long
        return None

    def _own(self, actor: Actor, max_held_s: float) -> list[Case]:
        """Threads of this process that hang and have no row: out of scope, or hung before there was one."""
        now = self._clock.boottime()
        reason = f"a thread was at it for more than {max_held_s:g} s (backstop)"
        return [
            Case(task_id, actor, Why.FORCED, reason, None, entry)
            for task_id, entry in self._liveness.snapshot().items()
            if now - entry.started_ts > max_held_s
            and not (task_id in self._seen and self._seen[task_id][0].row.owner_boot_id == self._boot_id)
        ]

    def _entry_of(self, row: LeaseRow) -> Finalizing | None:
        return self._liveness.get(row.task_id) if row.owner_boot_id == self._boot_id else None

    def _first_seen(self, held: Held, now: float) -> tuple[Held, float]:
        known = self._seen.get(held.row.task_id)
        if known is not None and (known[0].row, known[0].epoch) == (held.row, held.epoch):
            return known
        return held, now

    def _held_for(self, held: Held, now: float) -> float:
        """By the database's clock; where that says nothing sensible, since we ourselves have known it."""
        age = age_s(held.row, held.read_at)
        return max(age if age is not None else 0.0, now - self._seen[held.row.task_id][1])


def _known(tx: Tx, task_id: TaskId) -> Task | None:
    try:
        return tasks.get(tx, task_id)
    except NotFound:  # the row of a task that does not exist: people and other versions write that table, too
        return None


def _remove(tx: Tx, case: Case, held: Held, ttl_s: float) -> None:
    """Take exactly the judged row away; a dead owner's only if nothing has been heard of it since."""
    now = leases.held(tx, held.row.task_id, ttl_s)
    if now is None or (case.why is Why.STALE and now.process != held.process):
        raise LostRace("the lease changed between judging and taking it away")
    if not leases.remove(tx, held.row):
        raise LostRace("the lease row changed between judging and taking it away")


def tell(tx: Tx, case: Case, task: Task, epoch: int) -> None:
    """The event, the lesson and the alert of a reclaim, in its own commit (FR-6)."""
    row = case.held.row if case.held else None
    data = {
        "from": case.owner(),
        "since": row.acquired_at if row else None,
        "pid": row.owner_pid if row else None,
        "kind": case.why,
        "reason": case.reason,
        "person": case.person,
    }
    events.append(tx, EventType.LEASE_RECLAIMED, case.actor, task=task, epoch=epoch, data=data)
    by = case.person or case.actor.value
    text = f"{task.work_item}: the lease of {case.owner()} in {task.stage} was taken away by {by}: {case.reason}."
    events.lesson(tx, f"{case.why}-reclaim", text, task_id=task.id)
    alerts.call(tx, text, "lease", task.work_item, epoch, task_id=task.id, work_item=task.work_item)
