"""The folder of one workspace: made, brought to a commit, emptied. Used only while its lock is held.

Must hold: a half-made folder never has the final name; a folder loses its name in one step; nothing that an earlier run
planted in ``.git`` reaches the next one.
"""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.errors import GitError
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
from orchestrator.workspace.folders import exists, real_folder, remove_tree
from orchestrator.workspace.harvest import Saved
from orchestrator.workspace.rescue import Rescue
from orchestrator.workspace.snapshot import take_snapshot


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
        if any(not self.clone.reaches(tip, start) for tip in {*state.refs.values(), state.head}):
            return False
        snapshot = take_snapshot(self.clone, self.path, state.head, everything=True)
        if snapshot.changed or snapshot.findings:
            return False
        if Rescue(self.clone, self.work_item).staged(self.path, state.head) is not None:
            return False
        if state.head != start and not self._moved(state.head, start):
            return False
        self.install_git(start)
        return True

    def install_git(self, head: Sha) -> None:
        """Give the workspace a fresh ``.git`` with the branch at ``head``; the files stay as they are.

        :raises GitError: git failed.
        """
        new = self._aside("git")
        remove_tree(new)
        self._make_git(new, head)
        env = {"GIT_INDEX_FILE": str(new / "index"), "GIT_WORK_TREE": str(self.path)}
        for args, check in ((["read-tree", head], True), (["update-index", "-q", "--refresh"], False)):
            self.clone.git.run(
                args, git_dir=self.clone.path, cwd=self.path, env=env, check=check, pass_fds=[self.held]
            )
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

    def _moved(self, old: Sha, new: Sha) -> bool:
        """Update the files from one commit to another in place; False where ignored files are in the way."""
        try:
            with self.clone.temporary_index() as index:
                self.clone.run_index(["read-tree", old], index)
                # Without this git takes every file for changed and would not touch it; "needs update" is no error.
                self.clone.run_index(["update-index", "-q", "--refresh"], index, work_tree=self.path)
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
