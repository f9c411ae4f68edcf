"""The files of a workspace as a tree in the clone, whatever an agent has put there.

Must hold: git works with the clone's folder and a fresh index of our own, so that neither the agent's index nor its
configuration is believed; every file is compared by content, not by time stamps. No link is followed, no nested
repository entered, no filter run. What is not taken is reported, never silently dropped.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.domain.errors import GitError
from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import SUBMODULE, SYMLINK, decode_path
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
    """The files in ``folder`` on top of the tree of ``base`` (None: of nothing). Ignored files are left out.

    Links that lead out of the folder and huge files are left out with a finding, but for ``everything``: then they are
    taken too, to be kept and not to be delivered.

    :raises GitError: git failed.
    """
    make_readable(folder)
    with clone.temporary_index() as index:
        clone.run_index(["read-tree", base] if base else ["read-tree", "--empty"], index)
        before = _entries(clone.run_index(["ls-files", "-s", "-z"], index))
        listed = clone.run_index(
            ["ls-files", "-z", "-m", "-d", "-o", "--exclude-standard"], index, work_tree=folder
        )
        paths = list(dict.fromkeys(path for path in listed.split(b"\0") if path))
        sort = _sort(folder, paths, before, everything)
        _drop_unchanged(clone, folder, index, sort, before)
        _update(clone, folder, index, "--force-remove", sort.remove)
        try:
            _update(clone, folder, index, "--add", sort.add)
        except GitError:
            # An attribute may ask for an encoding that the file does not have: then its bytes are taken as they are.
            _add_raw(clone, folder, index, sort.add)
        tree = Sha(clone.run_index(["write-tree"], index).decode("ascii").strip())
    changed = tuple(sorted(decode_path(name) for name in {*sort.add, *sort.remove}))
    return Snapshot(tree, changed, tuple(sort.findings), tuple(sort.nested))


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


def _drop_unchanged(
    clone: Clone, folder: Path, index: Path, sort: _Sorted, before: dict[bytes, tuple[str, str]]
) -> None:
    """Files that hold the very bytes of the base are unchanged, whatever an attribute says about their line ends."""
    asked = [raw for raw in sort.add if raw in before and _hashable(folder, raw)]
    if not asked:
        return
    hashed = clone.run_index(
        ["hash-object", "--no-filters", "--stdin-paths"],
        index,
        work_tree=folder,
        input=b"".join(raw + b"\n" for raw in asked),
    ).decode("ascii")
    same = {
        raw
        for raw, blob in zip(asked, hashed.split(), strict=True)
        if before[raw] == (_mode(folder / decode_path(raw)), blob)
    }
    sort.add = [raw for raw in sort.add if raw not in same]


def _hashable(folder: Path, raw: bytes) -> bool:
    """Whether a path can be named on a line of its own and is no link."""
    return b"\n" not in raw and not raw.startswith(b'"') and not (folder / decode_path(raw)).is_symlink()


def _mode(path: Path) -> str:
    return "100755" if path.lstat().st_mode & stat.S_IXUSR else "100644"


def _update(clone: Clone, folder: Path, index: Path, option: str, names: Sequence[bytes]) -> None:
    if names:
        args = ["update-index", "--replace", option, "-z", "--stdin"]
        clone.run_index(args, index, work_tree=folder, input=b"".join(name + b"\0" for name in names))


def _add_raw(clone: Clone, folder: Path, index: Path, names: Sequence[bytes]) -> None:
    """Add files and links without any conversion."""
    records = list[bytes]()
    for raw in names:
        path = folder / decode_path(raw)
        linked = path.is_symlink()
        # A path is given as an argument, for its name may hold anything; a link's text is its content.
        source = ["--stdin"] if linked else ["--", str(path)]
        text = os.readlink(os.fsencode(path)) if linked else None
        blob = clone.run_index(
            ["hash-object", "-w", "--no-filters", *source], index, work_tree=folder, input=text
        )
        mode = SYMLINK if linked else _mode(path)
        records.append(b"%s %s\t%s\0" % (mode.encode("ascii"), blob.strip(), raw))
    clone.run_index(["update-index", "--replace", "-z", "--index-info"], index, input=b"".join(records))


def _below_real_folders(folder: Path, path: Path) -> bool:
    """Whether a path is reached from ``folder`` without passing a link."""
    here = path.parent
    while here != folder:
        if not real_folder(here):
            return False
        here = here.parent
    return True


def _entries(listed: bytes) -> dict[bytes, tuple[str, str]]:
    """Path → (mode, blob) of an index."""
    entries = dict[bytes, tuple[str, str]]()
    for record in listed.split(b"\0"):
        if record:
            head, _, path = record.partition(b"\t")
            mode, blob, _stage = head.decode("ascii").split(" ")
            entries[path] = (mode, blob)
    return entries
