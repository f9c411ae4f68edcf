"""A tracker elsewhere as whoever watches it needs it: what has changed there, and what people have said.

What is read is handed on as letters to the inbox, each once: the adapter's own handler makes a person's word of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.errors import OutsideError

FRESH_S = 30.0  # for so long a tracker's log may be behind its ticket


class ProjectGone(OutsideError):
    """A project is deleted, archived or not ours to see: nothing about its tickets can be told."""


@dataclass(frozen=True, slots=True)
class ChangedTicket:
    """A ticket as it is now; ``wanted``: it is marked to be taken. Hostile text, made plain. ``changed_at`` is a stamp
    by the tracker's clock."""

    external_id: str
    changed_at: str
    wanted: bool
    title: str
    body: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """Something that happened to a ticket. ``letter_id`` is the same whenever it is read; ``at`` is by the tracker's
    clock."""

    kind: str
    letter_id: str
    at: str
    payload: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was said in a ticket, oldest first, and up to which change of it.

    ``settled``: the tracker's log has caught up with the ticket. ``reopened``: a person has opened it again.
    """

    changed_at: str
    letters: tuple[Letter, ...]
    settled: bool
    reopened: bool


class TicketProject(Protocol):
    """One project. Everything raises ``TrackerAway`` where the server takes nothing now, and another ``OutsideError``
    where this project cannot be read."""

    @property
    def ahead_s(self) -> float:
        """How far the tracker's clock is ahead of ours, in seconds."""
        ...

    def our_user(self) -> str:
        """The id of our own user there."""
        ...

    def changed(self, since: str | None) -> list[ChangedTicket]:
        """What has changed after a moment by the tracker's clock; at first everything. Newest change first."""
        ...

    def read(self, external_id: str, since: str, known: str | None = None) -> Reading | None:
        """What has happened to a ticket after a moment by the tracker's clock; None where it is gone for good. Where
        ``known`` still is its last change, nothing more is asked."""
        ...

    def gone(self, external_id: str, task_id: int) -> Letter:
        """What is said of a task whose ticket is gone."""
        ...


class TicketSource(Protocol):
    """One tracker."""

    name: str
    letters_as: str  # the inbox's name for what was read there
    why_silent: str  # why its webhooks may have ended, in a sentence for people

    def of(self, known: TrackerProject) -> TicketProject:
        """A project that is connected.

        :raises OutsideError: it is not at the configured server.
        """
        ...
