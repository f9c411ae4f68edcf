"""One repository behind a server's JSON API over HTTP: what its requests and answers have in common everywhere.

Must hold: every request ends within its time and every answer within its size; the token goes to the configured server
alone, for redirects are not followed; what is answered is hostile data until it has been read field by field.

On failure: ``AuthorityUnreachable`` where nothing usable was answered to a question. A refusal is an :class:`Answer`.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable, OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.rules.trailers import one_line, whole_number
from orchestrator.runtime.http import AnswerTooLarge, Http, HttpAnswer, HttpFailed

TIMEOUT_S = 20.0
MERGE_TIMEOUT_S = 60.0  # the server merges while we wait
ANSWER_LIMIT = 8 * 1024 * 1024  # bytes; a page of pull requests with long texts
MESSAGE_LIMIT = 300  # characters of a server's words that are repeated
_MOVED = range(300, 400)
_REPOSITORY = re.compile(
    r"/repos/(?P<name>[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100})|/repositories/(?P<number>[0-9]{1,18})"
)
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Moved(AuthorityUnreachable):
    """The server points to another address, which nobody follows: the token would go there, too."""

    def __init__(self, message: str, *, to: str, hint: str = "") -> None:
        """``to`` is where it points, as the server says it."""
        super().__init__(message, hint=hint)
        self.to = to


class TokenRefused(AuthorityUnreachable):
    """The server does not know our token."""


class TooMuch(AuthorityUnreachable):
    """The answer is larger than may be read: less of it has to be asked for at once."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said; ``body`` is None where it was no JSON, ``total`` where it did not count, ``more`` says
    whether another page follows."""

    status: int
    body: object
    message: str
    total: int | None = None
    more: bool = False

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300


class RestApi(ABC):
    """One repository's API. Safe for many threads. A subclass says which headers its server wants, and who it is."""

    token_setting: str  # the variable that holds the token

    def __init__(self, http: Http, server: str, root: str, full_name: str, token: Secret) -> None:
        """``server`` is where people find it, such as ``https://git.example.org``, ``root`` where its API begins;
        ``full_name`` is ``owner/name``."""
        self.server = server
        self.full_name = full_name
        self._root = root
        self._http = http
        self._token = token

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """What every request says."""

    def said(self, body: Mapping[str, object]) -> str:
        """An error's own words."""
        message = body.get("message")
        return message if isinstance(message, str) else ""

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
        return self.ask(method, f"/repos/{self.full_name}{path}", body, query=query, timeout_s=timeout_s)

    def asked(self, path: str, query: Mapping[str, object] | None = None) -> Answer:
        """The answer to a question about the repository.

        :raises AuthorityUnreachable: there was none.
        """
        return good(self.call("GET", path, query=query), f"{self.server}/{self.full_name}")

    def whereabouts(self) -> str:
        """What the server calls the repository now: its old name leads there when it was renamed or transferred.

        :raises AuthorityUnreachable: it cannot be asked, or there is no such repository for us.
        """
        try:
            return text(mapping(self.asked("").body), "full_name")
        except Moved as moved:
            known = self._named_by(moved.to)
            if known is None:
                raise
            return known

    def _named_by(self, address: str) -> str | None:
        """The repository that an address of this very server names, None where it names none; a number is looked up
        under an address of our own making."""
        root, to = urlsplit(self._root), urlsplit(address)
        here = (to.scheme, to.netloc) in (("", ""), (root.scheme, root.netloc))
        found = _REPOSITORY.fullmatch(to.path.removeprefix(root.path)) if here else None
        if found is None:
            return None
        if found["name"]:
            return found["name"]
        told = good(self.ask("GET", f"/repositories/{found['number']}"), self.server)
        return text(mapping(told.body), "full_name")

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, object] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """One request; see :meth:`call`."""
        headers = self.headers()
        sent = None
        if body is not None:
            headers["content-type"] = "application/json"
            sent = json.dumps(body).encode("ascii")
        url = self._root + path + (f"?{urlencode(query)}" if query else "")
        return self._read(self.request(method, url, headers, sent, timeout_s))

    def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> HttpAnswer:
        """Send it.

        :raises TooMuch: the answer is too large.
        :raises AuthorityUnreachable: no answer came.
        """
        try:
            return self._http.request(
                method, url, headers=headers, body=body, timeout_s=timeout_s, limit=ANSWER_LIMIT
            )
        except AnswerTooLarge as error:
            raise TooMuch(error.message) from error
        except HttpFailed as error:
            raise AuthorityUnreachable(error.message, hint=error.hint) from error

    def _read(self, told: HttpAnswer) -> Answer:
        if told.status in _MOVED:
            to = told.headers.get("location", "")
            raise Moved(
                f"{self.server}/{self.full_name} is not there any more: the server points to "
                f"{plain(to) or 'another address'}.",
                to=to,
                hint="Was the repository renamed? `orch repo move` takes its new name; its tasks then go on.",
            )
        if told.status == HTTPStatus.UNAUTHORIZED:
            raise TokenRefused(
                f"{self.server} refuses our token.", hint=f"Was it revoked? Set {self.token_setting} anew."
            )
        try:
            body = json.loads(told.body) if told.body else None
        except (ValueError, RecursionError):  # an error of a proxy, or a body made to hurt
            return Answer(told.status, None, plain(told.body[:MESSAGE_LIMIT].decode("utf-8", "replace")))
        said = self.said(body) if isinstance(body, dict) else ""
        return Answer(
            told.status,
            body,
            plain(said),
            total=whole_number(told.headers.get("x-total-count", "")),
            more='rel="next"' in told.headers.get("link", ""),
        )


def refusal(answer: Answer, what: str) -> OutsideError:
    """What a refused act is told as."""
    said = f": {answer.message}" if answer.message else ""
    return OutsideError(f"The forge did not {what} ({answer.status}){said}.")


def good(answer: Answer, what: str) -> Answer:
    """An answer that says something.

    :raises AuthorityUnreachable: it does not.
    """
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


def plain(text: str) -> str:
    """A stranger's words as they may stand in a message."""
    return one_line(text[:MESSAGE_LIMIT])


def mapping(value: object) -> Mapping[str, object]:
    """An object that has to be there."""
    if not isinstance(value, dict):
        raise AuthorityUnreachable("The server answered what its documentation does not say.")
    return value


def text(of: Mapping[str, object], name: str) -> str:
    """A text that has to be there."""
    value = of.get(name)
    if not isinstance(value, str):
        raise AuthorityUnreachable(f"The server answered without {name}.")
    return value


def numbered(pull: Mapping[str, object], sha: str, server: str) -> tuple[int, Sha]:
    """A pull request's number, and its head.

    :raises AuthorityUnreachable: they are none.
    """
    number = pull.get("number")
    if not isinstance(number, int) or isinstance(number, bool) or not _SHA.fullmatch(sha):
        raise AuthorityUnreachable(f"{server} showed no pull request where one was asked for.")
    return number, Sha(sha)
