"""One repository of the server: a real bare git repository, and what the database of the server knows beside it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from orchestrator.played.common import git_side
from orchestrator.played.common.git_side import HEADS, GitFailed, GitRepository, now

ZERO = "0" * 40
WIP = ("WIP:", "[WIP]")
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


@dataclass(kw_only=True)
class Pull(git_side.Pull):
    """With what this server finds out by itself."""

    merge_base: str | None = None
    checked: str | None = None  # the head whose mergeability has been computed
    mergeable: bool = True  # as the cache has it
    branch_gone: bool = False
    reviews: list[dict[str, Any]] = field(default_factory=list)
    remarks: dict[int, list[dict[str, Any]]] = field(
        default_factory=dict
    )  # of each review, as they were sent

    @property
    def draft(self) -> bool:
        return self.title.upper().startswith(WIP)


@dataclass
class Repository(GitRepository):
    """A repository and its pull requests."""

    hook: ClassVar[tuple[str, str]] = ("pre-receive", HOOK)
    styles: set[Style] = field(default_factory=lambda: set(Style))
    pulls: list[Pull] = field(default_factory=list)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    protections: dict[str, dict[str, Any]] = field(default_factory=dict)
    looks_until_checked: int = 1  # looks at a pull request that still find its mergeability uncomputed
    unrecorded_merges: int = 0  # so many merges are pushed and then not recorded (go-gitea/gitea#38560)
    _looks: dict[int, int] = field(default_factory=dict)
    _heads: dict[str, str] = field(default_factory=dict)

    @property
    def only_merges(self) -> bool:
        """Whether what lands is a commit of the server's own."""
        return Style.FAST_FORWARD not in self.styles

    # -- what pushes lead to -------------------------------------------------------------------------------------

    def moved(self) -> list[tuple[str, str, str]]:
        """Branches with what they were at and are at, since this was last asked."""
        with self.lock:
            listed = self.git("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", HEADS)
            heads = {name: sha for sha, _, name in (line.partition(" ") for line in listed.splitlines())}
            before, self._heads = self._heads, heads
            names = [name for name in {**before, **heads} if before.get(name) != heads.get(name)]
            return [(name, before.get(name, ZERO), heads.get(name, ZERO)) for name in names]

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
        pull = Pull(
            number=len(self.pulls) + 1,
            title=title,
            body=body,
            user=user,
            base=base,
            branch=branch,
            head=head,
            created=stamp,
            updated=stamp,
        )
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
            squash = style is not Style.MERGE
            landed = self.merge_commit(tip, pull.head, message, by, squash=squash)
        self.git("update-ref", HEADS + pull.base, landed, tip)
        return landed

    def record_merge(self, pull: Pull, landed: str, by: str) -> None:
        self.close(pull)
        pull.merged, pull.merged_by, pull.merged_at, pull.merge_commit = True, by, pull.closed, landed
