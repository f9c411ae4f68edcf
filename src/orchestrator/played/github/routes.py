"""Which request is which function's, and what all answers have in common."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.played.common.served import Answer
from orchestrator.played.github import bodies
from orchestrator.played.github.repository import Repository

T = TypeVar("T")

DEFAULT_PAGE, MOST = 30, 100
OF_AN_ARCHIVED_ONE = "edit_repository"  # what may be done to it
OF_A_READER = "add_review"  # what may be done by one


@dataclass(frozen=True)
class Request:
    """One request, by somebody whose token is known."""

    login: str
    query: dict[str, str]
    body: dict[str, Any]
    base: str  # the server's address


Endpoint = Callable[..., Answer]
ROUTES: list[tuple[str, re.Pattern[str], Endpoint]] = []


def route(method: str, path: str) -> Callable[[Endpoint], Endpoint]:
    below = "/repos/<owner>/<repo>" + path
    pattern = re.compile(re.sub(r"(?<!P)<(\w+)>", r"(?P<\1>[^/]+)", below) + r"\Z")

    def add(endpoint: Endpoint) -> Endpoint:
        ROUTES.append((method, pattern, endpoint))
        return endpoint

    return add


def answer(find: Callable[[str], Repository | None], method: str, path: str, asked: Request) -> Answer:
    """The answer to one request below the API's root."""
    for wanted, pattern, endpoint in ROUTES:
        match = pattern.match(path)
        if wanted != method or match is None:
            continue
        named = match.groupdict()
        repo = find(f"{named.pop('owner')}/{named.pop('repo')}")
        right = repo.rights.get(asked.login, "") if repo else ""
        if repo is None or not right:
            return missing()
        if method != "GET" and right == "read" and endpoint.__name__ != OF_A_READER:
            return refused(403, "Resource not accessible by personal access token")
        if method != "GET" and repo.archived and endpoint.__name__ != OF_AN_ARCHIVED_ONE:
            return refused(403, "Repository was archived so is read-only.")
        with repo.lock:
            repo.synchronise(asked.login)
            return endpoint(asked, repo, **named)
    return missing()


def missing() -> Answer:
    return refused(404, "Not Found")


def refused(status: int, message: str, *errors: dict[str, Any]) -> Answer:
    return Answer(status, bodies.error(status, message, *errors))


def paged(asked: Request, path: str, everything: list[T]) -> tuple[list[T], dict[str, str]]:
    """A page, and the header that says whether more follows; nobody says how many there are."""
    size = min(int(asked.query.get("per_page") or DEFAULT_PAGE), MOST)
    page = max(int(asked.query.get("page") or 1), 1)
    headers = {}
    if page * size < len(everything):
        others = "&".join(f"{k}={v}" for k, v in sorted(asked.query.items()) if k != "page")
        headers["Link"] = f'<https://github.invalid{path}?{others}&page={page + 1}>; rel="next"'
    return everything[(page - 1) * size : page * size], headers
