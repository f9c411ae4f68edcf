"""The server: what it has, who asks, whether for its API or for a repository's git, and how much more it answers."""

import hashlib
import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from orchestrator.played.common.git_side import serve_git
from orchestrator.played.common.hooks import Hook, Hooks
from orchestrator.played.common.served import Answer, Asked, Served, secret_of
from orchestrator.played.github import api, bodies, issue_api, issue_bodies
from orchestrator.played.github.hooks import EVENTS, headers
from orchestrator.played.github.repository import Pull, Repository
from orchestrator.played.github.routes import Request, answer, missing, refused

BOT, PERSON, STRANGER = "orchbot", "dana", "mallory"
TOKEN = "github_pat_f4k3" + "0" * 40
GIT_PATH = re.compile(
    r"/(?P<name>[^/]+/[^/]+?)(?:\.git)?(?P<service>/info/refs|/git-(?:upload|receive)-pack)\Z"
)
PER_HOUR = 5000
ENDPOINTS = (api, issue_api)  # they enter their routes when they are imported


class FakeGitHub(Served):
    """One server on loopback, laid out as an Enterprise Server is."""

    def __init__(self, root: Path, *, calendar: Callable[[], datetime] | None = None) -> None:
        """``calendar`` is the server's clock, by default the machine's."""
        super().__init__()
        self._calendar = calendar
        self.root = root
        self.tokens = {TOKEN: BOT, "ghp_p3rs0n" + "1" * 30: PERSON}
        self.repositories: dict[str, Repository] = {}
        self.redirects: dict[str, str] = {}
        self.remaining = PER_HOUR  # requests in this hour
        self.hooks = Hooks(headers)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.hooks.end()

    @property
    def token(self) -> str:
        return next((token for token, login in self.tokens.items() if login == BOT), TOKEN)

    def now(self) -> datetime:
        return self._calendar() if self._calendar is not None else super().now()

    # -- what is there -------------------------------------------------------------------------------------------

    def create(self, owner: str, name: str, **options: Any) -> Repository:
        number = len(self.repositories) + 1
        path = self.root / f"{owner}-{name}-{number}.git"
        repo = Repository(number, owner, name, path, tell=self._tell, calendar=self.now, **options)
        repo.create()
        repo.rights.update({BOT: "write", PERSON: "write"})
        repo.people.update({BOT, PERSON, STRANGER})
        self.repositories[repo.full_name.lower()] = repo
        return repo

    def find(self, full_name: str) -> Repository | None:
        return self.repositories.get(full_name.lower())

    def rename(self, repo: Repository, name: str) -> None:
        """The old address leads to the new one, as there."""
        old = repo.full_name
        del self.repositories[old.lower()]
        repo.name = name
        self.repositories[repo.full_name.lower()] = repo
        self.redirects[old.lower()] = repo.full_name

    def hook(self, url: str, secret: str) -> Hook:
        """A webhook for every repository; it says hello."""
        made = Hook(url, secret, EVENTS)
        self.hooks.known.append(made)
        for repo in self.repositories.values():
            self._tell("ping", repo, {})
        return made

    # -- what people do ------------------------------------------------------------------------------------------

    def revoke_token(self) -> None:
        self.tokens = {token: login for token, login in self.tokens.items() if login != BOT}

    def merge_by_hand(self, repo: Repository, pull: Pull, words: str = "By hand") -> None:
        """``words`` are those of the commit, which may close issues."""
        with repo.lock:
            repo.synchronise(PERSON)
            tip = repo.branch(pull.base)
            assert tip is not None
            pull.head = repo.branch(pull.branch) or pull.head
            landed = repo.merge_commit(tip, pull.head, f"{words}\n", PERSON)
            repo.git("update-ref", f"refs/heads/{pull.base}", landed, tip)
            repo.record_merge(pull, landed, PERSON)
            repo.synchronise(PERSON)

    def say(self, login: str, method: str, repo: Repository, path: str, body: dict[str, Any]) -> Any:
        """What somebody else asks of a repository: a check's report, a person's review."""
        request = Request(login, {}, body, self.url)
        told = answer(self.find, method, f"/repos/{repo.full_name}{path}", request)
        assert told.status < 300, told
        return told.body

    def close_by_hand(self, repo: Repository, pull: Pull) -> None:
        with repo.lock:
            repo.close(pull, PERSON)

    # -- what is answered ----------------------------------------------------------------------------------------

    def answer(self, asked: Asked) -> Answer:
        return self._api(asked) if asked.path.startswith(bodies.API + "/") else self._git(asked)

    def error(self, status: int) -> Any:
        return bodies.error(status, "Server Error")

    def _api(self, asked: Asked) -> Answer:
        login = self.tokens.get(secret_of(asked.headers))
        if login is None:
            return refused(401, "Bad credentials")
        below = unquote(asked.path.removeprefix(bodies.API))
        told = self._limited(login) or self._moved(below) or self._whole(login, below, asked)
        if told is None:
            request = Request(login, dict(parse_qsl(asked.query)), asked.json() or {}, self.url)
            told = answer(self.find, asked.method, below, request)
        if asked.method == "GET" and told.status == 200:
            tag = 'W/"' + hashlib.sha256(json.dumps(told.body).encode()).hexdigest() + '"'
            told.headers["ETag"] = tag
            if asked.headers.get("if-none-match") == tag:
                told = Answer(304, None, {"ETag": tag})
        if told.status != 304:  # that does not count
            self.remaining = max(0, self.remaining - 1)
        told.headers |= {
            "X-RateLimit-Limit": str(PER_HOUR),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(int(self.now().timestamp()) + 900),
            "X-RateLimit-Resource": "core",
            "X-GitHub-Request-Id": "F4K3",
        }
        return told

    def _whole(self, login: str, below: str, asked: Asked) -> Answer | None:
        """What is about no repository that there is, or about its being there."""
        body = asked.json() or {}
        if (asked.method, below) == ("GET", "/user"):
            return Answer(200, bodies.user(login))
        if asked.method == "GET" and below.startswith("/repositories/"):
            number = below.removeprefix("/repositories/")
            known = next((one for one in self.repositories.values() if str(one.id) == number), None)
            seen = known is not None and known.rights.get(login)
            return Answer(200, bodies.repository(self.url, known, login)) if known and seen else missing()
        if (asked.method, below) == ("POST", "/user/repos"):
            repo = self.create(login, body["name"], private=body.get("private", False))
            repo.rights[login] = "admin"
            return Answer(201, bodies.repository(self.url, repo, login))
        mine = self.find(below.removeprefix("/repos/"))
        if mine is None or mine.rights.get(login) != "admin":
            return None
        if asked.method == "DELETE":
            del self.repositories[mine.full_name.lower()]
            return Answer(204)
        if asked.method == "PATCH" and "name" in body:
            self.rename(mine, body["name"])
            return Answer(200, bodies.repository(self.url, mine, login))
        return None

    def _limited(self, login: str) -> Answer | None:
        if self.remaining > 0:
            return None
        return refused(403, f"API rate limit exceeded for user ID {sum(login.encode())}.")

    def _moved(self, below: str) -> Answer | None:
        for old, new in self.redirects.items():
            if below.lower().removeprefix("/repos/").startswith((f"{old}/", old)) and not self.find(old):
                repo = self.find(new)
                to = f"{self.url}{bodies.API}/repositories/{repo.id if repo else 0}"
                return Answer(301, {**bodies.error(301, "Moved Permanently"), "url": to}, {"Location": to})
        return None

    def _git(self, asked: Asked) -> Answer:
        match = GIT_PATH.match(asked.path)
        if match is None:
            return Answer(404, "Not Found")
        name, service = match["name"], match["service"]
        if name.lower() in self.redirects and self.find(name) is None:
            to = f"{self.url}/{self.redirects[name.lower()]}.git{service}"
            return Answer(301, None, {"Location": to + (f"?{asked.query}" if asked.query else "")})
        repo, login = self.find(name), self.tokens.get(secret_of(asked.headers))
        if login is None:
            return Answer(401, "Repository not found.", {"WWW-Authenticate": 'Basic realm="GitHub"'})
        if repo is None or not repo.rights.get(login):
            return Answer(404, "Repository not found.")
        writes = "git-receive-pack" in service + asked.query
        if writes and (repo.rights[login] == "read" or repo.archived):
            return Answer(403, "Write access to repository not granted.")
        if writes:  # what was pushed past it
            repo.synchronise()
        told = serve_git(repo.path, asked.method, service, asked.query, asked.headers, asked.body, login)
        if writes:
            repo.synchronise(login)
        return Answer(told.status, told.body, told.headers)

    def _tell(self, event: str, repo: Repository, about: dict[str, Any]) -> None:
        payload = bodies.delivery(event, self.url, repo, about)
        if event in ("issues", "issue_comment"):
            payload |= issue_bodies.delivery(self.url, repo, about)
        self.hooks.tell(event, payload, repo.webhooks)
