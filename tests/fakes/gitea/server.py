"""The HTTP server: who asks, which failure waits for the request, and what is written into the journal."""

import base64
import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fakes.gitea import bodies
from tests.fakes.gitea.api import Answer, Request, answer
from tests.fakes.gitea.faults import Call, Fault, How, Journal
from tests.fakes.gitea.git_side import serve_git
from tests.fakes.gitea.repository import Pull, Repository, Style

BOT, PERSON = "orchbot", "dana"
TOKEN = "f4k3-0rchb0t-t0ken-" + "0" * 21
GIT_PATH = re.compile(
    r"/(?P<name>[^/]+/[^/]+?)(?:\.git)?(?P<service>/info/refs|/git-(?:upload|receive)-pack)\Z"
)
HOLD_S = 60.0  # a request that a test holds and forgets


class FakeGitea:
    """One server on loopback. `version` may be changed at any time, as an upgrade would."""

    def __init__(self, root: Path, *, version: str = "1.26.4") -> None:
        self.root = root
        self.version = version
        self.administrators: set[str] = set()
        self.tokens = {TOKEN: BOT, "p3rs0n-t0ken-" + "1" * 27: PERSON}
        self.repositories: dict[str, Repository] = {}
        self.redirects: dict[str, str] = {}
        self.journal = Journal()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.hub = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> "FakeGitea":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.let_go()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

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

    def fail(self, method: str, pattern: str, how: How, **more: Any) -> Fault:
        fault = Fault(method, re.compile(pattern), how, **more)
        self.journal.faults.append(fault)
        return fault

    def revoke_token(self) -> None:
        self.tokens = {token: login for token, login in self.tokens.items() if login != BOT}

    def merge_by_hand(self, repo: Repository, pull: Pull) -> None:
        with repo.lock:
            repo.synchronise()
            repo.record_merge(pull, repo.land(pull, Style.MERGE, "By hand\n", PERSON), PERSON)

    def close_by_hand(self, repo: Repository, pull: Pull) -> None:
        with repo.lock:
            repo.close(pull)

    def calls(self, method: str, pattern: str) -> list[Call]:
        """What was sent to the API, by method and by the path's end."""
        found = re.compile(pattern)
        return [
            call for call in self.journal.calls if call.method == method and found.search(call.path)
        ]  # fmt: skip

    def login(self, headers: dict[str, str]) -> tuple[str | None, bool]:
        """Who asks, and whether a token was given that is none."""
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            user, _, password = base64.b64decode(value).decode().partition(":")
            value = password if password not in ("", "x-oauth-basic") else user
        login = self.tokens.get(value)
        return login, bool(value) and login is None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: FakeGitea


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """The journal is the log."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

    def _serve(self) -> None:
        hub, parts = self.server.hub, urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self._body(headers)
        fault = hub.journal.fault_of(self.command, parts.path)
        if fault is not None and fault.how is How.HELD:
            fault.go_on.wait(HOLD_S)
        if fault is not None and fault.how is How.BEFORE:
            told = Answer(fault.status, bodies.error(hub.url, "fault"), fault.headers)
        elif parts.path.startswith(bodies.API + "/"):
            told = self._api(parts.path, parts.query, headers, body)
        else:
            told = self._git(parts.path, parts.query, headers, body)
        if fault is not None and fault.how is How.AFTER:
            told = Answer(fault.status, bodies.error(hub.url, ""), fault.headers)
        if fault is not None and fault.how is How.GARBAGE:
            told = Answer(told.status, "<html>proxy</html>")
        if fault is not None and fault.how is How.HELD_AFTER:
            fault.go_on.wait(HOLD_S)
        lost = fault is not None and fault.how is How.LOST
        hub.journal.add(
            Call(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query)),
                _parsed(body),
                0 if lost else told.status,
                told.body if not isinstance(told.body, bytes) else None,
                headers,
            )
        )
        if lost:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(told)

    def _api(self, path: str, query: str, headers: dict[str, str], body: bytes) -> Answer:
        hub = self.server.hub
        login, wrong = hub.login(headers)
        if wrong:
            return Answer(401, bodies.error(hub.url, "invalid username, password or token"))
        below = unquote(path.removeprefix(bodies.API))
        for old, new in hub.redirects.items():
            if below.lower().removeprefix("/repos/").startswith((f"{old}/", old)) and not hub.find(old):
                to = f"{bodies.API}/repos/{new}{below[len('/repos/' + old) :]}"
                return Answer(307, None, {"Location": to + (f"?{query}" if query else "")})
        asked = Request(login, dict(parse_qsl(query)), _parsed(body) or {}, hub.url)
        return answer(hub, self.command, below, asked)

    def _git(self, path: str, query: str, headers: dict[str, str], body: bytes) -> Answer:
        hub = self.server.hub
        match = GIT_PATH.match(path)
        if match is None:
            return Answer(404, "404 page not found\n")
        name, service = match["name"], match["service"]
        if name.lower() in hub.redirects and hub.find(name) is None:
            to = f"/{hub.redirects[name.lower()]}{service}"
            return Answer(307, None, {"Location": to + (f"?{query}" if query else "")})
        repo, (login, _) = hub.find(name), hub.login(headers)
        if login is None:
            return Answer(401, "Unauthorized\n", {"WWW-Authenticate": 'Basic realm="Gitea"'})
        if repo is None or not repo.rights.get(login):
            return Answer(404, "Repository not found\n")
        writes = "git-receive-pack" in service + query
        if writes and repo.rights[login] == "read":
            return Answer(403, "User permission denied\n")
        told = serve_git(repo, self.command, service, query, headers, body, login)
        if writes:
            repo.synchronise()
        return Answer(told.status, told.body, told.headers)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, told: Answer) -> None:
        content, kind = b"", ""
        if isinstance(told.body, bytes):
            content = told.body
        elif isinstance(told.body, str):
            content, kind = told.body.encode(), "text/plain; charset=utf-8"
        elif told.body is not None:
            content, kind = json.dumps(told.body).encode(), "application/json;charset=utf-8"
        try:
            self.send_response(told.status)
            for name, value in {**({"Content-Type": kind} if kind else {}), **told.headers}.items():
                self.send_header(name, value)
            if told.status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # who asked has gone away: it says nothing about the effect


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return None
