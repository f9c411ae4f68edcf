"""What GitHub's answers say of issues, read field by field: all of it was written by strangers. Its times are whole
seconds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.domain.errors import OutsideError
from orchestrator.rest.api import mapping, text
from orchestrator.rules.trailers import one_line
from orchestrator.runtime.clock import moment, stamp

NAME_LIMIT = 100
OPEN, CLOSED = "open", "closed"
STATE_EVENTS = frozenset({"closed", "reopened"})
LABEL_EVENTS = frozenset({"labeled", "unlabeled"})
# Code is shown as it stands; a comment in HTML outside of it nobody sees who reads the issue.
_CODE_OR_COMMENT = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)|<!--.*?(?:-->|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Person:
    """An account: its number, which no renaming changes, and its name. Both are empty where it is gone."""

    id: str
    login: str


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue, or a pull request, which is one there, too. ``changed_at`` is a stamp by GitHub's clock."""

    number: int
    title: str
    body: str
    labels: tuple[str, ...]
    closed: bool
    why_closed: str  # completed, not_planned, or empty
    pull_request: bool
    changed_at: str


@dataclass(frozen=True, slots=True)
class IssueEvent:
    """What somebody has done to an issue; ``label`` is the one that it is about, ``by_words`` says that the words of a
    commit have closed it: its actor is who has brought that commit to the default branch, and says nothing by it."""

    id: str
    kind: str
    actor: Person
    label: str
    at: str
    by_words: bool


@dataclass(frozen=True, slots=True)
class IssueComment:
    """What somebody has written; ``edited``: somebody has changed it since, who need not be the same one."""

    id: str
    author: Person
    body: str
    at: str
    edited: bool


def read_issue(told: Mapping[str, object]) -> Issue:
    """An issue.

    :raises OutsideError: it is none.
    """
    labels = told.get("labels")
    if not isinstance(labels, list):
        raise OutsideError("GitHub answered an issue without labels.")
    body, why = told.get("body"), told.get("state_reason")
    return Issue(
        number=number(told, "number"),
        title=text(told, "title"),
        body=body if isinstance(body, str) else "",
        labels=tuple(_label(one) for one in labels),
        closed=text(told, "state") == CLOSED,
        why_closed=why if isinstance(why, str) else "",
        pull_request=told.get("pull_request") is not None,
        changed_at=_stamp(told, "updated_at"),
    )


def read_event(told: Mapping[str, object]) -> IssueEvent:
    """An event; of kinds that say nothing to us no more is read than that they are there.

    :raises OutsideError: it is none.
    """
    label, kind = told.get("label"), text(told, "event")
    return IssueEvent(
        str(number(told, "id")),
        kind,
        read_person(told.get("actor")),
        _label(label) if label is not None else "",
        _stamp(told, "created_at"),
        by_words=kind == "closed" and told.get("commit_id") is not None,
    )


def read_comment(told: Mapping[str, object]) -> IssueComment:
    """A comment.

    :raises OutsideError: it is none.
    """
    body, at = told.get("body"), _stamp(told, "created_at")
    return IssueComment(
        str(number(told, "id")),
        read_person(told.get("user")),
        body if isinstance(body, str) else "",
        at,
        edited=_stamp(told, "updated_at") != at,
    )


def read_person(told: object) -> Person:
    """An account; nobody where it is gone."""
    if not isinstance(told, dict):
        return Person("", "")
    return Person(str(number(told, "id")), one_line(text(told, "login")[:NAME_LIMIT]))


def number(told: Mapping[str, object], name: str) -> int:
    """A number above zero.

    :raises OutsideError: there is none.
    """
    found = told.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:
        raise OutsideError(f"GitHub answered an {name} that is none.")
    return found


def visible(body: str) -> str:
    """A body as whoever has labelled the issue has seen it: without comments in HTML."""
    return _CODE_OR_COMMENT.sub(lambda found: found[1] or "", body)


def _label(told: object) -> str:
    return one_line((told if isinstance(told, str) else text(mapping(told), "name"))[:NAME_LIMIT])


def _stamp(told: Mapping[str, object], name: str) -> str:
    try:
        return stamp(moment(text(told, name)))
    except ValueError as error:
        raise OutsideError("GitHub answered a time that is none.") from error
