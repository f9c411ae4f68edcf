"""Keeping everything a workspace holds that nothing else reaches, before the workspace is changed or removed.

Commits on any branch, detached or stashed, what is staged, what lies changed or untracked in the folder (ignored files
are not work), and the same for repositories nested in it: all of it becomes reachable from ``refs/orch/rescue``.
Nothing is changed in the workspace. What cannot be kept is named, and the caller must then not destroy the folder.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.workspace.agent_repository import Broken, read_agent_repository
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.folders import only_plain, real_folder
from orchestrator.workspace.harvest import Saved, Stray
from orchestrator.workspace.snapshot import Snapshot, take_snapshot

NESTED_DEPTH = 3  # repositories within repositories; deeper ones keep the folder from being removed


class Rescue:
    """Saves the work of one work item's workspace."""

    def __init__(self, clone: Clone, work_item: WorkItem) -> None:
        self._clone = clone
        self._work_item = work_item
        self._stray: list[Stray] = []
        self._unsaved: list[str] = []

    def save(self, folder: Path, fallback: Sha | None) -> Saved:
        """Keep everything in ``folder``; ``fallback`` is what its files are compared with where no HEAD can be read.

        :raises GitError: the clone cannot be written.
        """
        self._save(folder, fallback, depth=0)
        return Saved(tuple(self._stray), tuple(self._unsaved))

    def save_refs(self, objects: Path, refs: Mapping[str, Sha]) -> None:
        """Keep what references of another repository name; what a reference of the clone names is kept already."""
        named = self._clone.named()
        for ref, sha in refs.items():
            if sha not in named:
                named.add(sha)
                self.save_commit(objects, sha, told(ref))

    def save_commit(self, objects: Path, sha: Sha, what: str) -> bool:
        """Keep one commit of another object folder, if nothing reaches it yet; False where it is damaged."""
        try:
            self._clone.receive(objects, [sha])
        except GitError as error:
            self._unsaved.append(f"{what}: {error.message}")
            return False
        if self._unreachable(sha):
            self._stray.append(Stray(self._clone.rescue(self._work_item, sha), sha, what))
        return True

    def saved(self) -> Saved:
        """What was kept so far."""
        return Saved(tuple(self._stray), tuple(self._unsaved))

    def staged(self, folder: Path, base: Sha | None) -> Sha | None:
        """A commit of the agent's index, where that holds something neither the base nor the files have.

        An index that cannot be read as a tree (conflicts, a format we do not know) is no reason to keep the folder:
        what the agent had in its files is kept.
        """
        index, objects = folder / ".git" / "index", folder / ".git" / "objects"
        if index.is_symlink() or not index.is_file() or not only_plain(objects):
            return None
        with self._clone.temporary_index() as copy:
            shutil.copyfile(index, copy, follow_symlinks=False)
            try:
                written = self._clone.run_index(["write-tree"], copy, objects=objects)
                tree = Sha(written.decode("ascii").strip())
                if base is not None and tree == self._clone.tree(base):
                    return None
                if tree == take_snapshot(self._clone, folder, base, everything=True).tree:
                    return None
                parents = [base] if base is not None else []
                sha = self._clone.commit_tree(
                    tree, parents, f"Staged in the workspace of {self._work_item}\n"
                )
                self._clone.receive(objects, [sha])
            except GitError:
                return None
        return sha

    def _save(self, folder: Path, fallback: Sha | None, depth: int) -> None:
        state = read_agent_repository(folder / ".git", self._clone.path if depth == 0 else None)
        if isinstance(state, Broken):
            if real_folder(folder / ".git"):
                self._unsaved.append(state.reason)
            self._save_files(folder, fallback, None, depth)
            return
        objects = folder / ".git" / "objects"
        self.save_refs(objects, state.refs)
        head = state.head
        if head is not None and not self.save_commit(objects, head, "detached HEAD"):
            head = None
        base = head if head is not None else fallback
        self._save_files(folder, base, self.staged(folder, base), depth)

    def _save_files(self, folder: Path, base: Sha | None, staged: Sha | None, depth: int) -> None:
        snapshot = take_snapshot(self._clone, folder, base, everything=True)
        if snapshot.changed or staged is not None:
            self._keep(snapshot, [parent for parent in (base, staged) if parent is not None])
        nested = set(snapshot.nested)
        self._unsaved += [str(found) for found in snapshot.findings if found.file not in nested]
        for name in snapshot.nested:
            if depth >= NESTED_DEPTH:
                self._unsaved.append(f"{name}: repositories are nested too deeply.")
            else:
                self._save(folder / name, None, depth + 1)

    def _keep(self, snapshot: Snapshot, parents: list[Sha]) -> None:
        message = f"Files left in the workspace of {self._work_item}\n"
        sha = self._clone.commit_tree(snapshot.tree, parents, message)
        self._stray.append(Stray(self._clone.rescue(self._work_item, sha), sha, "files left uncommitted"))

    def _unreachable(self, sha: Sha) -> bool:
        """Whether no reference of the clone reaches a commit."""
        done = self._clone.command(["rev-list", "--max-count=1", sha, "--not", "--all"])
        return bool(done.stdout.strip())


def told(ref: str) -> str:
    """A reference as people call it."""
    if ref.startswith("refs/heads/"):
        return f"branch {ref.removeprefix('refs/heads/')}"
    return "stash" if ref == "refs/stash" else ref
