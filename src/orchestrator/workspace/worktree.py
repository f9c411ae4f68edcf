"""One workspace per task: the folder in which its agents work, and what is taken out of it.

Must hold: two tasks share no file that git writes, so that thirty may be prepared at once; a half-made workspace never
has the final name; nothing is changed or removed in a workspace before all that it holds is reachable in the clone.
A workspace is used by one run at a time, and looked into here only after that run's processes have ended. Why it is a
repository of its own and not a linked worktree: docs/decisions/0003-agent-workspaces.md.

On failure an ``OutsideError`` says what is in the way; repeating picks up where it stopped.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.errors import GitError, OutsideError
from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.rules.names import work_item_ref, worktree_dir
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.files import make_private_folder, replace_durably
from orchestrator.runtime.folder_lock import locked
from orchestrator.workspace.agent_repository import AgentState, Broken
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import REGULAR, SUBMODULE, SYMLINK
from orchestrator.workspace.folders import read_inside, real_folder
from orchestrator.workspace.harvest import Harvest, Removed, Saved, Stray
from orchestrator.workspace.rescue import Rescue
from orchestrator.workspace.snapshot import HUGE_BYTES, snapshot_into
from orchestrator.workspace.workspace_folder import Identity, WorkspaceFolder

LOCK_WAIT_S = 120.0  # preparing a large workspace takes a while; so does a git that outlived its parent
LEFTOVER_MESSAGE = "Keep what the agent left uncommitted\n"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a work item's workspace is; stored, for titles get edited."""

    directory: str
    branch: str


