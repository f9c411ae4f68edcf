"""The server: what it has, who asks, and whether for its API or for a repository's git."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from orchestrator.played.common.git_side import serve_git
from orchestrator.played.common.hooks import Hooks
from orchestrator.played.common.served import Answer, Asked, Served, secret_of
from orchestrator.played.gitea import bodies
from orchestrator.played.gitea.api import Request, answer
from orchestrator.played.gitea.hooks import headers
from orchestrator.played.gitea.repository import ZERO, Pull, Repository, Style

BOT, PERSON = "orchbot", "dana"
TOKEN = "f4k3-0rchb0t-t0ken-" + "0" * 21
GIT_PATH = re.compile(
    r"/(?P<name>[^/]+/[^/]+?)(?:\.git)?(?P<service>/info/refs|/git-(?:upload|receive)-pack)\Z"
)


class FakeGitea(Served):
    """One server on loopback. `version` may be changed at any time, as an upgrade would."""

    def __init__(self, root: Path, *, version: str = "1.26.4") -> None:
        super().__init__()
        self.root = root
        self.version = version
        self.administrators: set[str] = set()
        self.scopes: set[str] = set()
        self.tokens = {TOKEN: BOT, "p3rs0n-t0ken-" + "1" * 27: PERSON}
        self.repositories: dict[str, Repository] = {}
        self.redirects: dict[str, str] = {}
        self.hooks = Hooks(headers)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.hooks.end()

    @property
    def token(self) -> str:
        return next((token for token, login in self.tokens.items() if login == BOT), TOKEN)

    # -- what is there -------------------------------------------------------------------------------------------

    def create(self, owner: str, name: str, **options: Any) -> Repository:
        number = len(self.repositories) + 1
        repo = Repository(number, owner, name, self.root / f"{owner}-{name}-{number}.git", **options)
        repo.create()
        repo.rights.update({BOT: "write", PERSON: "write", **({owner: "admin"} if owner == BOT else {})})
        self.repositories[repo.full_name.lower()] = repo
        return repo

    def find(self, full_name: str) -> Repository | None:
        return self.repositories.get(full_name.lower())

    def remove(self, repo: Repository) -> None:
        del self.repositories[repo.full_name.lower()]

    def rename(self, repo: Repository, name: str) -> None:
        """The old address leads to the new one, as there."""
        old = repo.full_name
        self.remove(repo)
        repo.name = name
        self.repositories[repo.full_name.lower()] = repo
        self.redirects[old.lower()] = repo.full_name

    # -- what goes wrong, and what people do ---------------------------------------------------------------------

    def revoke_token(self) -> None:
        self.tokens = {token: login for token, login in self.tokens.items() if login != BOT}

    def merge_by_hand(self, repo: Repository, pull: Pull) -> None:
        with repo.lock:
            repo.synchronise()
            repo.record_merge(pull, repo.land(pull, Style.MERGE, "By hand\n", PERSON), PERSON)

    def say(self, login: str, method: str, repo: Repository, path: str, body: dict[str, Any]) -> Any:
        """What somebody else asks of a repository: a check's report, a person's review."""
        request = Request(login, {}, body, self.url)
        told = answer(self, method, f"/repos/{repo.full_name}{path}", request)
        assert told.status < 300, told
        return told.body

    def close_by_hand(self, repo: Repository, pull: Pull) -> None:
        with repo.lock:
            repo.close(pull)

    # -- what is answered ----------------------------------------------------------------------------------------

    def answer(self, asked: Asked) -> Answer:
        return self._api(asked) if asked.path.startswith(bodies.API + "/") else self._git(asked)

    def error(self, status: int) -> Any:
        return bodies.error(self.url, "fault")

    def _api(self, asked: Asked) -> Answer:
        secret = secret_of(asked.headers)
        login = self.tokens.get(secret)
        if secret and login is None:
            return Answer(401, bodies.error(self.url, "invalid username, password or token"))
        below = unquote(asked.path.removeprefix(bodies.API))
        for old, new in self.redirects.items():
            if below.lower().removeprefix("/repos/").startswith((f"{old}/", old)) and not self.find(old):
                to = f"{bodies.API}/repos/{new}{below[len('/repos/' + old) :]}"
                return Answer(307, None, {"Location": to + (f"?{asked.query}" if asked.query else "")})
        request = Request(login, dict(parse_qsl(asked.query)), asked.json() or {}, self.url)
        return answer(self, asked.method, below, request)

    def _git(self, asked: Asked) -> Answer:
        match = GIT_PATH.match(asked.path)
        if match is None:
            return Answer(404, "404 page not found\n")
        name, service = match["name"], match["service"]
        if name.lower() in self.redirects and self.find(name) is None:
            to = f"/{self.redirects[name.lower()]}{service}"
            return Answer(307, None, {"Location": to + (f"?{asked.query}" if asked.query else "")})
        repo, login = self.find(name), self.tokens.get(secret_of(asked.headers))
        if login is None:
            return Answer(401, "Unauthorized\n", {"WWW-Authenticate": 'Basic realm="Gitea"'})
        if repo is None or not repo.rights.get(login):
            return Answer(404, "Repository not found\n")
        writes = "git-receive-pack" in service + asked.query
        if writes and repo.rights[login] == "read":
            return Answer(403, "User permission denied\n")
        if writes:  # what was pushed past it is nobody's
            repo.moved()
        told = serve_git(repo.path, asked.method, service, asked.query, asked.headers, asked.body, login)
        if writes:
            repo.synchronise()
            self._tell_of_pushes(repo, login)
        return Answer(told.status, told.body, told.headers)

    def _tell_of_pushes(self, repo: Repository, login: str) -> None:
        for branch, before, after in repo.moved():
            self.hooks.tell("push", bodies.push(self.url, repo, branch, before, after, login), repo.webhooks)
            if after == ZERO:
                self.hooks.tell("delete", bodies.deleted(self.url, repo, branch, login), repo.webhooks)
