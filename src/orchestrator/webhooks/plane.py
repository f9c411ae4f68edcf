"""Plane: what people say in a ticket, made a signal for the engine (S-10).

Where a ticket is of a project that is connected, a webhook is a hint: it has the ticket read, and what is read there
comes to the inbox as letters of a source of its own. Where it is not, the webhook itself is all there is.

Approved and Confirm Deploy come as a move of the ticket into a state that is configured for it, or as a comment that
begins with a command; a ticket that is cancelled or deleted asks for a cancel. What our own user does is recognised
and ignored. A word counts for what was on show when it came; one that is older than what is shown, or that the person
has taken back by moving the ticket on, is recorded and answered, not applied (law 7).
"""

from collections.abc import Container
from dataclasses import dataclass

from orchestrator.db import inbox, tasks, tickets
from orchestrator.db.database import Tx
from orchestrator.db.inbox import Delivery
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.task import Task
from orchestrator.rules.transitions import APPROVED, CONFIRM_DEPLOY
from orchestrator.stage_engine.signals import CANCEL
from orchestrator.webhooks import fields, words
from orchestrator.webhooks.asking import OURS, have_read
from orchestrator.webhooks.comments import Command, command_in
from orchestrator.webhooks.envelope import Envelope
from orchestrator.webhooks.handler import Handled
from orchestrator.webhooks.words import Word

TRACKER = "plane"
READ = "plane-read"  # the source of what was read at Plane itself
TICKETS = ("issue", "issue_comment")
STATE_FIELDS = frozenset({"state", "state_id"})  # by the API, by a person's page
NOT_OURS = Handled("about no task of ours")
NOTHING = Handled("nothing to do")
NOBODY_KNOWN = "ORCH_PLANE_USER is not set, so that our own doing cannot be told from a person's"


@dataclass(frozen=True, slots=True)
class PlaneStates:
    """Which states of a ticket are a person's word: names in lower case, or ids."""

    approved: Container[str]
    confirm_deploy: Container[str]