class Workspaces:
    """The workspaces of one repository below ``root``. Safe for many threads and processes."""

    def __init__(
        self,
        clone: Clone,
        root: Path,
        clock: Clock,
        *,
        agent_name: str = "orchestrator agent",
        agent_email: str = "agent@localhost",
    ) -> None:
        self._clone = clone
        self._folders = root / "worktrees"
        self._records = root / "workspaces"
        self._clock = clock
        self._agent = Identity(agent_name, agent_email)

    def path(self, work_item: WorkItem) -> Path | None:
        """The workspace's folder, None where the work item has none."""
        place = self._place(work_item)
        return self._folders / place.directory if place else None

    def prepare(self, work_item: WorkItem, title: str, branch: str, start: Sha) -> Path:
        """The task's workspace with ``branch`` checked out at ``start``, made or adopted; ignored files stay.

        Work found in it that nothing else reaches is rescued first. Safe to repeat after any crash.

        :raises OutsideError: git, the disk, or another process that holds the workspace.
        """
        with self._held(work_item) as held:
            place = self._place(work_item)
            place = _Place(place.directory if place else worktree_dir(work_item, title), branch)
            self._record(work_item, place)
            folder = self._folder(work_item, place, held)
            if not folder.adopt(start):
                self._start_anew(folder, start)
            return folder.path

    def reset_to(self, work_item: WorkItem, sha: Sha) -> tuple[Stray, ...]:
        """Set branch and files to ``sha``, ignored files gone too; what was there is rescued and returned.

        Files that are as they should be are not written again.

        :raises OutsideError: as :meth:`prepare`.
        """
        with self._held(work_item) as held:
            folder = self._folder(work_item, self._known(work_item), held)
            saved = folder.save(sha)
            if saved.unsaved or not folder.reset(sha):
                folder.clear_away(saved)
                folder.build(sha)
            return saved.stray

    def harvest(
        self, work_item: WorkItem, base: Sha, expected_head: Sha, *, commit_leftovers: bool = True
    ) -> Harvest:
        """Take over what the agent left: ``expected_head`` is where its branch was when it started.

        Uncommitted work on the branch becomes one commit of ours (with ``commit_leftovers``), all other work is
        rescued and reported. Afterwards the workspace stands at the returned head, with nothing uncommitted but
        what a finding names. Safe to repeat after any crash.

        :raises OutsideError: as :meth:`prepare`.
        """
        with self._held(work_item) as held:
            folder = self._folder(work_item, self._known(work_item), held)
            state = folder.state()
            head, problems = self._judge(folder, state, expected_head)
            self._clone.keep(work_item, head)
            leftover: Sha | None = None
            if isinstance(state, Broken) or problems or not _on_branch(state, folder.branch, head):
                saved = self._start_anew(folder, head)
            else:
                saved = self._other_branches(folder, state)
                with self._clone.temporary_index() as index:
                    snapshot = snapshot_into(index, self._clone, folder.path, head)
                    problems += snapshot.findings
                    changed = snapshot.tree != self._clone.tree(head)
                    if changed and commit_leftovers:
                        leftover = self._commit(folder, snapshot.tree, head, index)
                if changed and not commit_leftovers:
                    saved = saved + self._start_anew(folder, head)
            found = (*problems, *saved.findings(), *objections(self._clone, expected_head, leftover or head))
            commits = tuple(self._clone.commits(base, leftover or head))
            return Harvest(leftover or head, commits, leftover, saved.stray, tuple(dict.fromkeys(found)))

    def read_file(self, work_item: WorkItem, path: str, limit: int) -> bytes | None:
        """A file as the agent left it, committed or not; None where there is none. Links are refused.

        :raises UnreadableFile: it is no plain file of at most ``limit`` bytes inside the workspace.
        """
        return read_inside(self._folders / self._known(work_item).directory, path, limit)

    def remove(self, work_item: WorkItem) -> Removed:
        """Remove the workspace after rescuing all work in it; if that is not possible its folder is moved aside.

        :raises OutsideError: as :meth:`prepare`, or the folder cannot be removed.
        """
        if self._place(work_item) is None:
            return Removed(())
        with self._held(work_item) as held:
            place = self._place(work_item)
            if place is None:
                return Removed(())
            folder = self._folder(work_item, place, held)
            saved = folder.save(None)
            kept = folder.clear_away(saved)
            self._record_path(work_item).unlink(missing_ok=True)
            return Removed(saved.stray, kept)

    # -- steps of a harvest ------------------------------------------------------------------------------------

    def _judge(
        self, folder: WorkspaceFolder, state: AgentState | Broken, expected: Sha
    ) -> tuple[Sha, list[Finding]]:
        """Where the branch may be taken to stand, and what is wrong with it."""
        if isinstance(state, Broken):
            # What an interrupted harvest had already taken over still counts.
            kept = self._clone.kept(folder.work_item)
            safe = kept if kept is not None and self._clone.is_ancestor(expected, kept) else expected
            return safe, [Finding(f"{state.reason} It was made anew.")]
        tip = state.refs.get(f"refs/heads/{folder.branch}")
        if tip is None:
            return expected, [Finding(f"The branch {folder.branch} was removed. It was made anew.")]
        try:
            self._clone.receive(folder.path / ".git" / "objects", [tip])
        except GitError as error:
            return expected, [
                Finding(f"The commits on {folder.branch} cannot be taken over: {error.message}")
            ]
        if not self._clone.is_ancestor(expected, tip) and not self._put_by_us(folder, expected, tip):
            return expected, [
                Finding(f"The history of {folder.branch} was rewritten: {expected} is no longer part of it.")
            ]
        if state.unfinished:
            return tip, [Finding(f"A {state.unfinished} was begun and not finished.")]
        return tip, []

    def _put_by_us(self, folder: WorkspaceFolder, expected: Sha, tip: Sha) -> bool:
        """Whether the tip is a head that we took over in place of the branch's history, and died before that was on
        record. An agent that has only gone back stands at an ancestor."""
        return tip == self._clone.kept(folder.work_item) and not self._clone.is_ancestor(tip, expected)

    def _other_branches(self, folder: WorkspaceFolder, state: AgentState) -> Saved:
        """Keep the commits that are on other branches only."""
        rescue = Rescue(self._clone, folder.work_item)
        rescue.save_refs(folder.path / ".git" / "objects", state.refs)
        return rescue.saved()

    def _commit(self, folder: WorkspaceFolder, tree: Sha, head: Sha, index: Path) -> Sha:
        """One commit of ours with what was left uncommitted on the branch."""
        leftover = self._clone.commit_tree(tree, [head], LEFTOVER_MESSAGE)
        self._clone.keep(folder.work_item, leftover)
        folder.install_git(leftover, index)
        return leftover

    def _start_anew(self, folder: WorkspaceFolder, head: Sha) -> Saved:
        """Save what is in the folder and make it anew at ``head``."""
        saved = folder.save(head)
        kept = folder.clear_away(saved)
        folder.build(head)
        return saved.moved_to(kept)

    def _folder(self, work_item: WorkItem, place: _Place, held: int) -> WorkspaceFolder:
        path = self._folders / place.directory
        return WorkspaceFolder(self._clone, work_item, path, place.branch, self._agent, held)

    # -- records and locks -------------------------------------------------------------------------------------

    @contextmanager
    def _held(self, work_item: WorkItem) -> Iterator[int]:
        """Hold the work item's workspace against every other process of ours."""
        make_private_folder(self._folders)
        make_private_folder(self._records)
        if not real_folder(self._folders):
            raise OutsideError(f"{self._folders} was replaced by a link.", hint="Remove it; it is made anew.")
        path = self._records / f"{work_item_ref(work_item)}.lock"
        with locked(path, self._clock, wait_s=LOCK_WAIT_S) as handle:
            if handle is None:
                raise OutsideError(f"The workspace of {work_item} is in use by another process of ours.")
            yield handle

    def _known(self, work_item: WorkItem) -> _Place:
        place = self._place(work_item)
        if place is None:
            # Somebody has ended the task while we stood still: nobody's mistake, and looked at again.
            raise OutsideError(f"{work_item} has no workspace.", hint="It is made when its next job starts.")
        return place

    def _place(self, work_item: WorkItem) -> _Place | None:
        try:
            fields = json.loads(self._record_path(work_item).read_bytes())
            return _Place(fields["directory"], fields["branch"])
        except FileNotFoundError:
            return None

    def _record(self, work_item: WorkItem, place: _Place) -> None:
        if self._place(work_item) != place:
            fields = {"directory": place.directory, "branch": place.branch}
            replace_durably(self._record_path(work_item), json.dumps(fields).encode())

    def _record_path(self, work_item: WorkItem) -> Path:
        return self._records / f"{work_item_ref(work_item)}.json"


