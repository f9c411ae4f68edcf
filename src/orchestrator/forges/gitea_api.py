"""The HTTP API of one repository at Gitea or Forgejo, as far as we use it.

Must hold: every request ends within its time and every answer within its size; the token goes to the configured server
alone, for redirects are not followed; what is answered is hostile data until it has been read field by field. No answer
states a fact about main: git does.

On failure: ``AuthorityUnreachable`` where nothing usable was answered to a question. A refusal is an :class:`Answer`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote, urlencode

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable, OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.forges.forge import PullRequest
from orchestrator.rules.trailers import one_line, whole_number
from orchestrator.runtime.http import Http, HttpAnswer, HttpFailed

TIMEOUT_S = 20.0
MERGE_TIMEOUT_S = 60.0  # the server merges while we wait
ANSWER_LIMIT = 8 * 1024 * 1024  # bytes; a page of pull requests with long texts
PAGE = 50  # the most that the server gives at once; more is cut without a word
PAGES = 200
LIST_TRIES = 3
CLOSED_PAGES = 4  # of the closed ones, last changed first: of the older ones nobody asks any more
MESSAGE_LIMIT = 300  # characters of a server's words that are repeated
FAST_FORWARD_SINCE = (1, 22)
_MOVED = range(300, 400)
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said; ``body`` is None where it was no JSON, ``total`` where it did not count."""

    status: int
    body: object
    message: str
    total: int | None = None

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class RepositoryFacts:
    """What the server says about the repository."""

    full_name: str
    default_branch: str
    fast_forward: bool  # whether it can merge by fast-forward only
    merge: bool  # whether it may make a merge commit
    archived: bool
    may_push: bool
    administered: bool  # by our user

    @property
    def merges(self) -> bool:
        """Whether it merges in a way that we can use."""
        return self.fast_forward or self.merge


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """What the server says about a branch."""

    protected: bool
    required_approvals: int
    may_merge: bool


