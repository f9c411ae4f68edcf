"""The desk of where tickets are taken from: a person leaves a repository, or its project at a tracker.

Nothing that is under way is dropped without a word: a person says what becomes of open tasks. History stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.db import events, repositories, tasks, tickets
from orchestrator.db.database import Database
from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName, WorkItem
from orchestrator.domain.lease import Actor

SHOWN = 10  # numbers of tasks in a refusal
LOCAL = "local"


class OpenTasks(StrEnum):
    """What becomes of tasks that have not ended."""

    REFUSE = "refuse"  # there must be none
    FINISH = "finish"  # they go on to their end
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Disconnected:
    """What was left, and which tasks go on or were asked to be cancelled."""

    repo: RepoName
    tickets_only: bool
    open: tuple[WorkItem, ...]
    cancelled: bool
    already: bool  # it was left before


class ConnectionDesk:
    """What people decide about where tickets come from."""

    def __init__(self, database: Database, *, cancel: Callable[..., object]) -> None:
        """``cancel`` asks for a task to be cancelled; see Deciding."""
        self._database = database
        self._ask_to_cancel = cancel

    def disconnect(
        self,
        repo: str,
        *,
        tickets_only: bool = False,
        open_tasks: OpenTasks = OpenTasks.REFUSE,
        person: str,
        reason: str = "",
    ) -> Disconnected:
        """Take no tickets of a repository any more, or with ``tickets_only`` none of its project at a tracker.

        :raises NotFound: it is not registered.
        :raises RequestRefused: tasks are open and nothing was said of them, or there is no such project.
        """
        with self._database.write() as tx:
            known = repositories.get(tx, repo)
            project = tickets.project_of(tx, known.name)
            if tickets_only and project is None:
                raise RequestRefused(f"The tickets of {repo} come from here alone; nothing was changed.")
            found = [
                task.work_item
                for task in tasks.every_open(tx, known.name)
                if not tickets_only or task.tracker != LOCAL
            ]
            if found and open_tasks is OpenTasks.REFUSE:
                raise _still_open(known.name, found)
            news = [tickets.leave(tx, known.name), not tickets_only and repositories.leave(tx, known.name)]
            if any(news):
                told = {"disconnected": known.name, "tickets_only": tickets_only, "open": found}
                data = {**told, "then": open_tasks, "person": person[:200], "reason": reason[:2000]}
                events.append(tx, EventType.NOTE, Actor.OPERATOR, data=data)
        if open_tasks is OpenTasks.CANCEL:
            for work_item in found:
                self._ask_to_cancel(work_item, person=person, reason=reason or f"{repo} was disconnected")
        cancelled = open_tasks is OpenTasks.CANCEL
        return Disconnected(known.name, tickets_only, tuple(found), cancelled, not any(news))


def _still_open(repo: RepoName, found: list[WorkItem]) -> RequestRefused:
    named = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
    return RequestRefused(
        f"{repo} has tasks that have not ended: {named}. Nothing was changed.",
        hint="Say what becomes of them: --open finish lets them end, --open cancel cancels them.",
    )
