"""The tracker for tickets that are work items at a Plane.

What must hold: a comment is there once, however often it is sent, for it bears an id that Plane itself compares; a
state is read before it is written, and a person's later move stays. Plane cannot compare and swap: a move that falls
between our look and our write is overwritten, stands in its log, and is heard as that person's word all the same.

What is told is kept beside the database as well, as for tickets of our own: ``orch task show`` reads it there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.observability.redactor import Redactor
from orchestrator.runtime.clock import parse_stamp, stamp
from orchestrator.trackers.plane_api import Answer
from orchestrator.trackers.plane_project import PlaneProject
from orchestrator.trackers.plane_records import PlaneItem, PlaneState
from orchestrator.trackers.plane_states import state_of
from orchestrator.trackers.plane_text import as_html
from orchestrator.trackers.telling import about_stage, message_mark
from orchestrator.trackers.tracker import Tracker, TrackerAway

log = structlog.get_logger(__name__)

NAME = "plane"
LOG_S = 2.0  # until a log that is behind its ticket is read again
_KNOWN = 409  # a comment of this external id is there
_GONE = 404
_EVER = "0000-01-01T00:00:00.000000Z"


@dataclass(frozen=True, slots=True)
class ShownAs:
    """What is configured of a project's states: names in lower case, or ids."""

    stages: dict[str, str] = field(default_factory=dict)  # by stage
    words: frozenset[str] = frozenset()  # those by which people say something


class PlaneTracker:
    """Implements ``trackers.tracker.Tracker`` for all repositories whose tickets lie at a Plane."""

    name = NAME

    def __init__(
        self,
        project_of: Callable[[Task], PlaneProject],
        shown_as: ShownAs,
        kept: Tracker,
        redactor: Redactor,
        *,
        pull_request: Callable[[Task], str | None],
    ) -> None:
        """``kept`` is told everything first; ``pull_request`` is the address of a task's, if it has one."""
        self._project_of = project_of
        self._shown_as = shown_as
        self._kept = kept
        self._redactor = redactor
        self._pull_request = pull_request

    def show_stage(
        self, task: Task, stage: Stage, message_id: str, *, reason: str = "", said_at: str = ""
    ) -> None:
        """Move the ticket, and say so in a comment; see :class:`~orchestrator.trackers.tracker.Tracker`."""
        self._kept.show_stage(task, stage, message_id, reason=reason, said_at=said_at)
        project, ticket = self._project_of(task), _ticket(task)
        item = project.item(ticket)
        if item is None:
            log.info("ticket is gone", task=task.work_item)
            return
        self._move(project, item, stage, said_at)
        self._say(task, about_stage(task.work_item, stage, reason), message_id)
        url = self._pull_request(task)
        if url is not None and stage is Stage.REVIEW:
            told = project.link(ticket, url, f"{task.work_item}: pull request")
            if not told.ok and told.status not in (400, _GONE):  # 400: it is there
                raise _refused(told, "take the link")

    def comment(self, task: Task, text: str, message_id: str) -> None:
        """Leave a comment; see :class:`~orchestrator.trackers.tracker.Tracker`."""
        self._kept.comment(task, text, message_id)
        self._say(task, text, message_id)

    def _move(self, project: PlaneProject, item: PlaneItem, stage: Stage, said_at: str) -> None:
        states = project.states()
        if item.state not in states:
            project.forget()
            states = project.states()
        now = states.get(item.state)
        target = state_of(
            stage, states.values(), now, chosen=self._shown_as.stages, words=self._shown_as.words
        )
        if target is None or self._is_a_persons(project, item, now, stage, said_at):
            return
        told = project.move(item.id, target.id)
        if told.status == _GONE:
            return  # deleted meanwhile
        body = told.body if isinstance(told.body, dict) else {}
        # What Plane does not understand it passes over with a 200.
        if not told.ok or body.get("state") != target.id:
            raise _refused(told, f"move the ticket to {target.name}")

    def _is_a_persons(
        self, project: PlaneProject, item: PlaneItem, now: PlaneState | None, stage: Stage, said_at: str
    ) -> bool:
        """Whether the ticket stands where a person has put it, and ours is not the later word.

        :raises TrackerAway: its log is still behind it, so that nobody can tell.
        """
        last = next(iter(project.moves(item.id, _EVER)), None)
        if last is not None and last.new != item.state and project.is_fresh(item):
            raise TrackerAway("Plane's log is behind the ticket.", after_s=LOG_S)
        if last is None or last.new != item.state or last.actor == project.server.me():
            return False
        if now is not None and now.closed and not stage.terminal:
            return True  # it asks for the end, and has its answer by the task's own
        if not said_at:
            return False
        ours = parse_stamp(said_at) + timedelta(seconds=project.server.ahead_s)
        return last.at > stamp(ours)

    def _say(self, task: Task, text: str, message_id: str) -> None:
        project, ticket = self._project_of(task), _ticket(task)
        told = project.comment(ticket, as_html(self._redactor.text(text)), message_mark(task, message_id))
        if told.ok or told.status == _KNOWN:
            return
        if told.status in (403, _GONE) and project.item(ticket) is None:
            log.info("ticket is gone", task=task.work_item)
            return
        raise _refused(told, "take the comment")


def _ticket(task: Task) -> str:
    if task.external_id is None:
        raise OutsideError(f"{task.work_item} is no ticket of Plane's.")
    return task.external_id


def _refused(told: Answer, what: str) -> OutsideError:
    said = f": {told.message}" if told.message else ""
    return OutsideError(f"Plane did not {what} ({told.status}){said}.")
