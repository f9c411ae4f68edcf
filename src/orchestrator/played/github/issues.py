"""The issues of one repository: what people and programs do to them, and the events that this leaves."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

# As GitHub finds them in commits on the default branch and in the description of a pull request.
CLOSING = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+(?:[\w.-]+/[\w.-]+#|#|GH-|https?://\S+/issues/)(\d+)",
    re.IGNORECASE,
)


@dataclass(kw_only=True)
class Event:
    """One of those that the server keeps of an issue."""

    number: int
    kind: str
    actor: str
    at: str
    label: str | None = None
    commit: str | None = None
    reason: str | None = None


@dataclass(kw_only=True)
class Comment:
    """One comment."""

    number: int
    user: str
    body: str
    created: str
    updated: str


@dataclass(kw_only=True)
class Issue:
    """One issue; ``gone`` is where to: nowhere, or another repository."""

    number: int
    title: str
    body: str | None
    user: str
    created: str
    updated: str
    labels: list[str] = field(default_factory=list)
    state: str = "open"
    reason: str | None = None
    closed: str | None = None
    locked: bool = False
    gone: str = ""  # deleted, transferred
    events: list[Event] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)


class Board:
    """All of a repository's. Labels are the same in any case; what is put on an issue and is not there is made."""

    def __init__(
        self,
        tell: Callable[[str, dict[str, Any]], None],
        next_number: Callable[[], int],
        now: Callable[[], datetime],
    ) -> None:
        self.all: list[Issue] = []
        self.labels: dict[str, dict[str, str]] = {}
        self.on = True
        self._tell = tell
        self._next_number = next_number
        self._now = now
        self._ids = 0

    def find(self, number: str) -> Issue | None:
        return next((issue for issue in self.all if str(issue.number) == number), None)

    def file(self, title: str, *labels: str, body: str | None = None, by: str) -> Issue:
        at = self._stamp()
        issue = Issue(
            number=self._next_number(), title=title, body=body, user=by, created=at, updated=at
        )  # fmt: skip
        self.all.append(issue)
        self._told(issue, "opened", by)
        for label in labels:
            self.label(issue, label, by=by)
        return issue

    def edit(self, issue: Issue, *, title: str | None = None, body: str | None = None, by: str) -> None:
        issue.title, issue.body = title or issue.title, body if body is not None else issue.body
        self._touch(issue)
        self._told(issue, "edited", by)

    def make_label(self, name: str, color: str = "ededed", description: str | None = None) -> dict[str, str]:
        return self.labels.setdefault(
            name.lower(), {"name": name, "color": color, "description": description or ""}
        )

    def label(self, issue: Issue, name: str, *, by: str) -> None:
        name = self.make_label(name)["name"]
        if name not in issue.labels:
            issue.labels.append(name)
            self._event(issue, "labeled", by, label=name)

    def unlabel(self, issue: Issue, name: str, *, by: str) -> bool:
        found = next((label for label in issue.labels if label.lower() == name.lower()), None)
        if found is None:
            return False
        issue.labels.remove(found)
        self._event(issue, "unlabeled", by, label=found)
        return True

    def close(self, issue: Issue, reason: str = "completed", *, by: str, commit: str | None = None) -> None:
        fresh = issue.state == "open"
        issue.state, issue.reason, issue.closed = "closed", reason, issue.closed or self._stamp()
        if fresh:
            self._event(issue, "closed", by, commit=commit, reason=reason)
        else:
            self._touch(issue)

    def reopen(self, issue: Issue, *, by: str) -> None:
        if issue.state == "closed":
            issue.state, issue.reason, issue.closed = "open", "reopened", None
            self._event(issue, "reopened", by)

    def lock(self, issue: Issue, *, by: str) -> None:
        issue.locked = True
        self._event(issue, "locked", by)

    def comment(self, issue: Issue, body: str, *, by: str) -> Comment:
        at = self._stamp()
        made = Comment(number=self._id(), user=by, body=body, created=at, updated=at)
        issue.comments.append(made)
        issue.updated = at
        self._tell("issue_comment", {"action": "created", "issue": issue, "comment": made, "by": by})
        return made

    def edit_comment(self, issue: Issue, comment: Comment, body: str, *, by: str) -> None:
        comment.body, comment.updated = body, self._stamp()
        issue.updated = comment.updated
        self._tell("issue_comment", {"action": "edited", "issue": issue, "comment": comment, "by": by})

    def leave(self, issue: Issue, how: str, *, by: str) -> None:
        """``how``: deleted, or transferred."""
        issue.gone = how
        self._told(issue, how, by)

    def close_by_words(self, text: str, *, by: str, commit: str) -> None:
        """What a commit on the default branch, or a merged pull request, says of issues."""
        for number in CLOSING.findall(text):
            issue = self.find(number)
            if issue is not None and issue.state == "open" and not issue.gone:
                self.close(issue, by=by, commit=commit)

    def _event(self, issue: Issue, kind: str, by: str, **more: Any) -> None:
        issue.events.append(Event(number=self._id(), kind=kind, actor=by, at=self._stamp(), **more))
        self._touch(issue)
        self._told(issue, kind, by, label=more.get("label"))

    def _told(self, issue: Issue, action: str, by: str, **more: Any) -> None:
        self._tell("issues", {"action": action, "issue": issue, "by": by, **more})

    def _touch(self, issue: Issue) -> None:
        issue.updated = self._stamp()

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _id(self) -> int:
        self._ids += 1
        return self._ids
