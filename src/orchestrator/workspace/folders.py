"""Folders in which an agent or a build has worked: read and removed without trusting what is in them.

Nothing here follows a symbolic link that lies below the given folder.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.files import UnreadableFile, read_bounded

PRIVATE = 0o700


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
        while entries := list(_entries(path)):
            for entry in entries:
                if not real_folder(entry):
                    entry.unlink()
                    continue
                entry.chmod(PRIVATE)
                for child in _entries(entry):
                    if real_folder(child):
                        child.chmod(PRIVATE)  # a folder is moved only by who may write to it
                        child.rename(_free(path, number))
                        number += 1
                    else:
                        child.unlink()
                entry.rmdir()
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
            mode = entry.lstat().st_mode
            wanted = PRIVATE if stat.S_ISDIR(mode) else stat.S_IRUSR if stat.S_ISREG(mode) else 0
            if mode & wanted != wanted:
                entry.chmod(stat.S_IMODE(mode) | wanted)


def only_plain(path: Path) -> bool:
    """True where a folder holds files and folders alone: no link, pipe, socket or device at any depth."""
    try:
        modes = [entry.lstat().st_mode for entry in _walk(path)]
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


def _walk(path: Path) -> Iterator[Path]:
    """Everything below, a folder before what is in it, without recursion and without following links.

    A folder that cannot be read, be it for its path's length, is passed by.
    """
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        with suppress(OSError):
            for entry in _entries(folder):
                yield entry
                if real_folder(entry):
                    waiting.append(entry)


def _entries(path: Path) -> Iterator[Path]:
    yield from [Path(entry.path) for entry in os.scandir(path)]


def _free(path: Path, number: int) -> Path:
    while exists(path / f".up-{number}"):
        number += 1
    return path / f".up-{number}"
