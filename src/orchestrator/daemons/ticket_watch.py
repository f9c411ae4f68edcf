"""Watches trackers elsewhere: takes tickets that are marked, and reads what people have said in those that were taken.

What must hold: webhooks only hasten it. Each project is read at least every ``interval_s``, in so far as its server
lets us, and everything that was said is found in the order in which it was said, be it told of never, twice or late;
what is read goes to the inbox under the id that it has there, so that it counts once. Of a project that cannot be read,
and of webhooks that tell nothing any more of what changes while we are up, a person is told once, and again when that
is over.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from orchestrator.db import alerts, tasks, tickets
from orchestrator.db.database import Database
from orchestrator.db.tickets import KnownTicket, TrackerProject
from orchestrator.domain.errors import OrchestratorError, OutsideError
from orchestrator.domain.task import Task, Ticket
from orchestrator.runtime.clock import Clock, parse_stamp, stamp
from orchestrator.trackers.source import (
    FRESH_S,
    ChangedTicket,
    Letter,
    ProjectGone,
    TicketProject,
    TicketSource,
)
from orchestrator.trackers.tracker import TrackerAway
from orchestrator.webhooks.receiving import Receiver

log = structlog.get_logger(__name__)

PASS_S = 5.0  # at the most until the next pass; one that finds nothing due asks nobody
AGAIN_S = 2.0  # until a ticket is read again whose log has not caught up with it
OVERLAP_S = 120.0  # what has changed shortly before the last reading is looked at once more
LOOKS = (
    3  # tickets that are looked at with each reading although nothing is known to have changed: for deletions
)
GONE_S = 900.0  # a project that is gone is asked for no more often
HEARD_S = 60.0  # clocks of two machines, and the way of a webhook


class TicketWatch:
    """One who looks at one tracker."""

    def __init__(
        self,
        database: Database,
        source: TicketSource,
        receiver: Receiver,
        file: Callable[[str, Ticket], Task],
        *,
        interval_s: float,
        silence_s: float | None,
        alert_s: float,
        clock: Clock,
    ) -> None:
        """``file`` makes a task of a ticket; ``silence_s``: for how long webhooks may tell nothing of what has changed,
        None where none are expected."""
        self.name = f"tickets-{source.name}"
        self.interval_s = PASS_S
        self._database = database
        self._source = source
        self._receiver = receiver
        self._file = file
        self._every_s = interval_s
        self._silence_s = silence_s
        self._alert_s = alert_s
        self._clock = clock
        # Webhooks that came before, with nobody here to take them in, may never be sent again.
        self._taken_in_from = clock.utc() + timedelta(seconds=HEARD_S)

    def run_once(self) -> dict[str, int]:
        """Read the tickets that something has hinted at, then the projects whose time has come."""
        counts = {"read": 0, "taken": 0, "heard": 0, "failed": 0}
        self.interval_s = min(PASS_S, self._every_s)
        with self._database.read() as tx:
            hinted = tickets.hinted(tx, self._source.name)
            due = tickets.due(tx, self._source.name)
        try:
            for ticket in hinted:
                self._follow(ticket, counts)
            for project in due:
                with self._database.write() as tx:
                    ours = tickets.claim(tx, project.repo, self._every_s)
                if ours:
                    self._visit(project, counts)
        except TrackerAway as error:  # the server, and so all its projects
            self.interval_s = min(max(error.after_s, 1.0), self._every_s)
        return counts

    # -- a ticket ----------------------------------------------------------------------------------------------

    def _follow(self, ticket: KnownTicket, counts: dict[str, int]) -> None:
        with self._database.write() as tx:
            known = tickets.project_of(tx, ticket.repo)
            claimed = tickets.claim_hints(tx, self._source.name, ticket)
        if known is None or not claimed:
            return
        try:
            self._look(known, self._source.of(known), ticket, counts)
        except OutsideError as error:
            with self._database.write() as tx:
                tickets.soon(tx, ticket.repo, AGAIN_S)  # which finds it, and notices how long this lasts
            if isinstance(error, TrackerAway):
                raise
            counts["failed"] += 1

    def _look(
        self, known: TrackerProject, project: TicketProject, ticket: KnownTicket, counts: dict[str, int]
    ) -> None:
        with self._database.read() as tx:
            task = tasks.newest_by_ticket(tx, self._source.name, ticket.external_id)
        if task is None:
            return
        reading = project.read(ticket.external_id, self._since(ticket), ticket.seen)
        counts["read"] += 1
        if reading is None:
            if not task.stage.terminal:
                self._receive(known, project, [project.gone(ticket.external_id, task.id)], counts)
            self._looked(ticket, None)
            return
        fresh = self._age_s(project, reading.changed_at) < FRESH_S
        if fresh and not reading.settled:
            self._again(ticket)
            return
        self._receive(known, project, list(reading.letters), counts)
        # While it is fresh, the log may be about to tell more of the same change.
        self._looked(ticket, None if fresh else reading.changed_at)

    def _receive(
        self, known: TrackerProject, project: TicketProject, letters: list[Letter], counts: dict[str, int]
    ) -> None:
        for letter in letters:
            received = self._receiver.receive(
                self._source.letters_as, letter.kind, letter.letter_id, letter.payload
            )
            if received.repeated:
                continue
            counts["heard"] += 1
            if letter.at:
                self._note_change(known, parse_stamp(letter.at) - timedelta(seconds=project.ahead_s))

    def _note_change(self, known: TrackerProject, at: datetime) -> None:
        """Something was said at a moment of our clock: a webhook tells of it, if we were here to take it in."""
        if at >= self._taken_in_from:
            with self._database.write() as tx:
                tickets.changed(tx, known.repo, stamp(at))

    def _looked(self, ticket: KnownTicket, seen: str | None) -> None:
        with self._database.write() as tx:
            tickets.looked(tx, self._source.name, ticket.external_id, seen)

    def _again(self, ticket: KnownTicket) -> None:
        with self._database.write() as tx:
            tickets.hint(tx, self._source.name, ticket.external_id)
        self.interval_s = min(self.interval_s, AGAIN_S)

    def _since(self, ticket: KnownTicket) -> str:
        if ticket.seen is None:
            return ticket.since
        return max(ticket.since, stamp(parse_stamp(ticket.seen) - timedelta(seconds=OVERLAP_S)))

    def _age_s(self, project: TicketProject, changed_at: str) -> float:
        now = self._clock.utc() + timedelta(seconds=project.ahead_s)
        return (now - parse_stamp(changed_at)).total_seconds()

    # -- a project ---------------------------------------------------------------------------------------------

    def _visit(self, known: TrackerProject, counts: dict[str, int]) -> None:
        try:
            self._read_project(known, self._source.of(known), counts)
        except OutsideError as error:
            counts["failed"] += 1
            pause = GONE_S if isinstance(error, ProjectGone) else self._every_s
            if isinstance(error, TrackerAway):
                pause = min(error.after_s, pause)
            with self._database.write() as tx:
                tickets.failing(tx, known.repo)
                tickets.put_off(tx, known.repo, max(pause, 1.0))
            self._tell_of_failure(known, str(error))
            if isinstance(error, TrackerAway):
                raise

    def _read_project(self, known: TrackerProject, project: TicketProject, counts: dict[str, int]) -> None:
        user = project.our_user()
        since = known.read_to and stamp(parse_stamp(known.read_to) - timedelta(seconds=OVERLAP_S))
        found = project.changed(since)
        looked, complete = set[str](), True
        for ticket in reversed(found):
            complete &= self._deal_with(known, project, ticket, looked, counts)
        with self._database.read() as tx:
            others = tickets.longest_unseen(tx, known.repo, LOOKS + len(looked))
        for other in [one for one in others if one.external_id not in looked][:LOOKS]:
            self._look(known, project, other, counts)
        newest = max([ticket.changed_at for ticket in found], default=None)
        with self._database.write() as tx:
            tickets.was_read(tx, known.repo, newest if complete else None, user)
        self._tell_of_silence(known)

    def _deal_with(
        self,
        known: TrackerProject,
        project: TicketProject,
        changed: ChangedTicket,
        looked: set[str],
        counts: dict[str, int],
    ) -> bool:
        """False where it has to be dealt with again."""
        name, external_id = self._source.name, changed.external_id
        with self._database.read() as tx:
            task = tasks.newest_by_ticket(tx, name, external_id)
            ticket = tickets.ticket(tx, name, external_id)
        if task is not None and not task.stage.terminal:
            if ticket is None:  # filed by hand, or by a life that ended in between
                with self._database.write() as tx:
                    tickets.take(tx, name, external_id, known.repo, task.created_at)
                    ticket = tickets.ticket(tx, name, external_id)
            if ticket is not None and ticket.seen != changed.changed_at:
                looked.add(external_id)
                self._look(known, project, ticket, counts)
            return True
        if not changed.wanted or (task is not None and not self._reopened(project, ticket, changed)):
            return True
        with self._database.read() as tx:
            if tickets.left(tx, known.repo):
                return True
        return self._take(known, changed, counts)

    def _reopened(self, project: TicketProject, ticket: KnownTicket | None, changed: ChangedTicket) -> bool:
        """Whether a person wants anew what has ended. What we have left open ourselves is no such wish."""
        if ticket is None:
            return False
        reading = project.read(ticket.external_id, ticket.since)
        return reading is not None and reading.reopened

    def _take(self, known: TrackerProject, changed: ChangedTicket, counts: dict[str, int]) -> bool:
        name = self._source.name
        with self._database.write() as tx:
            tickets.take(tx, name, changed.external_id, known.repo, changed.changed_at)
        wish = Ticket(
            changed.title, changed.body, changed.labels, tracker=name, external_id=changed.external_id
        )
        try:
            task = self._file(known.repo, wish)
        except OrchestratorError as error:
            log.warning("ticket not taken", repo=known.repo, ticket=changed.external_id, reason=str(error))
            counts["failed"] += 1
            return False
        log.info("ticket taken", task=task.work_item, ticket=changed.external_id)
        counts["taken"] += 1
        return True

    # -- what people are told ----------------------------------------------------------------------------------

    def _tell_of_failure(self, known: TrackerProject, why: str) -> None:
        with self._database.write() as tx:
            now = tickets.project_of(tx, known.repo)
            since = now.failing_since if now else None
            if since is None or self._passed_s(since) < self._alert_s:
                return
            if tickets.tell(tx, known.repo, tickets.FAILING):
                text = (
                    f"Since {since} the tickets of {known.repo} cannot be read at {known.location}: {why} "
                    "Its tasks go on; what people say there is heard once it can be read again."
                )
                alerts.call(tx, text, "tickets", known.repo, since)

    def _tell_of_silence(self, known: TrackerProject) -> None:
        """After a reading: what was failing is over, and webhooks are judged by what it has shown."""
        with self._database.write() as tx:
            now = tickets.project_of(tx, known.repo)
            if now is None:
                return
            if now.told == tickets.FAILING and tickets.tell(tx, now.repo, None):
                text = f"The tickets of {now.repo} can be read again at {now.location}."
                alerts.call(tx, text, "tickets", now.repo, known.failing_since, "over")
            silent = self._silent(now)
            if silent and tickets.tell(tx, now.repo, tickets.SILENT):
                last = f"the last came at {now.heard_at}" if now.heard_at else "none has ever come"
                text = (
                    f"No webhook of {now.location} tells of {now.repo} any more: {last}, and something has changed at "
                    f"{now.changed_at}. Is the webhook there still active? {self._source.why_silent} "
                    f"Until then tickets are read every {self._every_s:g} s."
                )
                alerts.call(tx, text, "webhooks", now.repo, now.changed_at)
            elif not silent and now.told == tickets.SILENT and tickets.tell(tx, now.repo, None):
                text = f"Webhooks of {now.location} tell of {now.repo} again."
                alerts.call(tx, text, "webhooks", now.repo, now.heard_at, "over")

    def _silent(self, now: TrackerProject) -> bool:
        """Whether something has changed of which a webhook should have told by now."""
        if self._silence_s is None or now.changed_at is None:
            return False
        heard = now.heard_at and stamp(parse_stamp(now.heard_at) + timedelta(seconds=HEARD_S))
        return (heard is None or heard < now.changed_at) and self._passed_s(now.changed_at) > self._silence_s

    def _passed_s(self, since: str) -> float:
        return (self._clock.utc() - parse_stamp(since)).total_seconds()
