"""The issues of one repository at GitHub: what can be asked of them, and what can be done there.

Must hold: what is asked shares its limits with the forge of the same token, and nobody waits inside. On failure:
``TrackerAway`` where the server as a whole takes nothing now, ``ProjectGone`` where the repository is not there for us,
another ``OutsideError`` where it refused; a refused act is an :class:`~orchestrator.rest.api.Answer`.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import quote

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable, OutsideError
from orchestrator.rest.api import Answer, Moved, TokenRefused, good, mapping, text
from orchestrator.rest.github import LARGE_PAGE, PAGE, GitHubRest
from orchestrator.rest.github_limits import Limits, Silenced
from orchestrator.runtime.clock import Clock, parse_stamp
from orchestrator.runtime.http import Http
from orchestrator.trackers.github_listing import by_change
from orchestrator.trackers.github_records import (
    Issue,
    IssueComment,
    IssueEvent,
    Person,
    read_comment,
    read_event,
    read_issue,
    read_person,
)
from orchestrator.trackers.pace import Pace
from orchestrator.trackers.source import ProjectGone
from orchestrator.trackers.tracker import TrackerAway

CALLS_PER_MINUTE = (
    240  # GitHub's own limit for one user is 900 points, of which a question costs one and an act five
)
CHANGES = 2_000  # issues that are read at once; the next reading goes on behind them
LANDS_S = 15.0  # by then what was cut off has taken effect, if ever, and is listed
REVOKED_S = 300.0  # how long a refused token is not tried again
WRITERS = frozenset({"admin", "write"})  # roles between them count as the lower one
_NOT_OF_ITS_OWN = frozenset({502, 503, 504})  # of a proxy before it
_SHUT = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_LOST = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


class GitHubServer:
    """One server and one token, and who we are there. Safe for many threads."""

    def __init__(self, http: Http, url: str, token: Secret, limits: Limits, clock: Clock) -> None:
        """``limits`` are those of the token, whatever else it is used for."""
        self.url = url
        self.pace = Pace(clock, CALLS_PER_MINUTE)
        self._http = http
        self._token = token
        self._limits = limits
        self._lock = threading.Lock()
        self._us: Person | None = None

    def issues(self, full_name: str) -> "Issues":
        """Those of a repository, ``owner/name``."""
        return Issues(self, GitHubRest(self._http, self.url, full_name, self._token, self._limits))

    def us(self, rest: GitHubRest) -> Person:
        """Our own user; asked once.

        :raises TrackerAway: it cannot be asked.
        """
        with self._lock:
            if self._us is None:
                with self.asking():
                    told = self.heard(rest.ask("GET", "/user"))
                self._us = read_person(mapping(good(told, f"our user at {self.url}").body))
            return self._us

    @contextmanager
    def asking(self, *, background: bool = False) -> Iterator[None]:
        """Ask in here.

        :raises TrackerAway: it is too early, no answer came, or the token is not known any more.
        :raises Moved: what is asked for has another address now.
        """
        wait_s = self.pace.wait_s(background=background)
        if wait_s > 0:
            raise TrackerAway(f"{self.url} has been asked as often as it may be.", after_s=wait_s)
        try:
            yield
        except Moved:
            raise
        except Silenced as error:
            raise TrackerAway(error.message, after_s=error.after_s, hint=error.hint) from error
        except TokenRefused as error:
            self.pace.later(REVOKED_S)
            raise TrackerAway(error.message, after_s=REVOKED_S, hint=error.hint) from error
        except AuthorityUnreachable as error:
            after_s = self.pace.failed()
            raise TrackerAway(error.message, after_s=after_s, hint=error.hint, unknown=True) from error

    def heard(self, told: Answer) -> Answer:
        """The answer, where it is one of the server's own.

        :raises TrackerAway: it is not.
        """
        if told.status in _NOT_OF_ITS_OWN:
            text = f"{self.url} answered with {told.status}."
            raise TrackerAway(text, after_s=self.pace.failed(), unknown=True)
        self.pace.answered(None)
        return told


class Issues:
    """Safe for many threads."""

    def __init__(self, server: GitHubServer, rest: GitHubRest) -> None:
        self.server = server
        self._rest = rest
        self.location = f"{server.url}/{rest.full_name}"

    @property
    def ahead_s(self) -> float:
        """How far GitHub's clock is ahead of ours."""
        return self._rest.ahead_s

    def us(self) -> Person:
        """Our own user."""
        return self.server.us(self._rest)

    def me(self) -> str:
        """The number of our own user."""
        return self.us().id

    # -- questions ---------------------------------------------------------------------------------------------

    def check(self) -> Mapping[str, object]:
        """What the server says of the repository.

        :raises TrackerAway: the server takes nothing now.
        :raises ProjectGone: it is not there for us, under this name, or has no issues.
        """
        try:
            told = self.call("GET", "")
        except Moved as error:
            raise ProjectGone(error.message, hint=error.hint) from error
        if told.status in _SHUT:
            raise ProjectGone(f"{self.location} is gone, or not ours to see.")
        facts = mapping(good(told, self.location).body)
        if facts.get("has_issues") is False:
            raise ProjectGone(f"The issues of {self.location} are switched off.", hint="Switch them on.")
        if facts.get("archived") is True:
            raise ProjectGone(
                f"{self.location} is archived: nothing can be said there.", hint="Bring it back."
            )
        return facts

    def readable(self) -> None:
        """See that issues are ours to read, and not the repository alone.

        :raises TrackerAway: the server takes nothing now.
        :raises ProjectGone: they are not.
        """
        try:
            told = self.call("GET", "/issues", query={"state": "all", "per_page": 1})
        except Moved as error:
            raise ProjectGone(error.message, hint=error.hint) from error
        if told.status in _SHUT:
            self.check()
            raise ProjectGone(
                f"Our user may not read the issues of {self.location}.",
                hint="Give its token the permission Issues: read and write.",
            )
        good(told, f"the issues of {self.location}")

    def issue(self, of: int) -> Issue | None:
        """One issue; None where issues can be read and this one is there no more: it was deleted, or transferred to
        another repository.

        :raises TrackerAway: the server takes nothing now.
        :raises ProjectGone: nothing is known of the issue.
        """
        try:
            told = self.call("GET", f"/issues/{of}")
        except Moved:
            self.check()  # else it is the repository that has another address
            return None
        if told.status in _SHUT:
            self.check()
            self.readable()  # else a lost right would look like an issue that is gone
            if told.status in _LOST and told.body is not None:  # said by GitHub itself, and by no proxy
                return None
        return read_issue(mapping(good(told, f"issue {of} of {self.location}").body))

    def changed(self, since: str) -> list[Issue]:
        """What has changed after a moment of GitHub's clock, pull requests among it, oldest change first: what changes
        meanwhile comes last.

        :raises TrackerAway: the server takes nothing now.
        :raises ProjectGone: the repository is not there for us.
        """
        return self._listed({"state": "all"}, since)

    def marked(self, label: str) -> list[Issue]:
        """What is open and bears a label, oldest change first; see :meth:`changed`."""
        return self._listed({"state": "open", "labels": label})

    def events(self, of: int) -> list[IssueEvent]:
        """What was done to an issue, oldest first."""
        return [read_event(row) for row in self._rows(f"/issues/{of}/events", {})]

    def comments(self, of: int, since: str) -> list[IssueComment]:
        """What was written or edited there from a moment of GitHub's clock on, oldest first."""
        rows = self._rows(f"/issues/{of}/comments", {"since": _seconds(since)}, size=LARGE_PAGE)
        return [read_comment(row) for row in rows]

    def labels(self) -> frozenset[str]:
        """The labels of the repository, in lower case."""
        return frozenset(text(row, "name").lower() for row in self._rows("/labels", {}))

    def may_write(self, login: str) -> bool | None:
        """Whether somebody may write to the repository; None where we are not told.

        What is said beside a comment, its ``author_association``, does not tell: a member of the organisation or a
        collaborator may be one who reads alone.
        """
        told = self.call("GET", f"/collaborators/{quote(login, safe='')}/permission")
        if told.status == HTTPStatus.NOT_FOUND:
            return False  # an account that is gone, or that of a program
        if not told.ok:
            return None
        return text(mapping(told.body), "permission") in WRITERS

    # -- acts --------------------------------------------------------------------------------------------------

    def comment(self, of: int, body: str) -> Answer:
        """Ask for a comment. One of which nothing is known may still land: it is looked for again after a while only.

        :raises TrackerAway: the server takes nothing now.
        """
        try:
            return self.call("POST", f"/issues/{of}/comments", {"body": body})
        except TrackerAway as error:
            if not error.unknown:
                raise
            after_s = max(error.after_s, LANDS_S)
            raise TrackerAway(error.message, after_s=after_s, hint=error.hint, unknown=True) from error

    def set_state(self, of: int, state: str, why: str) -> Answer:
        """Ask for an issue to be closed, or opened again."""
        return self.call("PATCH", f"/issues/{of}", {"state": state, "state_reason": why})

    def add_label(self, of: int, label: str) -> Answer:
        """Ask for a label on an issue; the repository gets one of this name where it has none."""
        return self.call("POST", f"/issues/{of}/labels", {"labels": [label]})

    def remove_label(self, of: int, label: str) -> Answer:
        """Ask for a label to be taken from an issue; 404 where it bears none of this name."""
        return self.call("DELETE", f"/issues/{of}/labels/{quote(label, safe='')}")

    def make_label(self, label: str, color: str, description: str) -> Answer:
        """Ask for a label in the repository; 422 where it has one of this name."""
        return self.call("POST", "/labels", {"name": label, "color": color, "description": description})

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        background: bool = False,
    ) -> Answer:
        """One request about the repository.

        :raises TrackerAway: the server takes nothing now.
        :raises Moved: it is elsewhere.
        """
        with self.server.asking(background=background):
            told = self._rest.call(method, path, body, query=query)
        return self.server.heard(told)

    def _listed(self, query: Mapping[str, object], since: str = "") -> list[Issue]:
        order = {"sort": "updated", "direction": "asc", "per_page": LARGE_PAGE}

        def page(since: str, number: int) -> tuple[list[Issue], bool]:
            asked = {**query, **order, "page": number, **({"since": _seconds(since)} if since else {})}
            told = good(self.call("GET", "/issues", query=asked, background=True), f"{self.location}/issues")
            if not isinstance(told.body, list):
                raise OutsideError(f"{self.server.url} answered no list of issues.")
            return [read_issue(mapping(row)) for row in told.body], told.more

        try:
            found = {issue.number: issue for issue in by_change(page, since, CHANGES // LARGE_PAGE)}
        except TrackerAway:
            raise
        except OutsideError:
            self.readable()
            raise
        return sorted(found.values(), key=lambda issue: issue.changed_at)

    def _rows(
        self, path: str, query: Mapping[str, object], *, size: int = PAGE
    ) -> Iterator[Mapping[str, object]]:
        """Page by page: events and comments stand in the order of their numbers, whatever becomes of them. One moves up
        only where a comment before it is deleted just then."""

        def ask(path: str, query: Mapping[str, object]) -> Answer:
            return good(self.call("GET", path, query=query), f"{self.location}{path}")

        return self._rest.rows(path, query, ask=ask, size=size)


def _seconds(since: str) -> str:
    """A stamp as GitHub takes it."""
    return parse_stamp(since).strftime("%Y-%m-%dT%H:%M:%SZ")