class GiteaApi:
    """One repository's API. Safe for many threads."""

    def __init__(self, http: Http, server: str, full_name: str, token: Secret) -> None:
        """``server`` is its address, such as ``https://git.example.org``; ``full_name`` is ``owner/name``."""
        self.server = server
        self.full_name = full_name
        self._http = http
        self._token = token

    # -- questions ---------------------------------------------------------------------------------------------

    def repository(self) -> RepositoryFacts:
        """What the server says about the repository now.

        :raises AuthorityUnreachable: it cannot be asked, or there is no such repository for us.
        """
        told = _mapping(self._asked("").body)
        rights = _mapping(told.get("permissions") or {})
        return RepositoryFacts(
            full_name=_text(told, "full_name"),
            default_branch=_text(told, "default_branch"),
            fast_forward=told.get("allow_fast_forward_only_merge") is True and self._knows_fast_forward(),
            merge=told.get("allow_merge_commits") is not False,
            archived=told.get("archived") is True,
            may_push=rights.get("push") is not False,
            administered=rights.get("admin") is True,
        )

    def branch(self, name: str) -> BranchFacts:
        """What the server says about a branch now.

        :raises AuthorityUnreachable: it cannot be asked, or there is no such branch.
        """
        told = _mapping(self._asked(f"/branches/{quote(name, safe='')}").body)
        approvals = told.get("required_approvals")
        return BranchFacts(
            protected=told.get("protected") is True,
            required_approvals=approvals if isinstance(approvals, int) else 0,
            may_merge=told.get("user_can_merge") is not False,
        )

    def pull(self, number: int, base: str) -> PullRequest | None:
        """One pull request against ``base``, None where there is none: a person may have pointed it elsewhere. Asking
        also has the server find out whether it can be merged.

        :raises AuthorityUnreachable: it cannot be asked.
        """
        answer = self.call("GET", f"/pulls/{number}")
        if answer.status == HTTPStatus.NOT_FOUND:
            self.repository()  # else a lost right would look like a pull request that is gone
            return None
        pull = _mapping(_good(answer, self.full_name).body)
        return self._shown(pull) if _is_against(pull, base) else None

    def pulls(self, base: str) -> dict[int, PullRequest]:
        """Every open pull request of the repository's own branches against ``base``, and the closed ones that were
        changed last.

        :raises AuthorityUnreachable: they cannot be asked for.
        """
        found = self._list("/pulls", {"state": "open", "sort": "oldest"}, PAGES)
        # Afterwards: one that is closed meanwhile must not be in neither.
        found += self._list("/pulls", {"state": "closed", "sort": "recentupdate"}, CLOSED_PAGES)
        shown = [self._shown(pull) for pull in found if _is_against(pull, base)]
        return {pull.number: pull for pull in shown}

    # -- acts --------------------------------------------------------------------------------------------------

    def open(self, branch: str, base: str, title: str, body: str) -> Answer:
        """Ask for a pull request."""
        return self.call("POST", "/pulls", {"head": branch, "base": base, "title": title, "body": body})

    def close(self, number: int) -> Answer:
        """Ask for one to be closed."""
        return self.call("PATCH", f"/pulls/{number}", {"state": "closed"})

    def merge(self, number: int, style: str, head: Sha, message: str) -> Answer:
        """Ask for the merge of exactly this head; ``message`` counts where the server makes a commit of its own."""
        title, _, rest = message.strip().partition("\n")
        asked = {"Do": style, "head_commit_id": head}
        if style == "merge":
            asked |= {"MergeTitleField": title, "MergeMessageField": rest.strip()}
        return self.call("POST", f"/pulls/{number}/merge", asked, timeout_s=MERGE_TIMEOUT_S)

    def read(self, body: object) -> PullRequest:
        """The pull request that an answer shows.

        :raises AuthorityUnreachable: it shows none.
        """
        return self._shown(_mapping(body))

    # -- the wire ----------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """One request about the repository.

        :raises AuthorityUnreachable: no answer came, or one that tells of another address or a refused token.
        """
        return self._call(method, f"/repos/{self.full_name}{path}", body, query=query, timeout_s=timeout_s)

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        headers = {"authorization": f"token {self._token.reveal()}", "accept": "application/json"}
        sent = None
        if body is not None:
            headers["content-type"] = "application/json"
            sent = json.dumps(body).encode("ascii")
        url = f"{self.server}/api/v1{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            told = self._http.request(
                method, url, headers=headers, body=sent, timeout_s=timeout_s, limit=ANSWER_LIMIT
            )
        except HttpFailed as error:
            raise AuthorityUnreachable(error.message, hint=error.hint) from error
        return self._read(told)

    def _read(self, told: HttpAnswer) -> Answer:
        if told.status in _MOVED:
            to = _plain(told.headers.get("location", "another address"))
            raise AuthorityUnreachable(
                f"{self.server}/{self.full_name} is not there any more: the server points to {to}.",
                hint="Was the repository renamed? Give it its old name back; its tasks then go on.",
            )
        if told.status == HTTPStatus.UNAUTHORIZED:
            raise AuthorityUnreachable(
                f"{self.server} refuses our token.", hint="Was it revoked? Set ORCH_GITEA_TOKEN anew."
            )
        try:
            body = json.loads(told.body) if told.body else None
        except (ValueError, RecursionError):  # an error of a proxy, or a body made to hurt
            return Answer(told.status, None, _plain(told.body[:MESSAGE_LIMIT].decode("utf-8", "replace")))
        said = body.get("message") if isinstance(body, dict) else None
        total = whole_number(told.headers.get("x-total-count", ""))
        return Answer(told.status, body, _plain(said) if isinstance(said, str) else "", total)

    def _asked(self, path: str, query: Mapping[str, object] | None = None) -> Answer:
        return _good(self.call("GET", path, query=query), f"{self.server}/{self.full_name}")

    def _list(self, path: str, query: Mapping[str, object], most: int) -> list[Mapping[str, object]]:
        """What is on all pages, or on the first ``most``. Where the list changes in between, pages overlap or leave
        something out: it is read anew."""
        for _ in range(LIST_TRIES):
            found, totals = list[Mapping[str, object]](), set[int | None]()
            for page in range(1, most + 1):
                answer = self._asked(path, {**query, "limit": PAGE, "page": page})
                if not isinstance(answer.body, list):
                    raise AuthorityUnreachable(f"{self.server} answered no list for {path}.")
                found += map(_mapping, answer.body)
                totals.add(answer.total)
                # How much a page holds is the server's to say, whatever we ask for.
                if not answer.body or (answer.total is not None and len(found) >= answer.total):
                    break
            else:
                if most == PAGES:
                    raise AuthorityUnreachable(f"{self.full_name} has too many open pull requests to read.")
            if len(totals) == 1:
                return found
        raise AuthorityUnreachable(
            f"The pull requests of {self.full_name} change faster than they can be read."
        )

    def _knows_fast_forward(self) -> bool:
        told = _mapping(_good(self._call("GET", "/version"), self.server).body)
        return released(_text(told, "version")) >= FAST_FORWARD_SINCE

    def _shown(self, pull: Mapping[str, object]) -> PullRequest:
        head, number = _mapping(pull.get("head")), pull.get("number")
        branch, sha = _text(head, "ref"), _text(head, "sha")
        if branch.startswith("refs/pull/"):  # the branch is gone; its name is kept
            branch = _text(head, "label")
        if not isinstance(number, int) or isinstance(number, bool) or not _SHA.fullmatch(sha):
            raise AuthorityUnreachable(f"{self.server} showed no pull request where one was asked for.")
        state = "merged" if pull.get("merged") is True else _text(pull, "state")
        # The address is put together here: the server's own may be one that only it can reach.
        url = f"{self.server}/{self.full_name}/pulls/{number}"
        return PullRequest(number, branch, Sha(sha), state, one_line(_text(pull, "title")), url)


def released(version: str) -> tuple[int, ...]:
    """Which Gitea a version string stands for: Forgejo names it behind its own, as in ``12.0.0+gitea-1.22.0``."""
    _, _, gitea = version.rpartition("gitea-")
    return tuple(int(part) for part in re.findall(r"\d{1,9}", gitea)[:2])


def refusal(answer: Answer, what: str) -> OutsideError:
    """What a refused act is told as."""
    said = f": {answer.message}" if answer.message else ""
    return OutsideError(f"The forge did not {what} ({answer.status}){said}.")


def _good(answer: Answer, what: str) -> Answer:
    if answer.ok and answer.body is not None:
        return answer
    hints = {
        HTTPStatus.NOT_FOUND: "Is it there, and may the token's user see it?",
        HTTPStatus.TOO_MANY_REQUESTS: "Something before the server limits requests; it is asked again.",
    }
    said = f": {answer.message}" if answer.message else ""
    raise AuthorityUnreachable(
        f"{what} cannot be read ({answer.status}){said}.",
        hint=hints.get(HTTPStatus(answer.status), "") if answer.status in list(HTTPStatus) else "",
    )


def _plain(text: str) -> str:
    """A stranger's words as they may stand in a message."""
    return one_line(text[:MESSAGE_LIMIT])


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise AuthorityUnreachable("The forge answered what its documentation does not say.")
    return value


def _text(of: Mapping[str, object], name: str) -> str:
    value = of.get(name)
    if not isinstance(value, str):
        raise AuthorityUnreachable(f"The forge answered without {name}.")
    return value


def _is_against(pull: Mapping[str, object], branch: str) -> bool:
    """Whether a pull request would bring a branch of the repository itself, not of a fork, into this one."""
    head, base = _mapping(pull.get("head")), _mapping(pull.get("base"))
    return head.get("repo_id") == base.get("repo_id") and base.get("ref") == branch
