"""The candidate M: main and the task's head as one merge commit, built before staging (DESIGN §3).

Must hold: M is always a merge commit, its first parent main's tip and its second the branch's own head, even where git
itself would only move main forward. What its message carries is said in :mod:`orchestrator.rules.trailers`.
"""

from dataclasses import dataclass

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha
from orchestrator.rules.trailers import candidate_message, has_our_trailers
from orchestrator.runtime.git import git_error
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import decode_path

__all__ = ["CandidateBuilt", "Conflict", "build_candidate", "candidate_message", "has_our_trailers"]

MERGE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class CandidateBuilt:
    """M exists in the clone; nobody else knows it yet."""

    sha: Sha
    tree: Sha


@dataclass(frozen=True, slots=True)
class Conflict:
    """Main and the head cannot be merged; ``files`` are the paths on which they disagree."""

    files: tuple[str, ...]


def build_candidate(clone: Clone, *, main: Sha, head: Sha, message: str) -> CandidateBuilt | Conflict:
    """Merge ``head`` into ``main`` without a checkout.

    :raises GitError: one of them is not here, or their histories are unrelated.
    """
    merged = clone.command(
        ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", main, head],
        timeout=MERGE_TIMEOUT_S,
    )
    # A commit that is not here ends with 1 as well, as a conflict does, but without a tree.
    if merged.returncode not in (0, 1) or not merged.stdout:
        raise git_error("git merge-tree", merged)
    tree, *files = merged.stdout.split(b"\0")
    if merged.returncode == 1:
        return Conflict(tuple(sorted({decode_path(path) for path in files if path})))
    sha = clone.commit_tree(Sha(tree.decode("ascii")), [main, head], message)
    built = clone.commit(sha)
    if built.parents != (main, head):
        raise GitError(
            f"{sha} was not built on {main} and {head}.", hint="main and head must be two commits."
        )
    return CandidateBuilt(sha, built.tree)
