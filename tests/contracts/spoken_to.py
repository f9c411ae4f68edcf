"""One repository at a server, played or real, spoken to in plain HTTP and plain git."""

import base64
import json
import os
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx

from tests.fixtures_git import Hand, person_at


@dataclass(frozen=True)
class Told:
    """What was answered."""

    status: int
    body: Any
    headers: dict[str, str]


@dataclass
class SpokenTo:
    """A server, our token, and a repository that we have made there for this test."""

    url: str
    token: str
    root: Path
    private: bool = True
    asked_for: ClassVar[dict[str, Any]] = {}  # of a new repository
    repo: str = ""
    person: Hand = field(init=False)
    _http: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False, timeout=30))

    def __post_init__(self) -> None:
        name = f"orch-conformance-{uuid.uuid4().hex[:10]}"
        asked = {"name": name, "private": self.private, "auto_init": False, **self.asked_for}
        self.repo = self.call("POST", "/user/repos", asked).body["full_name"]
        self.person = person_at(self.root / "person", {"README.md": "Sample\n"})
        assert self.push("HEAD:refs/heads/main") == ""

    def close(self) -> None:
        self.call("DELETE", f"/repos/{self.repo}")
        self._http.close()

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Told:
        """One call below the API's root, as our user."""
        raise NotImplementedError

    def sent(
        self, method: str, address: str, body: Any, headers: dict[str, str], query: dict[str, str]
    ) -> Told:
        told = self._http.request(method, address, params=query, json=body, headers=headers)
        try:
            answer = told.json()
        except json.JSONDecodeError:
            answer = told.text
        return Told(told.status_code, answer, dict(told.headers))

    def api(self, method: str, path: str, body: Any = None, **query: Any) -> Told:
        """One call about the repository."""
        return self.call(method, f"/repos/{self.repo}{path}", body, **query)

    def pull(self, branch: str, title: str = "Change it") -> Told:
        return self.api("POST", "/pulls", {"head": branch, "base": "main", "title": title, "body": "x <b>"})

    # -- git -----------------------------------------------------------------------------------------------------

    def push(self, *refspecs: str) -> str:
        """Git's complaint, empty where it had none; options of ``git push`` may be among the words."""
        return self.git("push", "-q", f"{self.url}/{self.repo}.git", *refspecs)

    def git(self, command: str, *args: str) -> str:
        known = base64.b64encode(f"orch:{self.token}".encode()).decode()
        done = subprocess.run(
            ["git", command, *args],
            cwd=self.person.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": "/nonexistent",
                "GIT_TERMINAL_PROMPT": "0",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "http.extraHeader",
                "GIT_CONFIG_VALUE_0": f"Authorization: Basic {known}",
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
