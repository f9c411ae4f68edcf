"""A tracker's webhook as what it is where its tickets are read: a hint that has one read soon, and nothing more."""

from orchestrator.db import tickets
from orchestrator.db.database import Tx
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.task import Task
from orchestrator.webhooks.handler import Handled

SOON_S = 5.0  # a project that sends much is read no more often than that
OURS = Handled("our own doing")
ASKED = Handled("the tracker is asked what is true")


def have_read(tx: Tx, place: TrackerProject, task: Task | None, *, ours: bool) -> Handled:
    """Have the ticket read, or its project where that may have become ours to work on. What is ``ours`` to do was no
    word of a person's; that webhooks come at all it shows as well as any."""
    tickets.heard(tx, place.repo)
    if ours:
        return OURS
    if task is None or task.stage.terminal:
        tickets.soon(tx, place.repo, SOON_S)
    if task is not None and task.external_id and not tickets.hint(tx, place.tracker, task.external_id):
        tickets.take(tx, place.tracker, task.external_id, place.repo, task.created_at)
        tickets.hint(tx, place.tracker, task.external_id)
    return ASKED
