"""What was read in an issue at GitHub, made a signal for the engine (S-10).

A comment that begins with a command is that decision, where its author may write to the repository; an issue that a
person has closed by hand, or that is gone, asks for a cancel. A comment that was edited before it was read commands
nothing: at GitHub others than its author may have done that.
"""

from orchestrator.db import inbox, mail, tasks
from orchestrator.db.database import Tx
from orchestrator.db.inbox import Delivery
from orchestrator.domain.task import Task
from orchestrator.stage_engine.signals import CANCEL
from orchestrator.webhooks import fields, words
from orchestrator.webhooks.comments import Command, command_in_markdown
from orchestrator.webhooks.envelope import Envelope
from orchestrator.webhooks.handler import Handled
from orchestrator.webhooks.words import Word

TRACKER = "github"
READ = "github-read"  # the source of what was read at GitHub itself
EARLY = (
    "The issue was closed by the words of a commit, which end no task. It is open again: what it asks for is not "
    "confirmed yet. Whoever wants the task ended closes the issue by hand, or says: orch task cancel"
)
NOTHING = Handled("nothing to do")
NOT_OURS = Handled("about no task of ours")
BY_WHOM = {"closed": "the issue was closed", "deleted": "the issue is gone"}


class GitHubIssues:
    """Letters of kind ``issues`` and ``issue_comment``, as the reader writes them."""

    source = READ
    envelope = Envelope(signature=(), kind=(), delivery=())  # nobody delivers them

    def task_of(self, tx: Tx, kind: str, payload: object) -> Task | None:
        """The issue's task: the open one, else the last."""
        return tasks.newest_by_ticket(tx, TRACKER, fields.text(payload, "ticket"))

    def read(self, kind: str, payload: object) -> Command | None:
        """The command of a comment."""
        body = fields.at(payload, "body")
        return command_in_markdown(body) if isinstance(body, str) else None

    def handle(self, tx: Tx, delivery: Delivery, task: Task | None) -> Handled:
        """See :class:`~orchestrator.webhooks.handler.WebhookHandler`."""
        if task is None:
            return NOT_OURS
        if delivery.kind == "issue_comment":
            return self._comment(tx, delivery, task)
        payload = delivery.payload
        action, said_at = fields.text(payload, "action"), fields.text(payload, "at")
        if action == "closed_by_words":
            return _opened_again(tx, delivery, task)
        if action not in BY_WHOM:
            return NOTHING
        word = Word(CANCEL, _person(payload), said_at, BY_WHOM[action])
        later = inbox.moves_since(tx, delivery, said_at) if said_at else []
        if fields.at(payload, "taken_back") is True or any(move.value == "reopened" for move in later):
            return words.refuse(tx, delivery, task, word, "the issue has been opened again since")
        return self._take(tx, delivery, task, word)

    def _comment(self, tx: Tx, delivery: Delivery, task: Task) -> Handled:
        if not isinstance(delivery.said, Command):
            return NOTHING
        payload, person = delivery.payload, _person(delivery.payload)
        word = words.asked_for(delivery, delivery.said, person, fields.text(payload, "at"))
        may = fields.at(payload, "may")
        if may is not True:
            why = (
                f"{person} may not write to the repository"
                if may is False
                else f"GitHub does not tell whether {person} may write to the repository"
            )
            return words.refuse(tx, delivery, task, word, why, once=f"rights:{person}")
        if fields.at(payload, "edited") is True:
            return words.refuse(tx, delivery, task, word, "the comment was edited; say it in a new one")
        named = delivery.said.work_item
        if named is not None and named != task.work_item:
            return words.refuse(tx, delivery, task, word, f"this issue is {task.work_item}")
        return self._take(tx, delivery, task, word)

    def _take(self, tx: Tx, delivery: Delivery, task: Task, word: Word) -> Handled:
        ahead = fields.at(delivery.payload, "ahead_s")
        ahead_s = ahead if isinstance(ahead, int | float) else 0.0
        return words.take(tx, delivery, task, word, via=TRACKER, ahead_s=ahead_s)


def _opened_again(tx: Tx, delivery: Delivery, task: Task) -> Handled:
    """Have the issue shown as its task stands, which is not at its end yet."""
    if task.stage.terminal:
        return Handled("the task has ended")
    payload = {"stage": task.stage, "reason": EARLY}
    mail.send(tx, "tracker.stage", f"again:{delivery.inbox_id}", payload, task_id=task.id)
    return Handled("is shown again")


def _person(payload: object) -> str:
    return fields.text(payload, "actor", "login") or "somebody at GitHub"
