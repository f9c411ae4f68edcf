"""Commits and differences as plain values, read from git's own bytes; text in them is hostile data (law 10)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha
from orchestrator.rules.trailers import trailers

SYMLINK = "120000"
SUBMODULE = "160000"
REGULAR = frozenset({"100644", "100755"})

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One commit. ``trailers`` are the ``Key: value`` lines of the message's last paragraph, keys as written."""

    sha: Sha
    tree: Sha
    parents: tuple[Sha, ...]
    author: str  # "Name <address>"
    message: str
    trailers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One changed path. ``status`` is git's letter (A, M, D, T, R, C); modes are octal text, ``000000`` for none."""

    status: str
    path: str
    old_path: str | None  # where a rename or copy comes from
    mode: str
    old_mode: str
    blob: Sha
    old_blob: Sha


def parse_commit(sha: Sha, raw: bytes) -> CommitInfo:
    """A commit object's content as a record.

    :raises GitError: it is no commit.
    """
    head, _, body = raw.partition(b"\n\n")
    tree: Sha | None = None
    parents: list[Sha] = []
    author = ""
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        text = value.decode("utf-8", "replace")
        if key == b"tree":
            tree = Sha(text)
        elif key == b"parent":
            parents.append(Sha(text))
        elif key == b"author":
            author = text.rpartition("> ")[0] + ">"
    if tree is None:
        raise GitError(f"{sha} is no commit.")
    message = body.decode("utf-8", "replace")
    return CommitInfo(sha, tree, tuple(parents), author, message, trailers(message))


def parse_changes(raw: bytes) -> list[Change]:
    """Git's raw difference format with ``-z``."""
    fields = iter(raw.split(b"\0"))
    changes: list[Change] = []
    for header in fields:
        if not header:
            continue
        old_mode, mode, old_blob, blob, status = header.decode("ascii").removeprefix(":").split(" ")
        first = decode_path(next(fields))
        moved = status[0] in "RC"
        path = decode_path(next(fields)) if moved else first
        changes.append(
            Change(status[0], path, first if moved else None, mode, old_mode, Sha(blob), Sha(old_blob))
        )
    return changes


def parse_added(patch: Iterator[bytes], changes: list[Change]) -> Iterator[tuple[str, int, str]]:
    """The added lines of a patch without context as (path, line number, text).

    Names come from ``changes``, which git lists in the same order, and content is told from headers by the counts of
    each hunk: no line of a file can pass for a header.
    """
    # A change of type is shown as a removal and an addition.
    sections = iter([change.path for change in changes for _ in range(2 if change.status == "T" else 1)])
    path, removed, added, number = "", 0, 0, 0
    for line in patch:
        if removed or added:
            if line.startswith(b"+") and added:
                yield path, number, line[1:].decode("utf-8", "replace").rstrip("\r\n")
                number, added = number + 1, added - 1
            elif line.startswith(b"-") and removed:
                removed -= 1
        elif line.startswith(b"diff --git "):
            path = next(sections, path)
        elif hunk := _HUNK.match(line):
            removed, number, added = (
                int(hunk.group(1) or 1),
                int(hunk.group(2)),
                int(hunk.group(3) or 1),
            )


def encode_path(path: str) -> bytes:
    """A path as git stores it."""
    return path.encode("utf-8", "surrogateescape")


def decode_path(raw: bytes) -> str:
    """A path as git stores it, as text; bytes that are no UTF-8 come back unchanged through :func:`encode_path`."""
    return raw.decode("utf-8", "surrogateescape")