class PlaneHandler:
    """Deliveries of kind ``issue`` and ``issue_comment``; of others nothing follows."""

    source = TRACKER
    envelope = Envelope(
        signature=("x-plane-signature",),
        kind=("x-plane-event",),
        delivery=("x-plane-delivery",),
        kind_in_body="event",
    )

    def __init__(self, *, user: str, states: PlaneStates, source: str = TRACKER) -> None:
        """``user`` is the id of our own user; without it our own acts cannot be told from a person's. What was read at
        Plane says for itself who that is."""
        self.source = source
        self._known_user = user
        self._states = states

    def task_of(self, tx: Tx, kind: str, payload: object) -> Task | None:
        """The ticket's task: the open one, else the last."""
        ticket = fields.at(payload, "data", "id" if kind == "issue" else "issue")
        if kind not in TICKETS or not isinstance(ticket, str):
            return None
        known = fields.clean(ticket)[: fields.ID_LIMIT]
        return tasks.newest_by_ticket(tx, TRACKER, known)

    def read(self, kind: str, payload: object) -> Command | None:
        """The command of a new comment. What is edited later was no command when it was read."""
        html = fields.at(payload, "data", "comment_html")
        new = kind == "issue_comment" and fields.text(payload, "action") == "created"
        return command_in(html) if new and isinstance(html, str) else None

    def handle(self, tx: Tx, delivery: Delivery, task: Task | None) -> Handled:
        """See :class:`~orchestrator.webhooks.handler.WebhookHandler`."""
        place = self._connected(tx, delivery, task)
        if place is not None:
            ours = _actor(delivery.payload) in {place.our_user, self._known_user} - {None, ""}
            return have_read(tx, place, task, ours=ours)
        if delivery.kind not in TICKETS:
            return NOTHING
        if task is None:
            fields.identifier(delivery.payload, "data", "id")
            return NOT_OURS
        user = self._user(delivery)
        if user and _actor(delivery.payload) == user:
            return OURS
        if delivery.kind == "issue":
            return self._ticket(tx, delivery, task)
        return self._comment(tx, delivery, task)

    def _connected(self, tx: Tx, delivery: Delivery, task: Task | None) -> TrackerProject | None:
        """The project that a webhook is about, where that is read; None for what was read there."""
        if self.source == READ:
            return None
        named = fields.at(delivery.payload, "data", "id" if delivery.kind == "project" else "project")
        if isinstance(named, str):
            return tickets.project(tx, TRACKER, fields.clean(named)[: fields.ID_LIMIT])
        return tickets.project_of(tx, task.repo) if task is not None else None

    def _user(self, delivery: Delivery) -> str:
        return fields.text(delivery.payload, "our_user") if self.source == READ else self._known_user

    def _ticket(self, tx: Tx, delivery: Delivery, task: Task) -> Handled:
        payload = delivery.payload
        action = fields.text(payload, "action")
        if action == "deleted":
            word = Word(CANCEL, _person(payload), "", "the ticket was deleted")
            return self._take(tx, delivery, task, word)
        if action != "updated" or fields.text(payload, "activity", "field") not in STATE_FIELDS:
            return NOTHING
        value = fields.identifier(payload, "activity", "new_value")
        said_at = _moment(payload, "updated_at")
        meant = self._meaning(payload, value, said_at)
        if meant is None:
            return NOTHING
        if self._moved_on(tx, delivery, value, said_at):
            return words.refuse(tx, delivery, task, meant, "the ticket has been moved on since")
        return self._take(tx, delivery, task, meant)

    def _moved_on(self, tx: Tx, delivery: Delivery, value: str, said_at: str) -> bool:
        """Whether somebody has thought better of it. What we do to the ticket ourselves takes nobody's word back; where
        ``data`` shows another state already and nothing tells whose doing that is, it counts as a person's."""
        later, user = inbox.moves_since(tx, delivery, said_at), self._user(delivery)
        ours = {move.value for move in later if user and move.actor == user}
        now = fields.text(delivery.payload, "data", "now") or fields.text(
            delivery.payload, "data", "state", "id"
        )
        by_others = [move for move in later if not user or move.actor != user]
        return now not in (value, *ours) or any(move.value != value for move in by_others)

    def _meaning(self, payload: object, value: str, said_at: str) -> Word | None:
        """What a state says. Its name is that of ``data``, which may already be of a later move: then the id counts."""
        same = fields.text(payload, "data", "state", "id") == value
        name = fields.text(payload, "data", "state", "name") if same else ""
        said = {value, name.lower()} - {""}
        person = _person(payload)
        for kind, states in (
            (APPROVED, self._states.approved),
            (CONFIRM_DEPLOY, self._states.confirm_deploy),
        ):
            if any(one in states for one in said):
                return Word(kind, person, said_at)
        if same and fields.text(payload, "data", "state", "group") == "cancelled":
            return Word(CANCEL, person, said_at, f"the ticket was moved to {name}")
        return None

    def _comment(self, tx: Tx, delivery: Delivery, task: Task) -> Handled:
        asked = delivery.said
        if not isinstance(asked, Command):
            return NOTHING
        said_at = _moment(delivery.payload, "created_at")
        word = words.asked_for(delivery, asked, _person(delivery.payload), said_at)
        if asked.work_item is not None and asked.work_item != task.work_item:
            return words.refuse(tx, delivery, task, word, f"this ticket is {task.work_item}")
        return self._take(tx, delivery, task, word)

    def _take(self, tx: Tx, delivery: Delivery, task: Task, word: Word) -> Handled:
        ahead = fields.at(delivery.payload, "ahead_s") if self.source == READ else None
        return words.take(
            tx,
            delivery,
            task,
            word,
            via=TRACKER,
            ahead_s=ahead if isinstance(ahead, int | float) else 0.0,
            objection=None if self._user(delivery) else NOBODY_KNOWN,
        )


def _actor(payload: object) -> str:
    return fields.text(payload, "activity", "actor", "id")


def _person(payload: object) -> str:
    named = fields.text(payload, "activity", "actor", "display_name")
    return named or _actor(payload) or "somebody at Plane"


def _moment(payload: object, name: str) -> str:
    said = fields.text(payload, "data", name)
    words.parsed(said)
    return said
