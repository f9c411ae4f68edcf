"""The tracker for tickets that are issues at GitHub.

What must hold: a comment is there once, however often it is sent: GitHub compares no id of ours, so that each bears a
mark and is looked for before it is sent. What the issue shows is read before it is written, and a person's later move
stays. GitHub cannot compare and swap: a move that falls between our look and our write is overwritten, stands among the
issue's events, and is heard as that person's word all the same. Why so: docs/decisions/0020-github-issues.md.

What is told is kept beside the database as well, as for tickets of our own: ``orch task show`` reads it there.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from http import HTTPStatus

import structlog

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.observability.redactor import Redactor
from orchestrator.rest.api import Answer, refusal
from orchestrator.runtime.clock import parse_stamp, stamp
from orchestrator.trackers.github_issues import Issues
from orchestrator.trackers.github_labels import is_ours, relabelling
from orchestrator.trackers.github_records import (
    CLOSED,
    LABEL_EVENTS,
    OPEN,
    STATE_EVENTS,
    Issue,
    IssueEvent,
)
from orchestrator.trackers.github_text import as_comment, hidden, numbered
from orchestrator.trackers.telling import about_stage, message_mark
from orchestrator.trackers.tracker import Tracker

log = structlog.get_logger(__name__)

NAME = "github"
CLOSED_AS = {Stage.DONE: "completed", Stage.CANCELLED: "not_planned"}
OVERLAP = timedelta(minutes=2)  # before the task was filed nobody has said anything of it; clocks differ
_GONE = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


class GitHubTracker:
    """Implements ``trackers.tracker.Tracker`` for all repositories whose tickets are issues at GitHub."""

    name = NAME

    def __init__(
        self,
        issues_of: Callable[[Task], Issues],
        kept: Tracker,
        redactor: Redactor,
        *,
        pull_request: Callable[[Task], str | None],
    ) -> None:
        """``kept`` is told everything first; ``pull_request`` is the address of a task's, if it has one."""
        self._issues_of = issues_of
        self._kept = kept
        self._redactor = redactor
        self._pull_request = pull_request

    def show_stage(
        self, task: Task, stage: Stage, message_id: str, *, reason: str = "", said_at: str = ""
    ) -> None:
        """Label the issue, close it at the end, and say so in a comment; see
        :class:`~orchestrator.trackers.tracker.Tracker`."""
        self._kept.show_stage(task, stage, message_id, reason=reason, said_at=said_at)
        issues, number = self._issues_of(task), _number(task)
        issue = issues.issue(number)
        if issue is None:
            log.info("ticket is gone", task=task.work_item)
            return
        events = _Events(issues.events(number), issues.me(), _there(said_at, issues.ahead_s))
        self._label(issues, issue, stage, events)
        self._open_or_close(issues, issue, stage, events)
        url = self._pull_request(task) if stage is Stage.REVIEW else None
        self._say(task, about_stage(task.work_item, stage, reason), message_id, url)

    def comment(self, task: Task, text: str, message_id: str) -> None:
        """Leave a comment; see :class:`~orchestrator.trackers.tracker.Tracker`."""
        self._kept.comment(task, text, message_id)
        self._say(task, text, message_id, None)

    def _label(self, issues: Issues, issue: Issue, stage: Stage, events: "_Events") -> None:
        wanted = relabelling(stage, issue.labels)
        if events.relabelled_later():
            return
        if wanted.add is not None:
            _done(issues, issue, issues.add_label(issue.number, wanted.add), f"label the issue {wanted.add}")
        for label in wanted.remove:
            told = issues.remove_label(issue.number, label)
            if told.status != HTTPStatus.NOT_FOUND:  # somebody was quicker
                _done(issues, issue, told, f"take the label {label} from the issue")

    def _open_or_close(self, issues: Issues, issue: Issue, stage: Stage, events: "_Events") -> None:
        wanted = CLOSED_AS.get(stage)
        if wanted is None:
            # By a commit that says so in the words of an agent, or by us: it is not at its end yet.
            if issue.closed and events.closed_by_no_person():
                _done(issues, issue, issues.set_state(issue.number, OPEN, "reopened"), "open the issue again")
            return
        if events.moved_later() or (issue.closed and issue.why_closed == wanted):
            return
        by_a_person = issue.closed and not events.closed_by_no_person()
        if by_a_person and stage is Stage.CANCELLED:  # who has said why
            return
        _done(issues, issue, issues.set_state(issue.number, CLOSED, wanted), f"close the issue as {wanted}")

    def _say(self, task: Task, text: str, message_id: str, url: str | None) -> None:
        issues, number = self._issues_of(task), _number(task)
        mark, ours = message_mark(task, message_id), issues.me()
        if issues.issue(number) is None:
            log.info("ticket is gone", task=task.work_item)
            return
        since = stamp(parse_stamp(task.created_at) + timedelta(seconds=issues.ahead_s) - OVERLAP)
        said = issues.comments(number, since)
        if any(one.author.id == ours and hidden(mark) in one.body for one in said):
            return
        told = issues.comment(number, as_comment(self._redactor.text(text), mark, url))
        if not told.ok and not (told.status in _GONE and issues.issue(number) is None):
            raise refusal(told, "take the comment")


class _Events:
    """What was done to an issue, as seen by a message of ours of some second by GitHub's clock, which tells no less:
    what a person has done in the very same one counts as later. What the words of a commit have done nobody has."""

    def __init__(self, events: Sequence[IssueEvent], ours: str, said_at: str) -> None:
        self._ours = ours
        self._said_at = said_at
        self._states = [event for event in events if event.kind in STATE_EVENTS]
        self._labels = [event for event in events if event.kind in LABEL_EVENTS and is_ours(event.label)]

    def closed_by_no_person(self) -> bool:
        """Whether what closed it last, if it was not opened since, was our own user or the words of a commit."""
        last = self._states[-1] if self._states else None
        return last is not None and last.kind == "closed" and not self._by_a_person(last)

    def moved_later(self) -> bool:
        """Whether a person has closed or opened it since the message was written."""
        return self._later(self._states)

    def relabelled_later(self) -> bool:
        """Whether a person has chosen among our labels since the message was written."""
        return self._later(self._labels)

    def _later(self, events: Sequence[IssueEvent]) -> bool:
        last = events[-1] if events else None
        return (
            last is not None and self._by_a_person(last) and bool(self._said_at) and last.at >= self._said_at
        )

    def _by_a_person(self, event: IssueEvent) -> bool:
        return event.actor.id != self._ours and not event.by_words


def _there(said_at: str, ahead_s: float) -> str:
    if not said_at:
        return ""
    return stamp((parse_stamp(said_at) + timedelta(seconds=ahead_s)).replace(microsecond=0))


def _done(issues: Issues, issue: Issue, told: Answer, what: str) -> None:
    if not told.ok and not (told.status in _GONE and issues.issue(issue.number) is None):
        raise refusal(told, what)


def _number(task: Task) -> int:
    if task.external_id is None:
        raise OutsideError(f"{task.work_item} is no issue of GitHub's.")
    return numbered(task.external_id)
