"""Folders in which an agent or a build has worked: read and removed without trusting what is in them.

Nothing here follows a symbolic link that lies below the given folder.
"""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.files import UnreadableFile, read_bounded

PRIVATE = 0o700

_READ_WRITE = stat.S_IRUSR | stat.S_IWUSR
_UNUSUAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX | stat.S_IWOTH  # rights that git never gives


def real_folder(path: Path) -> bool:
    """True where the path itself is a folder and not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def exists(path: Path) -> bool:
    """True where anything has this name, a dangling link included."""
    return os.path.lexists(path)


def remove_tree(path: Path) -> None:
    """Remove whatever has this name: folders without write permission, links (not what they lead to), any depth.

    Deep folders are first brought up one level at a time, so that neither a path nor the stack grows with them.

    :raises OutsideError: something cannot be removed, such as a mount or another user's folder.
    """
    if not exists(path):
        return
    try:
        if not real_folder(path):
            path.unlink()
            return
        path.chmod(PRIVATE)
        number = 0
        while entries := _entries(path):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry)
                    continue
                os.chmod(entry, PRIVATE)
                for child in _entries(entry):
                    if child.is_dir(follow_symlinks=False):
                        os.chmod(child, PRIVATE)  # a folder is moved only by who may write to it
                        os.rename(child, _free(path, number))
                        number += 1
                    else:
                        os.unlink(child)
                os.rmdir(entry)
        path.rmdir()
    except OSError as error:
        raise OutsideError(
            f"{path} cannot be removed: {error.strerror} ({error.filename}).", hint="Remove it by hand."
        ) from error


def make_readable(path: Path) -> None:
    """Give the owner back the right to read and write every folder and to read every file; links are untouched."""
    path.chmod(stat.S_IMODE(path.lstat().st_mode) | PRIVATE)
    for entry in _walk(path):
        # Another user's, or too deep to be named: what cannot be read is reported by whoever needs it.
        with suppress(OSError):
            mode = entry.stat(follow_symlinks=False).st_mode
            wanted = PRIVATE if stat.S_ISDIR(mode) else stat.S_IRUSR if stat.S_ISREG(mode) else 0
            if mode & wanted != wanted:
                os.chmod(entry, stat.S_IMODE(mode) | wanted)


def keep_only(path: Path, files: Collection[bytes], folders: Collection[bytes]) -> None:
    """Remove everything below that is not among the given relative names, but for a ``.git`` at the top.

    A file that stays is a link, or a plain file that nothing else may be reached through: no other name for the same
    content, no rights beyond those that git gives. What it holds is for the caller to compare.

    :raises OSError: something cannot be looked at or removed.
    :raises OutsideError: as :func:`remove_tree`.
    """
    waiting = [(os.fsencode(path), b"")]
    while waiting:
        folder, prefix = waiting.pop()
        with os.scandir(folder) as found:
            entries = list(found)
        for entry in entries:
            name = prefix + entry.name
            state = entry.stat(follow_symlinks=False)
            if name == b".git":
                continue
            if stat.S_ISDIR(state.st_mode) and name in folders:
                if state.st_mode & _UNUSUAL or state.st_mode & PRIVATE != PRIVATE:
                    os.chmod(entry, stat.S_IMODE(state.st_mode) & ~_UNUSUAL | PRIVATE)
                waiting.append((entry.path, name + b"/"))
            elif stat.S_ISDIR(state.st_mode):
                remove_tree(Path(os.fsdecode(entry.path)))
            elif name not in files or not _plainly_ours(state):
                os.unlink(entry)


def only_plain(path: Path) -> bool:
    """True where a folder holds files and folders alone: no link, pipe, socket or device at any depth."""
    try:
        modes = [entry.stat(follow_symlinks=False).st_mode for entry in _walk(path)]
    except OSError:
        return False
    return real_folder(path) and all(stat.S_ISDIR(mode) or stat.S_ISREG(mode) for mode in modes)


def read_inside(root: Path, relative: str, limit: int) -> bytes | None:
    """The content of a plain file below ``root``, reached through real folders only; None where there is none.

    :raises UnreadableFile: the path leaves the folder, passes a link, or is no plain file of at most ``limit`` bytes.
    """
    parts = relative.split("/")
    if "\0" in relative or any(part in ("", ".", "..") for part in parts):
        raise UnreadableFile(f"{relative[:200]!r} is no path inside the workspace.")
    if exists(root) and not real_folder(root):
        raise UnreadableFile("The workspace's folder was replaced by a link or a file.")
    here = root
    for part in parts[:-1]:
        here = here / part
        if not exists(here):
            return None
        if not real_folder(here):
            raise UnreadableFile(f"{relative}: {here.name} is no folder but a link or file.")
    try:
        return read_bounded(here / parts[-1], limit)
    except FileNotFoundError:
        return None


def leaves(root: Path, link: Path) -> bool:
    """True where a symbolic link below ``root`` leads out of it (or is absolute)."""
    target = os.readlink(link)
    if target.startswith("/"):
        return True
    inside = os.path.normpath(os.path.join(link.parent.relative_to(root), target))
    return inside == ".." or inside.startswith("../")


def _plainly_ours(state: os.stat_result) -> bool:
    if stat.S_ISLNK(state.st_mode):
        return True
    readable = state.st_mode & _READ_WRITE == _READ_WRITE and not state.st_mode & _UNUSUAL
    return stat.S_ISREG(state.st_mode) and readable and state.st_nlink == 1


def _walk(path: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below, a folder before what is in it, without recursion and without following links.

    A folder that cannot be read, be it for its path's length, is passed by.
    """
    waiting = [os.fspath(path)]
    while waiting:
        folder = waiting.pop()
        with suppress(OSError):
            for entry in _entries(folder):
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _entries(path: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(path) as found:
        return list(found)


def _free(path: Path, number: int) -> Path:
    while exists(path / f".up-{number}"):
        number += 1
    return path / f".up-{number}"
