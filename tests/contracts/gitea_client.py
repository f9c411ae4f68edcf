"""One repository at a Gitea, the fake or a real one, spoken to in plain HTTP and plain git.

Each call is held against the published descriptions of both Gitea and Forgejo on its way.
"""

import base64
import json
import os
import subprocess
import uuid
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from tests.contracts.openapi import Description
from tests.fixtures_git import Hand, person_at
from tests.project.checkout import ROOT

CONTRACTS = Path(os.environ.get("ORCH_CONTRACTS") or ROOT.parent / "shared" / "contracts")
# Gitea since 1.27 calls these fields otherwise and takes both; older ones and Forgejo know only these.
RENAMED = {"Do": "do", "MergeTitleField": "merge_title_field", "MergeMessageField": "merge_message_field"}
# Statuses that no description names, each seen on a real server or read in its source.
UNDOCUMENTED = {("POST", "merge", 422), ("POST", "merge", 500), ("POST", "statuses", 500)}


@cache
def descriptions() -> tuple[Description, ...]:
    return tuple(Description(CONTRACTS / f"{name}-swagger.json") for name in ("gitea", "forgejo"))


def conforms(method: str, path: str, query: dict[str, str], body: Any, status: int, answer: Any) -> None:
    """Hold one call against the descriptions; ``path`` is what follows ``/api/v1``."""
    for one in descriptions():
        sent = body
        if one.name.startswith("gitea") and path.endswith("/merge") and isinstance(body, dict):
            sent = {RENAMED.get(name, name): value for name, value in body.items()}
        if status < 400:  # what is wrong on purpose is not described
            one.request(method, path, query, sent)
        known = one.answer(method, path, status, answer)
        assert known or (method, _kind(path), status) in UNDOCUMENTED, f"{one.name}: {method} {path} {status}"


def _kind(path: str) -> str:
    return next((word for word in ("merge", "statuses") if word in path), path)


@dataclass(frozen=True)
class Told:
    """What was answered."""

    status: int
    body: Any
    headers: dict[str, str]


@dataclass
class Server:
    """A server, our token, and a repository that we have made there for this test."""

    url: str
    token: str
    root: Path
    repo: str = ""
    calls: list[tuple[str, str, Told]] = field(default_factory=list)
    person: Hand = field(init=False)
    _http: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False, timeout=30))

    def __post_init__(self) -> None:
        name = f"orch-conformance-{uuid.uuid4().hex[:10]}"
        asked = {"name": name, "private": True, "auto_init": False, "default_branch": "main"}
        self.repo = self.call("POST", "/user/repos", asked).body["full_name"]
        self.person = person_at(self.root / "person", {"README.md": "Sample\n"})
        assert self.push("HEAD:refs/heads/main") == ""

    def close(self) -> None:
        self.call("DELETE", f"/repos/{self.repo}")
        self._http.close()

    def call(self, method: str, path: str, body: Any = None, *, known: bool = True, **query: Any) -> Told:
        """One call below ``/api/v1``, as our user; `known`: with the token."""
        headers = {"Authorization": f"token {self.token}"} if known else {}
        asked = {name: str(value) for name, value in query.items()}
        told = self._http.request(
            method, f"{self.url}/api/v1{path}", params=asked, json=body, headers=headers
        )
        try:
            answer = told.json()
        except json.JSONDecodeError:
            answer = told.text
        found = Told(told.status_code, answer, dict(told.headers))
        if told.status_code not in (401,) and "page not found" not in told.text:
            conforms(method, path, asked, body, found.status, found.body)
        self.calls.append((method, path, found))
        return found

    def api(self, method: str, path: str, body: Any = None, **query: Any) -> Told:
        """One call about the repository."""
        return self.call(method, f"/repos/{self.repo}{path}", body, **query)

    def push(self, *refspecs: str) -> str:
        """Git's complaint, empty where it had none; options of ``git push`` may be among the words."""
        return self.git("push", "-q", f"{self.url}/{self.repo}.git", *refspecs)

    def git(self, command: str, *args: str) -> str:
        done = subprocess.run(
            ["git", command, *args],
            cwd=self.person.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": "/nonexistent",
                "GIT_TERMINAL_PROMPT": "0",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "http.extraHeader",
                "GIT_CONFIG_VALUE_0": "Authorization: Basic "
                + base64.b64encode(f"orch:{self.token}".encode()).decode(),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip() or "failed"

    def refs(self, *patterns: str) -> dict[str, str]:
        """References as the server shows them."""
        shown = self.git("ls-remote", f"{self.url}/{self.repo}.git", *patterns)
        return {ref: sha for sha, ref in (line.split("\t") for line in shown.splitlines())}

    def branch(self, name: str, files: dict[str, str], *, start: str = "main") -> str:
        """A branch with one commit; its tip."""
        self.person.git("checkout", "-q", "-B", name, start)
        sha = self.person.commit(f"Work on {name}", files)
        assert self.push(f"+HEAD:refs/heads/{name}") == ""
        self.person.git("checkout", "-q", "main")
        return sha

    def pull(self, branch: str, title: str = "Change it") -> Told:
        return self.api("POST", "/pulls", {"head": branch, "base": "main", "title": title, "body": "x <b>"})

    def merge(self, number: int, head: str, style: str = "merge", **more: str) -> Told:
        return self.api("POST", f"/pulls/{number}/merge", {"Do": style, "head_commit_id": head, **more})
