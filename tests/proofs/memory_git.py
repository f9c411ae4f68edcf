"""Git in memory: commits, trees and merges as values, with the part of a clone's interface that the engine uses.

Objects are shared by everybody and never change, as in git; only references belong to somebody.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.runtime.process import Completed

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, with its files beside its tree's name."""

    sha: Sha
    tree: Sha
    parents: tuple[Sha, ...]
    message: str


@dataclass
class Objects:
    """Everything that was ever committed."""

    commits: dict[Sha, Commit] = field(default_factory=dict)
    trees: dict[Sha, Files] = field(default_factory=dict)
    _ancestors: dict[Sha, frozenset[Sha]] = field(default_factory=dict)

    def write_tree(self, files: Files) -> Sha:
        named = repr(sorted(files.items())).encode()
        sha = Sha(hashlib.sha1(b"tree" + named).hexdigest())
        self.trees[sha] = dict(files)
        return sha

    def commit(self, tree: Sha, parents: Sequence[Sha], message: str) -> Sha:
        named = repr((tree, tuple(parents), message)).encode()
        sha = Sha(hashlib.sha1(named).hexdigest())
        self.commits[sha] = Commit(sha, tree, tuple(parents), message)
        return sha

    def files(self, sha: Sha) -> Files:
        return self.trees[self.get(sha).tree]

    def get(self, sha: Sha) -> Commit:
        if sha not in self.commits:
            raise GitError(f"There is no commit {sha}.")
        return self.commits[sha]

    def ancestors(self, sha: Sha) -> frozenset[Sha]:
        """The commit itself and all that lies behind it."""
        if sha not in self._ancestors:
            found = {sha}
            for parent in self.get(sha).parents:
                found |= self.ancestors(parent)
            self._ancestors[sha] = frozenset(found)
        return self._ancestors[sha]

    def first_parents(self, sha: Sha) -> list[Commit]:
        """The line of first parents, newest first."""
        line = [self.get(sha)]
        while line[-1].parents:
            line.append(self.get(line[-1].parents[0]))
        return line

    def merge_base(self, one: Sha, other: Sha) -> Sha | None:
        common = self.ancestors(one) & self.ancestors(other)
        return next((sha for sha in common if common == self.ancestors(sha)), None)

    def merge(self, one: Sha, other: Sha) -> tuple[Files, list[str]]:
        """The merged files, and the paths on which both sides disagree."""
        base_sha = self.merge_base(one, other)
        base = self.files(base_sha) if base_sha else {}
        ours, theirs = self.files(one), self.files(other)
        merged: dict[str, bytes] = {}
        conflicts = []
        for path in sorted({*base, *ours, *theirs}):
            was, mine, yours = base.get(path), ours.get(path), theirs.get(path)
            if mine != was and yours not in (was, mine):
                conflicts.append(path)
            value = mine if yours == was else yours
            if value is not None:
                merged[path] = value
        return merged, conflicts


class MemoryClone:
    """Our clone of one forge: what was fetched, and every object. The engine asks nothing else of it."""

    def __init__(self, objects: Objects, fetched: dict[str, Sha], upstream: dict[str, Sha]) -> None:
        self.objects = objects
        self.path = Path("/nowhere/clone.git")
        self.default_branch = "main"
        self._fetched = fetched
        self._upstream = upstream

    def want(self, sha: Sha) -> None:
        pass

    def fetch(self) -> None:
        self._fetched.clear()
        self._fetched.update(self._upstream)

    def tip(self, branch: str) -> Sha | None:
        return self._fetched.get(branch)

    def has(self, sha: Sha) -> bool:
        return sha in self.objects.commits

    def commit(self, sha: Sha) -> Commit:
        return self.objects.get(sha)

    def tree(self, sha: Sha) -> Sha:
        return self.objects.get(sha).tree

    def is_ancestor(self, ancestor: Sha, descendant: Sha) -> bool:
        return ancestor in self.objects.ancestors(descendant)

    def merge_base(self, one: Sha, other: Sha) -> Sha | None:
        return self.objects.merge_base(one, other)

    def commits(self, base: Sha, head: Sha) -> list[Commit]:
        new = self.objects.ancestors(head) - self.objects.ancestors(base)
        return [self.objects.get(sha) for sha in sorted(new)]

    def read(self, sha: Sha, path: str, limit_bytes: int) -> bytes | None:
        return self.objects.files(sha).get(path)

    def commit_tree(self, tree: Sha, parents: Sequence[Sha], message: str) -> Sha:
        return self.objects.commit(tree, parents, message)

    def commit_files(self, parent: Sha, files: Mapping[str, bytes | None], message: str) -> Sha:
        after = {**self.objects.files(parent), **files}
        kept = {path: data for path, data in after.items() if data is not None}
        return self.objects.commit(self.objects.write_tree(kept), [parent], message)

    def command(self, args: Sequence[str], *, timeout: float = 0.0) -> Completed:
        """``git merge-tree``: the only plumbing that is asked for by name."""
        assert args[0] == "merge-tree", args
        one, other = Sha(args[-2]), Sha(args[-1])
        if one not in self.objects.commits or other not in self.objects.commits:
            return Completed(tuple(args), 1, b"", b"not something we can merge")
        files, conflicts = self.objects.merge(one, other)
        tree = self.objects.write_tree(files)
        parts = [tree, *conflicts, ""]
        return Completed(tuple(args), 1 if conflicts else 0, "\0".join(parts).encode(), b"")

    @contextmanager
    def export(self, sha: Sha, target: Path) -> Iterator[Path]:
        """A checkout that is only a name; the builder in memory looks into nothing."""
        self.objects.get(sha)
        yield Path("/nowhere/checkouts") / sha


class MemoryWorkspaces:
    """Agents' workspaces: the files that they have left behind."""

    def __init__(self, left: dict[tuple[WorkItem, str], bytes]) -> None:
        self._left = left

    def path(self, work_item: WorkItem) -> Path:
        """There is always one: nothing of it is tidied up here."""
        return Path(work_item)

    def read_file(self, work_item: WorkItem, path: str, limit: int) -> bytes | None:
        return self._left.get((work_item, path))

    def reset_to(self, work_item: WorkItem, sha: Sha) -> None:
        """Documents are taken over or asked for again: none stays."""
        for key in [key for key in self._left if key[0] == work_item]:
            del self._left[key]
