"""The candidate M: main and the task's head as one merge commit, built before staging (DESIGN §3).

Must hold: M is always a merge commit, its first parent main's tip and its second the branch's own head, even where git
itself would only move main forward. Its message carries what recognises it as ours; no title can write such a line.
"""

import re
from dataclasses import dataclass

from orchestrator.domain.errors import GitError, InvariantError
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.runtime.git import git_error
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import decode_path

TASK = "Orch-Task"
NONCE = "Orch-Nonce"
INSTALLATION = "Orch-Installation"
SEQUENCE = "Orch-Sequence"
SUBJECT_LIMIT = 120  # characters
MERGE_TIMEOUT_S = 300.0

_VALUE = re.compile(r"[A-Za-z0-9._-]{1,200}")
# Anywhere in the message, not only where git looks for trailers: a forge may put a message together anew.
_OURS = re.compile(r"^[ \t>]*orch-[a-z]+[ \t]*[:=]", re.IGNORECASE | re.MULTILINE)


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
    if merged.returncode not in (0, 1):
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


def candidate_message(work_item: WorkItem, title: str, nonce: str, installation: str, sequence: int) -> str:
    """M's message: one line for people, then the trailers by which we know it again.

    :raises InvariantError: a value could not stand in a trailer.
    """
    values = {TASK: work_item, NONCE: nonce, INSTALLATION: installation, SEQUENCE: str(sequence)}
    for key, value in values.items():
        if not _VALUE.fullmatch(value):
            raise InvariantError(f"{value!r} cannot be the value of {key}.")
    subject = f"Merge {work_item}: {one_line(title)}".rstrip(": ")[:SUBJECT_LIMIT].rstrip()
    return "\n".join([subject, "", *(f"{key}: {value}" for key, value in values.items()), ""])


def has_our_trailers(message: str) -> bool:
    """True where a message carries a line that looks like one of our trailers (law 10: refused in agents' commits)."""
    return _OURS.search(message) is not None


def one_line(text: str) -> str:
    """Free text on one line: every run of white space and unprintable characters becomes one space."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
