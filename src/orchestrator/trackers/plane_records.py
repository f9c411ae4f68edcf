"""What Plane's answers say, read field by field: all of it was written by strangers."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.errors import OutsideError
from orchestrator.rules.trailers import one_line
from orchestrator.runtime.clock import stamp
from orchestrator.trackers.plane_api import mapping, moment, text

ID_LIMIT = 100
NAME_LIMIT = 200
CLOSED = frozenset({"completed", "cancelled"})  # groups of states in which nothing more is done


@dataclass(frozen=True, slots=True)
class PlaneState:
    """A state of a project; its group is one of Plane's own, its name is the people's."""

    id: str
    name: str
    group: str
    sequence: float

    @property
    def closed(self) -> bool:
        """Whether nothing more is done in it."""
        return self.group in CLOSED

    def among(self, wanted: frozenset[str]) -> bool:
        """Whether it is one of these, named in lower case or by id."""
        return self.id in wanted or self.name.lower() in wanted


@dataclass(frozen=True, slots=True)
class PlaneItem:
    """A work item; ``state`` and ``labels`` are ids, ``changed_at`` is a stamp by Plane's clock."""

    id: str
    number: int
    name: str
    html: str
    state: str
    labels: tuple[str, ...]
    changed_at: str


@dataclass(frozen=True, slots=True)
class PlaneMove:
    """Somebody has moved a work item from one state to another; ids. ``at`` is a stamp by Plane's clock."""

    id: str
    actor: str
    old: str
    new: str
    at: str


@dataclass(frozen=True, slots=True)
class PlaneComment:
    """What somebody has written; ``at`` is a stamp by Plane's clock."""

    id: str
    actor: str
    html: str
    at: str


def read_state(told: Mapping[str, object]) -> PlaneState:
    """A state.

    :raises OutsideError: it is none.
    """
    sequence = told.get("sequence")
    name = one_line(text(told, "name")[:NAME_LIMIT])
    return PlaneState(
        identifier(told, "id"),
        name,
        text(told, "group"),
        float(sequence) if isinstance(sequence, int | float) else 0.0,
    )


def read_item(told: Mapping[str, object]) -> PlaneItem:
    """A work item.

    :raises OutsideError: it is none.
    """
    labels, number = told.get("labels"), told.get("sequence_id")
    if not isinstance(labels, list) or not all(isinstance(one, str) for one in labels):
        raise OutsideError("Plane answered a work item without labels.")
    html = told.get("description_html")
    return PlaneItem(
        id=identifier(told, "id"),
        number=number if isinstance(number, int) else 0,
        name=text(told, "name"),
        html=html if isinstance(html, str) else "",
        state=text(told, "state") if told.get("state") is not None else "",
        labels=tuple(labels),
        changed_at=_stamp(told, "updated_at"),
    )


def read_move(told: Mapping[str, object]) -> PlaneMove | None:
    """The move that an activity tells of; None where it tells of something else.

    :raises OutsideError: it says that it is one and is none.
    """
    if told.get("field") != "state" or told.get("new_identifier") is None:
        return None
    old, actor = told.get("old_identifier"), told.get("actor")
    return PlaneMove(
        identifier(told, "id"),
        actor if isinstance(actor, str) else "",
        old if isinstance(old, str) else "",
        identifier(told, "new_identifier"),
        _stamp(told, "created_at"),
    )


def read_comment(told: Mapping[str, object]) -> PlaneComment:
    """A comment. Its actor is whose key or session wrote it; ``created_by`` is whatever was asked for.

    :raises OutsideError: it is none.
    """
    actor, html = told.get("actor"), told.get("comment_html")
    return PlaneComment(
        identifier(told, "id"),
        actor if isinstance(actor, str) else "",
        html if isinstance(html, str) else "",
        _stamp(told, "created_at"),
    )


def read_person(told: object) -> tuple[str, str]:
    """A member's id and name.

    :raises OutsideError: it is none.
    """
    of = mapping(told)
    return identifier(of, "id"), one_line(text(of, "display_name")[:NAME_LIMIT])


def identifier(told: Mapping[str, object], name: str) -> str:
    """An id, fit for a path.

    :raises OutsideError: there is none.
    """
    found = text(told, name)
    if not 0 < len(found) <= ID_LIMIT or not all(c.isascii() and (c.isalnum() or c in "-_") for c in found):
        raise OutsideError(f"Plane answered an {name} that is none.")
    return found


def _stamp(told: Mapping[str, object], name: str) -> str:
    return stamp(moment(text(told, name)))
