"""One repository of the server: a real bare git repository, and what the database of the server knows beside it."""

import os
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HEADS = "refs/heads/"
WIP = ("WIP:", "[WIP]")
ZERO = "0" * 40
# As the server's own hook: who may push to a protected branch is written in a file beside it.
HOOK = """#!/bin/sh
while read -r old new ref; do
    if [ -f orch-fake/protected ] && grep -qxF "$ref" orch-fake/protected; then
        echo "Gitea: Not allowed to push to protected branch ${ref#refs/heads/}" >&2
        exit 1
    fi
done
"""


class Style(StrEnum):
    """The ways of merging that a repository may allow."""

    MERGE = "merge"
    SQUASH = "squash"
    FAST_FORWARD = "fast-forward-only"


@dataclass
class Pull:
    """A pull request as the database has it."""

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
    merge_base: str | None = None
    checked: str | None = None  # the head whose mergeability has been computed
    mergeable: bool = True  # as the cache has it
    branch_gone: bool = False
    reviews: list[dict[str, Any]] = field(default_factory=list)

    @property
    def draft(self) -> bool:
        return self.title.upper().startswith(WIP)


class GitFailed(Exception):
    """Git said no; its words are the message."""


@dataclass
class Repository:
    """A repository and its pull requests. Everything below `lock` is one request at a time."""

    id: int
    owner: str
    name: str
    path: Path
    default_branch: str = "main"
    private: bool = True
    archived: bool = False
    styles: set[Style] = field(default_factory=lambda: set(Style))
    rights: dict[str, str] = field(default_factory=dict)  # login -> read, write or admin
    pulls: list[Pull] = field(default_factory=list)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    protections: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    looks_until_checked: int = 1  # looks at a pull request that still find its mergeability uncomputed
    unrecorded_merges: int = 0  # so many merges are pushed and then not recorded (go-gitea/gitea#38560)
    _looks: dict[int, int] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    def create(self) -> None:
        self.path.mkdir(parents=True)
        self.git("init", "-q", "--bare", "-b", self.default_branch)
        self.git("config", "http.receivepack", "true")
        self.git("config", "receive.autogc", "false")
        self.git("config", "uploadpack.allowFilter", "true")
        hook = self.path / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(HOOK)
        hook.chmod(0o755)
        (self.path / "orch-fake").mkdir()

    # -- git -----------------------------------------------------------------------------------------------------

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

    # -- what pushes lead to -------------------------------------------------------------------------------------

    def synchronise(self) -> None:
        """What the server does after each push: heads follow their branches, and a lost branch closes."""
        with self.lock:
            for pull in self.pulls:
                if pull.state != "open":
                    pull.branch_gone = pull.branch_gone or self.branch(pull.branch) is None
                    continue
                tip = self.branch(pull.branch)
                if tip is None:
                    pull.branch_gone = True
                    self.close(pull)
                elif tip != pull.head:
                    pull.head, pull.checked, pull.updated = tip, None, now()
                    self._looks.pop(pull.number, None)
                    self._outdate_reviews(pull)
                    self.git("update-ref", f"refs/pull/{pull.number}/head", tip)

    def open(self, title: str, body: str, user: str, base: str, branch: str, head: str) -> Pull:
        stamp = now()
        pull = Pull(len(self.pulls) + 1, title, body, user, base, branch, head, stamp, stamp)
        pull.merge_base = self.git("merge-base", HEADS + base, head)
        self.pulls.append(pull)
        self.git("update-ref", f"refs/pull/{pull.number}/head", head)
        return pull

    def close(self, pull: Pull) -> None:
        pull.state, pull.closed = "closed", now()

    def checking(self, pull: Pull) -> bool:
        """Whether its mergeability is still to be computed. Every look brings the check on, as at the server."""
        if pull.checked == pull.head or pull.state != "open":
            return False
        looks = self._looks.get(pull.number, 0)
        self._looks[pull.number] = looks + 1
        if looks < self.looks_until_checked:
            pull.mergeable = False
            return True
        pull.checked = pull.head
        pull.mergeable = not pull.draft and not self._conflicts(pull)
        return False

    def _conflicts(self, pull: Pull) -> bool:
        try:
            self.git("merge-tree", "--write-tree", HEADS + pull.base, pull.head)
        except GitFailed:
            return True
        return False

    def _outdate_reviews(self, pull: Pull) -> None:
        dismiss = self.rule(pull.base).get("dismiss_stale_approvals", False)
        for review in pull.reviews:
            review["stale"] = review["commit_id"] != pull.head
            review["dismissed"] = review["dismissed"] or (dismiss and review["state"] == "APPROVED")

    # -- protection ----------------------------------------------------------------------------------------------

    def rule(self, branch: str) -> dict[str, Any]:
        return self.protections.get(branch, {})

    def write_protection(self) -> None:
        shut = [f"{HEADS}{name}" for name, rule in self.protections.items() if not rule["enable_push"]]
        (self.path / "orch-fake" / "protected").write_text("".join(f"{ref}\n" for ref in shut))

    def why_protected(self, pull: Pull) -> str | None:
        """Which rule of the base branch is not met; None where all are."""
        rule = self.rule(pull.base)
        if rule.get("enable_status_check") and not self._all_successful(
            pull.head, rule["status_check_contexts"]
        ):
            return "Not all required status checks successful"
        counted = [r for r in pull.reviews if not r["dismissed"]]
        approvals = {r["user"]["login"] for r in counted if r["state"] == "APPROVED"}
        if len(approvals) < rule.get("required_approvals", 0):
            return "Does not have enough approvals"
        if rule.get("block_on_rejected_reviews") and any(r["state"] == "REQUEST_CHANGES" for r in counted):
            return "There are requested changes"
        if rule.get("block_on_outdated_branch") and not self.is_ancestor(HEADS + pull.base, pull.head):
            return "The head branch is behind the base branch"
        return None

    def _all_successful(self, sha: str, wanted: Iterable[str]) -> bool:
        newest = {one["context"]: one["status"] for one in self.statuses.get(sha, [])}
        return all(
            any(
                fnmatchcase(context, pattern) and state == "success"
                for context, state in newest.items()
            )
            for pattern in wanted
        )  # fmt: skip

    # -- merging -------------------------------------------------------------------------------------------------

    def land(self, pull: Pull, style: Style, message: str, by: str) -> str:
        """Move the base branch, as a push that nobody may overtake.

        :raises GitFailed: it does not go that way.
        """
        tip = self.branch(pull.base)
        assert tip is not None
        if style is Style.FAST_FORWARD:
            if not self.is_ancestor(tip, pull.head):
                raise GitFailed("fatal: Not possible to fast-forward, aborting.")
            landed = pull.head
        else:
            tree = self.git("merge-tree", "--write-tree", tip, pull.head).splitlines()[0]
            parents = ["-p", tip] + (["-p", pull.head] if style is Style.MERGE else [])
            who = {"GIT_AUTHOR_NAME": by, "GIT_COMMITTER_NAME": by}
            landed = self.git("commit-tree", tree, *parents, input=message, env=who)
        self.git("update-ref", HEADS + pull.base, landed, tip)
        return landed

    def record_merge(self, pull: Pull, landed: str, by: str) -> None:
        self.close(pull)
        pull.merged, pull.merged_by, pull.merged_at, pull.merge_commit = True, by, pull.closed, landed


def environment() -> dict[str, str]:
    who = {"NAME": "Gitea", "EMAIL": "gitea@fake.invalid"}
    named = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in who.items()}
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **named}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # with one second's resolution, as there
