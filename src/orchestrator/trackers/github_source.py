"""What has changed in the issues of a repository at GitHub, and what people have said there, read at GitHub itself.

An issue says how it is, its events who made it so. GitHub tells times in whole seconds, so that what happened in the
very second up to which we have read is read again: letters count once by the id that they have there.
"""

from collections.abc import Iterator, Sequence

from orchestrator.rules.trailers import one_line
from orchestrator.trackers.github_issues import Issues
from orchestrator.trackers.github_labels import is_ours
from orchestrator.trackers.github_records import (
    STATE_EVENTS,
    Issue,
    IssueComment,
    IssueEvent,
    Person,
    visible,
)
from orchestrator.trackers.github_text import numbered, ticket_of
from orchestrator.trackers.source import ChangedTicket, Letter, Reading

TITLE_LIMIT = 300
BODY_LIMIT = 100_000  # characters
COMMENT_LIMIT = 20_000  # characters; a command is looked for in no more
LABELS = 40
UNTITLED = "(no title)"
NAME_OF_COMMANDS = "orch"  # no comment without it holds one


class GitHubTickets:
    """Implements ``trackers.source.TicketProject``."""

    def __init__(self, repo: str, issues: Issues, labels: frozenset[str]) -> None:
        """``repo`` is what the repository is called here, ``labels`` what has an issue taken, in lower case."""
        self._repo = repo
        self._issues = issues
        self._labels = labels

    @property
    def ahead_s(self) -> float:
        """How far GitHub's clock is ahead of ours."""
        return self._issues.ahead_s

    def our_user(self) -> str:
        """The number of our own user there."""
        return self._issues.me()

    def changed(self, since: str | None) -> list[ChangedTicket]:
        """See :class:`~orchestrator.trackers.source.TicketProject`; at first only what is marked, for a repository may
        have had issues for years. Pull requests are among it and never wanted: what has been read has been read."""
        if since is not None:
            found = self._issues.changed(since)
        else:
            marked = (issue for label in sorted(self._labels) for issue in self._issues.marked(label))
            by_number = {issue.number: issue for issue in marked}
            found = sorted(by_number.values(), key=lambda issue: issue.changed_at)
        return [self._ticket(issue) for issue in reversed(found)]

    def read(self, external_id: str, since: str, known: str | None = None) -> Reading | None:
        """See :class:`~orchestrator.trackers.source.TicketProject`."""
        number = numbered(external_id)
        issue = self._issues.issue(number)  # before its events: what they show beyond it is no older
        if issue is None:
            return None
        if issue.changed_at == known:
            return Reading(issue.changed_at, (), settled=True, reopened=False)
        moves = [event for event in self._issues.events(number) if event.kind in STATE_EVENTS]
        comments = self._issues.comments(number, since)
        letters = [*self._moves(external_id, moves, since), *self._comments(external_id, comments, since)]
        last = moves[-1] if moves else None
        return Reading(
            issue.changed_at,
            tuple(sorted(letters, key=lambda letter: (letter.at, letter.letter_id))),
            settled=last is None or (last.kind == "closed") == issue.closed,
            reopened=last is not None and self._reopens(last) and last.at > since,
        )

    def gone(self, external_id: str, task_id: int) -> Letter:
        """See :class:`~orchestrator.trackers.source.TicketProject`."""
        payload = self._payload(external_id, "deleted", Person("", ""), "")
        return Letter("issues", f"gone-{task_id}", "", payload)

    def _ticket(self, issue: Issue) -> ChangedTicket:
        marked = any(label.lower() in self._labels for label in issue.labels)
        body = visible(issue.body[: 2 * BODY_LIMIT]).replace("\0", "\ufffd").replace("\r\n", "\n")
        return ChangedTicket(
            external_id=ticket_of(self._repo, issue.number),
            changed_at=issue.changed_at,
            wanted=marked and not issue.closed and not issue.pull_request,
            title=one_line(issue.title)[:TITLE_LIMIT] or UNTITLED,
            body=body.strip()[:BODY_LIMIT],
            labels=tuple(label for label in issue.labels if not is_ours(label))[:LABELS],
        )

    def _moves(self, external_id: str, moves: Sequence[IssueEvent], since: str) -> Iterator[Letter]:
        for at, move in enumerate(moves):
            if move.at < since or (self._is_ours(move.actor) and not move.by_words):
                continue
            # What an agent's commit says, whoever has brought it to main.
            action = "closed_by_words" if move.by_words else move.kind
            said = {
                "taken_back": any(self._reopens(later) for later in moves[at + 1 :]),
                # As the inbox compares moves with each other, in whatever order they are read.
                "activity": {"field": "state", "new_value": action, "actor": {"id": move.actor.id}},
                "data": {"updated_at": move.at},
            }
            payload = self._payload(external_id, action, move.actor, move.at, **said)
            yield Letter("issues", f"event-{move.id}", move.at, payload)

    def _comments(self, external_id: str, comments: Sequence[IssueComment], since: str) -> Iterator[Letter]:
        for one in comments:
            if one.at < since or self._is_ours(one.author):  # or edited since, which makes no word of it
                continue
            body = one.body[:COMMENT_LIMIT]
            asks = NAME_OF_COMMANDS in body.lower() and bool(one.author.login)
            may = self._issues.may_write(one.author.login) if asks else False
            said = {"body": body, "edited": one.edited, "may": may}
            payload = self._payload(external_id, "created", one.author, one.at, **said)
            yield Letter("issue_comment", f"comment-{one.id}", one.at, payload)

    def _payload(
        self, external_id: str, action: str, person: Person, at: str, **said: object
    ) -> dict[str, object]:
        return {
            "action": action,
            "ticket": external_id,
            "actor": {"id": person.id, "login": person.login},
            "at": at,
            "ahead_s": self.ahead_s,
            **said,
        }

    def _reopens(self, move: IssueEvent) -> bool:
        return move.kind == "reopened" and not self._is_ours(move.actor)

    def _is_ours(self, person: Person) -> bool:
        return person.id == self.our_user()
