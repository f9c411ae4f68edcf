"""The folder of one workspace: made, brought to a commit, emptied. Used only while its lock is held.

Must hold: a half-made folder never has the final name; a folder loses its name in one step; nothing that an earlier run
planted in ``.git`` reaches the next one.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.errors import GitError, OutsideError
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.rules.names import work_item_ref
from orchestrator.workspace.agent_repository import (
    AgentState,
    Broken,
    create_agent_repository,
    read_agent_repository,
)
from orchestrator.workspace.checkout import fill
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import SUBMODULE
from orchestrator.workspace.folders import exists, keep_only, make_readable, real_folder, remove_tree
from orchestrator.workspace.harvest import Saved
from orchestrator.workspace.rescue import Rescue
from orchestrator.workspace.snapshot import index_entries, snapshot_into


@dataclass(frozen=True, slots=True)
class Identity:
    """Under which name agents commit."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class WorkspaceFolder:
    """One work item's folder. ``held`` is the lock's descriptor; git holds on to it as long as it lives."""

    clone: Clone
    work_item: WorkItem
    path: Path
    branch: str
    agent: Identity
    held: int

    def state(self) -> AgentState | Broken:
        """Where the agent's repository stands; never raises for what an agent can do."""
        if not exists(self.path):
            return Broken("The workspace's folder was deleted.")
        if not real_folder(self.path):
            return Broken("The workspace's folder was replaced by a link or a file.")
        return read_agent_repository(self.path / ".git", self.clone.path)

    def build(self, start: Sha) -> None:
        """A fresh workspace under the name; what had it is removed, and must have been saved before.

        :raises GitError: git failed.
        """
        new = self._aside("new")
        remove_tree(new)
        new.mkdir(mode=0o700)
        self._make_git(new / ".git", start)
        fill(self.clone.git, self.clone.path, start, new, new / ".git" / "index", held=[self.held])
        self.trash(self.path)
        new.rename(self.path)

    def adopt(self, start: Sha) -> bool:
        """Bring an existing workspace to ``start`` if it holds no work of its own; False where it must be rebuilt.

        :raises GitError: git failed.
        """
        state = self.state()
        if isinstance(state, Broken) or state.unfinished or state.head is None:
            return False
        tips = {*state.refs.values(), state.head} - {start} - self.clone.named()
        if any(not self.clone.reaches(tip, start) for tip in tips):
            return False
        with self.clone.temporary_index() as index:
            snapshot = snapshot_into(index, self.clone, self.path, state.head, everything=True)
            if snapshot.changed or snapshot.findings:
                return False
            if Rescue(self.clone, self.work_item).staged(self.path, state.head) is not None:
                return False
            if state.head != start and not self._moved(index, state.head, start):
                return False
            self.install_git(start, index)
        return True

    def reset(self, head: Sha) -> bool:
        """Leave exactly the files of ``head``, touching those alone that differ; False where it must be rebuilt.

        All that is in the folder must have been saved before. Until the last step the agent's ``.git`` stays, so that
        a reset that was cut off is seen for what it is: files that differ.
        """
        if not real_folder(self.path):
            return False
        try:
            make_readable(self.path)
            with self.clone.temporary_index() as index:
                self.clone.run_index(["read-tree", head], index)
                files = [
                    path for path, (mode, _) in index_entries(self.clone, index).items() if mode != SUBMODULE
                ]
                keep_only(self.path, set(files), _folders_of(files))
                self.clone.run_index(["update-index", "-q", "--refresh"], index, work_tree=self.path)
                differing = self.clone.run_index(["ls-files", "-z", "-m", "-d"], index, work_tree=self.path)
                self.clone.run_index(
                    ["checkout-index", "-f", "-q", "-u", "-z", "--stdin"],
                    index,
                    work_tree=self.path,
                    input=differing,
                )
                self.install_git(head, index)
        except (GitError, OutsideError, OSError):
            return False  # building anew says what is in the way, if it still is
        return True

    def install_git(self, head: Sha, index: Path) -> None:
        """Give the workspace a fresh ``.git`` with the branch at ``head``; the files stay as they are.

        ``index`` is one of ours that holds the tree of ``head`` and knows the files.

        :raises GitError: git failed.
        """
        new = self._aside("git")
        remove_tree(new)
        self._make_git(new, head)
        # Its time stamp goes with it: by that git tells which files may have changed in the very same moment.
        shutil.copy2(index, new / "index")
        self.trash(self.path / ".git")
        new.rename(self.path / ".git")

    def save(self, fallback: Sha | None) -> Saved:
        """Make everything in the folder reachable in the clone; a link that took its place holds no work.

        :raises GitError: the clone cannot be written.
        """
        return (
            Rescue(self.clone, self.work_item).save(self.path, fallback)
            if real_folder(self.path)
            else Saved()
        )

    def clear_away(self, saved: Saved) -> Path | None:
        """Remove the saved folder, or move it aside where not all of it could be saved; where to."""
        if not saved.unsaved or not real_folder(self.path):
            self.trash(self.path)
            return None
        number = 1
        while exists(kept := self._aside(f"kept-{number}")):
            number += 1
        self.path.chmod(0o700)
        self.path.rename(kept)
        return kept

    def trash(self, path: Path) -> None:
        """Take a name away in one step, then remove what had it."""
        if not exists(path):
            return
        old = self._aside("old")
        remove_tree(old)
        if real_folder(path):
            path.chmod(0o700)  # moving a folder rewrites its own ".."
        path.rename(old)
        remove_tree(old)

    def _moved(self, index: Path, old: Sha, new: Sha) -> bool:
        """Update the files from one commit to another in place; False where ignored files are in the way."""
        try:
            self.clone.run_index(["read-tree", "-m", "-u", old, new], index, work_tree=self.path)
        except GitError:
            return False
        return True

    def _make_git(self, git_dir: Path, head: Sha) -> None:
        refs = {f"refs/heads/{self.branch}": head}
        default = self.clone.default_branch
        main = self.clone.tip(default)
        if main is not None:
            refs[f"refs/remotes/origin/{default}"] = main
        create_agent_repository(
            git_dir,
            self.clone.path,
            branch=self.branch,
            refs=refs,
            name=self.agent.name,
            email=self.agent.email,
        )

    def _aside(self, what: str) -> Path:
        return self.path.parent / f".{what}.{work_item_ref(self.work_item)}"


def _folders_of(files: Iterable[bytes]) -> set[bytes]:
    """Every folder that the files lie in."""
    folders = set[bytes]()
    for path in files:
        while (path := path.rpartition(b"/")[0]) and path not in folders:
            folders.add(path)
    return folders
