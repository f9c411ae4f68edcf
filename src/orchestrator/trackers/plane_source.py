"""What has changed at a Plane, and what people have said there, read at Plane itself.

A state's move is taken from the activity log, which knows who made it and when; the state that a ticket shows now does
not. The log is written by a worker there, a moment after the ticket has changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.rules.html_text import readable
from orchestrator.rules.trailers import one_line
from orchestrator.trackers.plane_project import PlaneProject
from orchestrator.trackers.plane_records import PlaneComment, PlaneItem, PlaneMove, PlaneState
from orchestrator.trackers.source import ChangedTicket, Letter, Reading

TITLE_LIMIT = 300
BODY_LIMIT = 100_000  # characters, as HTML twice that
COMMENT_LIMIT = 20_000  # characters of HTML; a command is looked for in no more
LABELS = 40
UNTITLED = "(no title)"


@dataclass(frozen=True, slots=True)
class Marks:
    """What has a ticket taken: names in lower case, or ids."""

    labels: frozenset[str]
    states: frozenset[str]


class PlaneTickets:
    """Implements ``trackers.source.TicketProject``."""

    def __init__(self, project: PlaneProject, marks: Marks) -> None:
        self._project = project
        self._marks = marks

    @property
    def ahead_s(self) -> float:
        """How far Plane's clock is ahead of ours."""
        return self._project.server.ahead_s

    def our_user(self) -> str:
        """The id of our own user there."""
        return self._project.server.me()

    def changed(self, since: str | None) -> list[ChangedTicket]:
        """See :class:`~orchestrator.trackers.source.TicketProject`."""
        items = self._project.changed(since)
        if any(item.state not in self._project.states() for item in items) or any(
            label not in self._project.labels() for item in items for label in item.labels
        ):
            self._project.forget()
        return [self._ticket(item) for item in items]

    def read(self, external_id: str, since: str, known: str | None = None) -> Reading | None:
        """See :class:`~orchestrator.trackers.source.TicketProject`."""
        item = self._project.item(external_id)  # before its log: what the log shows beyond it is no older
        if item is None:
            return None
        if item.changed_at == known:
            return Reading(item.changed_at, (), settled=True, reopened=False)
        moves = self._project.moves(external_id, since)
        states = self._project.states()
        if any(move.new not in states for move in moves):
            self._project.forget()
            states = self._project.states()
        comments = self._project.comments(external_id, since)
        letters = [*self._moves(item, moves, states), *self._comments(item, comments)]
        return Reading(
            item.changed_at,
            tuple(sorted(letters, key=lambda letter: (letter.at, letter.letter_id))),
            settled=not moves or moves[0].new == item.state,
            reopened=any(self._reopens(move, states) for move in moves[:1]),
        )

    def gone(self, external_id: str, task_id: int) -> Letter:
        """See :class:`~orchestrator.trackers.source.TicketProject`."""
        payload = self._payload("issue", "deleted", {"id": external_id}, "")
        return Letter("issue", f"gone-{task_id}", "", payload)

    def _ticket(self, item: PlaneItem) -> ChangedTicket:
        labels, state = self._project.labels(), self._project.states().get(item.state)
        names = tuple(one_line(labels[one])[:100] for one in item.labels if one in labels)[:LABELS]
        marked = bool({*item.labels, *(name.lower() for name in names)} & self._marks.labels)
        at_start = state is not None and state.among(self._marks.states)
        body = readable(item.html[: 2 * BODY_LIMIT]).replace("\0", "\ufffd")
        return ChangedTicket(
            external_id=item.id,
            changed_at=item.changed_at,
            wanted=(marked or at_start) and state is not None and not state.closed,
            title=one_line(item.name)[:TITLE_LIMIT] or UNTITLED,
            body="\n".join(line.strip() for line in body.strip().splitlines())[:BODY_LIMIT],
            labels=names,
        )

    def _moves(
        self, item: PlaneItem, moves: Sequence[PlaneMove], states: Mapping[str, PlaneState]
    ) -> Iterator[Letter]:
        for move in moves:
            state = states.get(move.new)
            shown = {"id": move.new, "name": state.name, "group": state.group} if state else {"id": move.new}
            data = {"id": item.id, "updated_at": move.at, "state": shown, "now": moves[0].new}
            more = {"field": "state", "new_value": move.new, "old_value": move.old}
            payload = self._payload("issue", "updated", data, move.actor, more)
            yield Letter("issue", f"move-{move.id}", move.at, payload)

    def _comments(self, item: PlaneItem, comments: Sequence[PlaneComment]) -> Iterator[Letter]:
        for one in comments:
            if one.actor != self.our_user():
                html = one.html[:COMMENT_LIMIT]
                data = {"id": one.id, "issue": item.id, "comment_html": html, "created_at": one.at}
                payload = self._payload("issue_comment", "created", data, one.actor)
                yield Letter("issue_comment", f"comment-{one.id}", one.at, payload)

    def _payload(
        self,
        event: str,
        action: str,
        data: Mapping[str, object],
        actor: str,
        activity: Mapping[str, object] | None = None,
    ) -> dict[str, object]:
        """As a webhook would tell of it, with what only a reader knows."""
        person = {"id": actor, "display_name": self._project.people().get(actor, "") if actor else ""}
        return {
            "event": event,
            "action": action,
            "our_user": self.our_user(),
            "ahead_s": self.ahead_s,
            "data": dict(data),
            "activity": {**(activity or {}), "actor": person},
        }

    def _reopens(self, move: PlaneMove, states: Mapping[str, PlaneState]) -> bool:
        old, new = states.get(move.old), states.get(move.new)
        if old is None or new is None or move.actor == self.our_user():
            return False
        return old.closed and not new.closed
