"""A real bare repository, and smart HTTP over the real ``git http-backend``."""

import os
import subprocess
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from orchestrator.played.common.hooks import Hook

HEADS = "refs/heads/"


@dataclass(frozen=True)
class GitAnswer:
    """What git's own program answers."""

    status: int
    headers: dict[str, str]
    body: bytes


class GitFailed(Exception):
    """Git said no; its words are the message."""


@dataclass(kw_only=True)
class Pull:
    """A pull request as the database of every such server has it."""

    number: int
    title: str
    body: str
    user: str
    base: str
    branch: str
    head: str
    created: str
    updated: str
    state: str = "open"
    closed: str | None = None
    merged: bool = False
    merged_by: str | None = None
    merged_at: str | None = None
    merge_commit: str | None = None


@dataclass
class GitRepository:
    """A repository with who may do what to it. Everything below `lock` is one request at a time."""

    id: int
    owner: str
    name: str
    path: Path
    default_branch: str = "main"
    private: bool = True
    archived: bool = False
    rights: dict[str, str] = field(default_factory=dict)  # login -> read, write or admin
    lock: threading.RLock = field(default_factory=threading.RLock)
    webhooks: list[Hook] = field(default_factory=list)
    hook: ClassVar[tuple[str, str]]  # name and text of the one that guards protected branches

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    def create(self) -> None:
        self.path.mkdir(parents=True)
        self.git("init", "-q", "--bare", "-b", self.default_branch)
        self.git("config", "http.receivepack", "true")
        self.git("config", "receive.autogc", "false")
        self.git("config", "uploadpack.allowFilter", "true")
        name, text = self.hook
        hook = self.path / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(text)
        hook.chmod(0o755)
        (self.path / "orch-fake").mkdir()

    def git(self, *args: str, input: str | None = None, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["git", *args],
            cwd=self.path,
            env={**environment(), **(env or {})},
            input=input,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise GitFailed(done.stderr + done.stdout)
        return done.stdout.strip()

    def sha(self, name: str) -> str | None:
        try:
            return self.git("rev-parse", "-q", "--verify", f"{name}^{{commit}}")
        except GitFailed:
            return None

    def branch(self, name: str) -> str | None:
        return self.sha(HEADS + name)

    def is_ancestor(self, older: str, newer: str) -> bool:
        try:
            self.git("merge-base", "--is-ancestor", older, newer)
        except GitFailed:
            return False
        return True

    def merge_commit(self, tip: str, head: str, message: str, by: str, *, squash: bool = False) -> str:
        """The commit that brings ``head`` into ``tip``.

        :raises GitFailed: they conflict.
        """
        tree = self.git("merge-tree", "--write-tree", tip, head).splitlines()[0]
        parents = ["-p", tip, *([] if squash else ["-p", head])]
        who = {"GIT_AUTHOR_NAME": by, "GIT_COMMITTER_NAME": by}
        return self.git("commit-tree", tree, *parents, input=message, env=who)


def serve_git(
    path: Path, method: str, service: str, query: str, headers: dict[str, str], body: bytes, login: str
) -> GitAnswer:
    """One request; ``service`` is what follows the repository's address, such as ``/info/refs``."""
    given = {
        **environment(),
        "GIT_PROJECT_ROOT": str(path.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{path.name}{service}",
        "QUERY_STRING": query,
        "REQUEST_METHOD": method,
        "REMOTE_USER": login,
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
    }
    done = subprocess.run(["git", "http-backend"], env=given, input=body, capture_output=True, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    told = dict(line.split(": ", 1) for line in head.decode("latin-1").splitlines() if ": " in line)
    status = int(told.pop("Status", "200" if done.returncode == 0 else "500").split()[0])
    return GitAnswer(status, told, content)


def environment() -> dict[str, str]:
    who = {"NAME": "Server", "EMAIL": "server@fake.invalid"}
    named = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in who.items()}
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **named}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # with one second's resolution, as there