def objections(clone: Clone, expected: Sha, head: Sha) -> Iterator[Finding]:
    """What is committed between the two but cannot be delivered."""
    if expected == head:
        return
    changes = clone.changes(expected, head)
    files = [change for change in changes if change.mode in REGULAR]
    sizes = dict(zip(files, clone.sizes(change.blob for change in files), strict=True))
    targets = clone.link_targets(change.blob for change in changes if change.mode == SYMLINK)
    for change in changes:
        if change.mode == SUBMODULE and change.old_mode != SUBMODULE:
            yield Finding("is a repository of its own; only files can be delivered.", change.path)
        elif change.mode == SYMLINK:
            target = targets[change.blob]
            if _leads_out(change.path, target):
                yield Finding(f"is a link that leads out of the repository: {target[:200]}", change.path)
        elif sizes.get(change, 0) > HUGE_BYTES:
            yield Finding(
                f"has {sizes[change]} bytes; files above {HUGE_BYTES} are not accepted.", change.path
            )


def _on_branch(state: AgentState, branch: str, head: Sha) -> bool:
    """Whether what lies in the folder was made on top of the branch's tip."""
    return state.head_ref == f"refs/heads/{branch}" or state.head == head


def _leads_out(path: str, target: str) -> bool:
    """Whether a link at ``path`` leads out of the repository."""
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return True
    return target.startswith("/")
