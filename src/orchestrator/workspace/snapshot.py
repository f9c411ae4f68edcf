"""The files of a workspace as a tree in the clone, whatever an agent has put there.

Must hold: git works with the clone's folder and a fresh index of our own, so that neither the agent's index nor its
configuration is believed; every file is compared by content, not by time stamps that it had before. No link is
followed, no nested repository entered, no filter run, nothing converted. What is not taken is reported, never silently
dropped.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import SUBMODULE, decode_path
from orchestrator.workspace.folders import leaves, make_readable, real_folder

HUGE_BYTES = 50 * 1024 * 1024  # a forge refuses or regrets files of this size


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``tree`` holds the files; ``changed`` are the paths that differ from the base; ``nested`` are repositories."""

    tree: Sha
    changed: tuple[str, ...]
    findings: tuple[Finding, ...]
    nested: tuple[str, ...]


@dataclass(slots=True)
class _Sorted:
    add: list[bytes] = field(default_factory=list)
    remove: list[bytes] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)


def take_snapshot(clone: Clone, folder: Path, base: Sha | None, *, everything: bool = False) -> Snapshot:
    """As :func:`snapshot_into`, with an index that nobody needs afterwards."""
    with clone.temporary_index() as index:
        return snapshot_into(index, clone, folder, base, everything=everything)


def snapshot_into(
    index: Path, clone: Clone, folder: Path, base: Sha | None, *, everything: bool = False
) -> Snapshot:
    """The files in ``folder`` on top of the tree of ``base`` (None: of nothing). Ignored files are left out.

    Links that lead out of the folder and huge files are left out with a finding, but for ``everything``: then they are
    taken too, to be kept and not to be delivered. ``index``, which must not exist, holds the snapshot afterwards and
    knows the files by their time stamps.

    :raises GitError: git failed.
    """
    make_readable(folder)
    clone.run_index(["read-tree", base] if base else ["read-tree", "--empty"], index)
    if base:
        # The one look at every file's content; what comes after goes by time stamps taken here.
        clone.run_index(["update-index", "-q", "--refresh"], index, work_tree=folder)
    listed = clone.run_index(
        ["ls-files", "-z", "-m", "-d", "-o", "--exclude-standard"], index, work_tree=folder
    )
    paths = list(dict.fromkeys(path for path in listed.split(b"\0") if path))
    before = index_entries(clone, index) if paths else {}
    sort = _sort(folder, paths, before, everything)
    _update(clone, folder, index, "--force-remove", sort.remove)
    _update(clone, folder, index, "--add", sort.add)
    if paths or base is None:
        tree = Sha(clone.run_index(["write-tree"], index).decode("ascii").strip())
    else:
        tree = clone.tree(base)
    changed = tuple(sorted(decode_path(name) for name in {*sort.add, *sort.remove}))
    return Snapshot(tree, changed, tuple(sort.findings), tuple(sort.nested))


def index_entries(clone: Clone, index: Path) -> dict[bytes, tuple[str, str]]:
    """What an index holds: path → (mode, blob).

    :raises GitError: git failed.
    """
    entries = dict[bytes, tuple[str, str]]()
    for record in clone.run_index(["ls-files", "-s", "-z"], index).split(b"\0"):
        if record:
            head, _, path = record.partition(b"\t")
            mode, blob, _stage = head.decode("ascii").split(" ")
            entries[path] = (mode, blob)
    return entries


def _sort(
    folder: Path, paths: Sequence[bytes], before: dict[bytes, tuple[str, str]], everything: bool
) -> _Sorted:
    """What to do with each path that differs."""
    sort = _Sorted()
    for raw in paths:
        name = decode_path(raw.rstrip(b"/"))
        path = folder / name
        try:
            state = path.lstat() if _below_real_folders(folder, path) else None
        except (FileNotFoundError, NotADirectoryError):
            state = None
        if state is None:
            sort.remove.append(raw)
        elif stat.S_ISDIR(state.st_mode):
            if raw in before and before[raw][0] != SUBMODULE:
                sort.remove.append(raw)  # a file of the base made way for a folder
            elif os.path.lexists(path / ".git"):
                sort.nested.append(name)
                sort.findings.append(
                    Finding(
                        "is a repository of its own inside the workspace; it is not part of the change.", name
                    )
                )
        elif stat.S_ISLNK(state.st_mode) and leaves(folder, path) and not everything:
            sort.findings.append(
                Finding("is a link that leads out of the repository; it was not taken.", name)
            )
        elif stat.S_ISREG(state.st_mode) and state.st_size > HUGE_BYTES and not everything:
            sort.findings.append(
                Finding(f"has {state.st_size} bytes; files above {HUGE_BYTES} are not taken.", name)
            )
        elif stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode):
            sort.add.append(raw)
        elif everything:
            sort.remove.append(raw)  # a pipe or device in a file's place holds no work
        else:
            sort.findings.append(Finding("is neither a file, a folder nor a link; it was not taken.", name))
    return sort


def _update(clone: Clone, folder: Path, index: Path, option: str, names: Sequence[bytes]) -> None:
    if names:
        args = ["update-index", "--replace", option, "-z", "--stdin"]
        clone.run_index(args, index, work_tree=folder, input=b"".join(name + b"\0" for name in names))


def _below_real_folders(folder: Path, path: Path) -> bool:
    """Whether a path is reached from ``folder`` without passing a link."""
    here = path.parent
    while here != folder:
        if not real_folder(here):
            return False
        here = here.parent
    return True
