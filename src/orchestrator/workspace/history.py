"""Questions that a bare repository answers: commits, trees, files, differences.

Must hold: answers are about objects alone, named by their full hash, and never depend on a work tree, an attribute or a
reference that someone may move. Every question is bounded in time, those that read content in size.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha
from orchestrator.runtime.git import DEFAULT_TIMEOUT_S, Git, git_error
from orchestrator.runtime.process import Completed
from orchestrator.workspace.commits import (
    REGULAR,
    Change,
    CommitInfo,
    decode_path,
    parse_added,
    parse_changes,
    parse_commit,
)

DIFF_TIMEOUT_S = 120.0
LINK_LIMIT = 4096  # bytes; longer targets cannot be checked out


class UnreadableBlob(GitError):
    """There is something at the path, but no regular file of acceptable size."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree. ``size`` in bytes, 0 for what is no blob."""

    path: str
    mode: str
    blob: Sha
    size: int


class History:
    """The questions, put to the repository in one git folder."""

    def __init__(self, git: Git, path: Path) -> None:
        self.git = git
        self.path = path

    def has(self, sha: Sha) -> bool:
        """Whether this commit is here."""
        return self._git(["cat-file", "-e", f"{sha}^{{commit}}"], check=False).returncode == 0

    def commit(self, sha: Sha) -> CommitInfo:
        """One commit.

        :raises GitError: there is no such commit.
        """
        return parse_commit(sha, self._run(["cat-file", "commit", sha]))

    def tree(self, sha: Sha) -> Sha:
        """The tree of a commit."""
        return self.commit(sha).tree

    def parents(self, sha: Sha) -> tuple[Sha, ...]:
        """The parents of a commit, in order."""
        return self.commit(sha).parents

    def is_ancestor(self, ancestor: Sha, descendant: Sha) -> bool:
        """True iff ``ancestor`` is ``descendant`` or one of its ancestors.

        :raises GitError: one of them is not here.
        """
        done = self._git(["merge-base", "--is-ancestor", ancestor, descendant], check=False)
        if done.returncode not in (0, 1):
            raise git_error("git merge-base", done)
        return done.returncode == 0

    def merge_base(self, one: Sha, other: Sha) -> Sha | None:
        """The best common ancestor, None where histories are unrelated."""
        done = self._git(["merge-base", one, other], check=False)
        if done.returncode not in (0, 1):
            raise git_error("git merge-base", done)
        return Sha(done.stdout.decode("ascii").split()[0]) if done.stdout.strip() else None

    def commits(self, base: Sha, head: Sha) -> list[CommitInfo]:
        """The commits that ``head`` has and ``base`` has not, parents before children.

        :raises GitError: one of them is not here.
        """
        listed = self._run(["rev-list", "--topo-order", "--reverse", head, f"^{base}"])
        return self._commits(Sha(line) for line in listed.decode("ascii").splitlines())

    def first_parents(self, base: Sha | None, head: Sha) -> list[CommitInfo]:
        """The commits from ``head`` down its first parents to ``base``, exclusive, newest first."""
        listed = self._run(["rev-list", "--first-parent", head, *([f"^{base}"] if base else [])])
        return self._commits(Sha(line) for line in listed.decode("ascii").splitlines())

    def changes(self, base: Sha, head: Sha, *, renames: bool = False) -> list[Change]:
        """What differs between the trees of two commits.

        :raises GitError: one of them is not here.
        """
        option = "-M" if renames else "--no-renames"
        args = ["diff-tree", "-r", "-z", "--raw", "--no-abbrev", option, "--no-ext-diff", base, head]
        return parse_changes(self._run(args))

    def diff_added_lines(self, base: Sha, head: Sha, limit: int) -> Iterator[tuple[str, int, str]]:
        """Every line that ``head`` adds, as (path, line number, text): for the secret scan.

        Attributes cannot hide a file: everything is compared as text. ``limit`` is in bytes of patch.

        :raises GitError: the difference is larger than that, or cannot be computed.
        """
        changes = self.changes(base, head)
        args = [
            "diff-tree",
            "-r",
            "-p",
            "--text",
            "--unified=0",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
        ]
        args += ["--no-color", "--no-prefix", "--ignore-submodules=none", base, head]
        with tempfile.TemporaryFile(dir=self.path) as patch:
            done = self._git(args, check=False, timeout=DIFF_TIMEOUT_S, output=patch)
            if done.returncode != 0:
                raise GitError("git diff-tree failed.", returncode=done.returncode)
            if patch.tell() > limit:
                raise _too_large(patch.tell(), limit)
            patch.seek(0)
            yield from parse_added(iter(patch), changes)

    def entry(self, sha: Sha, path: str) -> Entry | None:
        """What a commit has at a path, None where it has nothing there."""
        found = self._entries(["ls-tree", "-z", "-l", "--full-tree", sha, "--", path.rstrip("/")])
        return next((entry for entry in found if entry.path == path.rstrip("/")), None)

    def read(self, sha: Sha, path: str, limit_bytes: int) -> bytes | None:
        """The content of a regular file at a commit, None where there is nothing at the path.

        :raises UnreadableBlob: it is a symbolic link, folder or submodule, or larger than ``limit_bytes``.
        """
        entry = self.entry(sha, path)
        if entry is None:
            return None
        if entry.mode not in REGULAR:
            raise UnreadableBlob(f"{path} is no regular file (mode {entry.mode}).", hint="Make it one.")
        if entry.size > limit_bytes:
            raise UnreadableBlob(f"{path} has {entry.size} bytes; at most {limit_bytes} are read.")
        return self._run(["cat-file", "blob", entry.blob])

    def contents(self, blobs: Iterable[Sha]) -> dict[Sha, bytes]:
        """The content of each blob, all asked for at once: the caller has seen to their sizes.

        :raises GitError: one of them is not here.
        """
        return dict(self._objects(list(dict.fromkeys(blobs))))

    def list_files(self, sha: Sha, folder: str = "") -> list[Entry]:
        """All files below a folder at a commit (symbolic links and submodules too, told by their mode)."""
        prefix = folder.strip("/")
        args = ["ls-tree", "-r", "-z", "-l", "--full-tree", sha, *(["--", prefix + "/"] if prefix else [])]
        return list(self._entries(args))

    def trees_equal_outside(self, one: Sha, other: Sha, folder: str) -> bool:
        """True iff two commits differ in nothing that is not below ``folder``."""
        inside = folder.strip("/") + "/"
        return all(change.path.startswith(inside) for change in self.changes(one, other))

    def reaches(self, sha: Sha, start: Sha) -> bool:
        """Whether a commit is here and is ``start``, an ancestor of it, or reached by some reference."""
        done = self._git(["rev-list", "--max-count=1", sha, "--not", start, "--all"], check=False)
        return done.returncode == 0 and not done.stdout.strip()

    def sizes(self, blobs: Iterable[Sha]) -> list[int]:
        """The sizes of objects in bytes, in the order asked for.

        :raises GitError: one of them is not here.
        """
        asked = "".join(f"{blob}\n" for blob in blobs).encode("ascii")
        if not asked:
            return []
        told = (
            self._run(["cat-file", "--batch-check=%(objectsize)"], input=asked).decode("ascii").splitlines()
        )
        if not all(size.isdecimal() for size in told):
            raise GitError("An object of the change is missing.")
        return [int(size) for size in told]

    def link_target(self, blob: Sha) -> str:
        """Where one symbolic link leads; see :meth:`link_targets`."""
        return self.link_targets([blob])[blob]

    def link_targets(self, blobs: Iterable[Sha]) -> dict[Sha, str]:
        """Where symbolic links lead, given their blobs; "/" where no file system would accept it."""
        links = list(dict.fromkeys(blobs))
        short = [blob for blob, size in zip(links, self.sizes(links), strict=True) if size <= LINK_LIMIT]
        found = {sha: content.decode("utf-8", "replace") for sha, content in self._objects(short)}
        return {blob: found.get(blob, "/") for blob in links}

    def command(self, args: Sequence[str], *, timeout: float = DEFAULT_TIMEOUT_S) -> Completed:
        """A plumbing command in the clone whose status the caller judges.

        :raises GitError: git could not be run.
        """
        return self._git(args, check=False, timeout=timeout)

    def before_use(self) -> None:
        """Called before each command; a subclass may put the folder right here."""

    def _git(
        self,
        args: Sequence[str],
        *,
        input: bytes | None = None,
        check: bool = True,
        timeout: float = DEFAULT_TIMEOUT_S,
        output: IO[bytes] | None = None,
    ) -> Completed:
        self.before_use()
        return self.git.run(args, git_dir=self.path, input=input, check=check, timeout=timeout, output=output)

    def _run(self, args: Sequence[str], *, input: bytes | None = None) -> bytes:
        return self._git(args, input=input).stdout

    def _commits(self, shas: Iterable[Sha]) -> list[CommitInfo]:
        return [parse_commit(sha, content) for sha, content in self._objects(list(shas))]

    def _objects(self, shas: Sequence[Sha]) -> Iterator[tuple[Sha, bytes]]:
        if shas:
            asked = "".join(f"{sha}\n" for sha in shas).encode("ascii")
            yield from _batch(self._run(["cat-file", "--batch"], input=asked))

    def _entries(self, args: Sequence[str]) -> Iterator[Entry]:
        for record in self._run(args).split(b"\0"):
            if record:
                head, _, path = record.partition(b"\t")
                mode, _kind, blob, size = head.decode("ascii").split()
                yield Entry(decode_path(path), mode, Sha(blob), int(size) if size.isdecimal() else 0)


def _too_large(size: int, limit: int) -> GitError:
    return GitError(
        f"The change is too large to be looked through: {size} bytes, at most {limit}.",
        hint="Split it, or keep generated files out of it.",
    )


def _batch(raw: bytes) -> Iterator[tuple[Sha, bytes]]:
    """The answers of ``git cat-file --batch``."""
    start = 0
    while start < len(raw):
        end = raw.index(b"\n", start)
        sha, kind, *size = raw[start:end].decode("ascii").split(" ")
        if not size:
            raise GitError(f"{sha} is {kind}.")
        content = raw[end + 1 : end + 1 + int(size[0])]
        yield Sha(sha), content
        start = end + 2 + len(content)
