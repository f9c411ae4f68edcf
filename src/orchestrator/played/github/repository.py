"""One repository of the server: a real bare git repository, and what the database of the server knows beside it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from orchestrator.played.common import git_side
from orchestrator.played.common.git_side import HEADS, GitRepository
from orchestrator.played.github.issues import Board

ZERO = "0" * 40
# As the server judges a push to a protected branch: the commits that meet its rules are written in a file beside it.
HOOK = """#!/bin/sh
if grep -qxF "$1" orch-fake/shut 2>/dev/null && ! grep -qxF "$3" orch-fake/allowed 2>/dev/null; then
    echo "error: GH006: Protected branch update failed for $1." >&2
    echo "error: Changes must be made through a pull request." >&2
    exit 1
fi
"""


@dataclass
class Rules:
    """What a branch asks for; rules of other kinds are only shown."""

    pull_request: bool = True
    checks: tuple[str, ...] = ()
    approvals: int = 0
    others: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Pull(git_side.Pull):
    """With what this server finds out by itself, a little later."""

    looks: int = 0  # at it, since its branch was moved
    reviews: list[dict[str, Any]] = field(default_factory=list)
    remarks: dict[int, list[dict[str, Any]]] = field(
        default_factory=dict
    )  # of each review, as they were sent


@dataclass
class Repository(GitRepository):
    """A repository and its pull requests."""

    hook: ClassVar[tuple[str, str]] = ("update", HOOK)
    merge_commits: bool = True  # whether its settings allow them
    pulls: list[Pull] = field(default_factory=list)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # of checks, by commit
    annotations: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # by run
    rules: dict[str, Rules] = field(default_factory=dict)
    looks_until_synced: int = 1  # looks at a pull request that still show its old head
    tell: Callable[[str, "Repository", dict[str, Any]], None] = lambda event, repo, about: None
    calendar: Callable[[], datetime] = lambda: datetime.now(UTC)
    people: set[str] = field(default_factory=set)  # accounts that there are, whatever they may do here
    issues: Board = field(init=False)
    _heads: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.issues = Board(self._tell_of_an_issue, self._next_number, self._now)

    def create(self) -> None:
        super().create()
        self.git("config", "receive.hideRefs", "refs/pull")

    @property
    def only_merges(self) -> bool:
        """Whether what lands is a commit of the server's own."""
        return self.default_branch in self.rules

    def _next_number(self) -> int:
        """Pull requests and issues are counted together."""
        return len(self.pulls) + len(self.issues.all) + 1

    def _now(self) -> datetime:
        return self.calendar()

    def _stamp(self) -> str:
        return self.calendar().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _tell_of_an_issue(self, event: str, about: dict[str, Any]) -> None:
        self.tell(event, self, about)

    # -- what pushes lead to -------------------------------------------------------------------------------------

    def synchronise(self, by: str = "") -> None:
        """What the server does after each push: it tells of it, closes what has lost its branch, and finds out what has
        been merged by it."""
        with self.lock:
            listed = self.git("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", HEADS)
            heads = {name: sha for sha, _, name in (line.partition(" ") for line in listed.splitlines())}
            moved = {
                name: (self._heads.get(name, ZERO), heads.get(name, ZERO))
                for name in {*heads, *self._heads}
                if heads.get(name) != self._heads.get(name)
            }
            self._heads = heads
            for name, (before, after) in moved.items():
                self.tell("push", self, {"branch": name, "before": before, "after": after, "by": by})
                if name == self.default_branch and ZERO not in (before, after) and self.issues.all:
                    said = self.git("log", "--format=%B", f"{before}..{after}")
                    self.issues.close_by_words(said, by=by, commit=after)
            for pull in [pull for pull in self.pulls if pull.state == "open"]:
                base = heads.get(pull.base)
                if base and pull.base in moved and self.is_ancestor(heads.get(pull.branch, pull.head), base):
                    pull.head = heads.get(pull.branch, pull.head)
                    self.record_merge(pull, base, by)
                elif pull.branch not in heads:
                    self.close(pull, by)
                elif pull.branch in moved:
                    pull.looks = 0
                    if self.looks_until_synced == 0:
                        self.look(pull)
            self.guard()

    def look(self, pull: Pull) -> None:
        """Somebody asks for it: its head follows its branch sooner or later."""
        tip = self.branch(pull.branch)
        if pull.state != "open" or tip is None or tip == pull.head:
            return
        pull.looks += 1
        if pull.looks > self.looks_until_synced:
            pull.head, pull.updated = tip, self._stamp()
            self.git("update-ref", f"refs/pull/{pull.number}/head", tip)
            self.tell("pull_request", self, {"action": "synchronize", "pull": pull, "by": pull.user})
            self.guard()

    def open(self, title: str, body: str, user: str, base: str, branch: str, head: str) -> Pull:
        stamp = self._stamp()
        pull = Pull(
            number=self._next_number(),
            title=title,
            body=body,
            user=user,
            base=base,
            branch=branch,
            head=head,
            created=stamp,
            updated=stamp,
        )
        self.pulls.append(pull)
        self.git("update-ref", f"refs/pull/{pull.number}/head", head)
        self.tell("pull_request", self, {"action": "opened", "pull": pull, "by": user})
        return pull

    def close(self, pull: Pull, by: str) -> None:
        pull.state, pull.closed, pull.updated = "closed", self._stamp(), self._stamp()
        self.tell("pull_request", self, {"action": "closed", "pull": pull, "by": by})

    def reopen(self, pull: Pull, by: str) -> None:
        pull.state, pull.closed, pull.updated = "open", None, self._stamp()
        self.tell("pull_request", self, {"action": "reopened", "pull": pull, "by": by})

    def record_merge(self, pull: Pull, landed: str, by: str) -> None:
        pull.merged, pull.merged_by, pull.merged_at, pull.merge_commit = True, by, self._stamp(), landed
        self.close(pull, by)
        if pull.base == self.default_branch:
            self.issues.close_by_words(f"{pull.title}\n{pull.body}", by=by, commit=landed)

    # -- rules ---------------------------------------------------------------------------------------------------

    def protect(self, branch: str, rules: Rules) -> None:
        self.rules[branch] = rules
        self.guard()

    def why_not(self, branch: str, sha: str) -> str | None:
        """Which rule a commit does not meet; None where it meets all."""
        rules = self.rules.get(branch, Rules(pull_request=False))
        brings = [pull for pull in self.pulls if pull.state == "open" and pull.head == sha]
        if rules.pull_request and not brings:
            return "Changes must be made through a pull request."
        newest = {one["context"]: one["state"] for one in self.statuses.get(sha, [])}
        for check in rules.checks:
            if newest.get(check) != "success":
                return f'Required status check "{check}" is {"failing" if check in newest else "expected"}.'
        given = {
            review["user"]["login"]
            for pull in brings
            for review in pull.reviews
            if review["state"] == "APPROVED" and review["commit_id"] == sha
        }
        if len(given) < rules.approvals:
            return f"At least {rules.approvals} approving review is required by reviewers with write access."
        return None

    def guard(self) -> None:
        """Write down for the hook what may be pushed: heads of pull requests, and what has checks."""
        known = {pull.head for pull in self.pulls if pull.state == "open"} | set(self.statuses)
        allowed = [sha for sha in known for branch in self.rules if self.why_not(branch, sha) is None]
        (self.path / "orch-fake" / "allowed").write_text("".join(f"{sha}\n" for sha in allowed))
        (self.path / "orch-fake" / "shut").write_text("".join(f"{HEADS}{name}\n" for name in self.rules))
