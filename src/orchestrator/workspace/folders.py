"""Folders in which an agent or a build has worked: read and removed without trusting what is in them.

Nothing here follows a symbolic link that lies below the given folder.
"""

import os
import stat
from collections.abc import Iterator
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
    """Give the owner back the right to read and write every folder and file below, links untouched."""
    for folder, names, files in os.walk(path, onerror=None):
        for name in names:
            child = Path(folder, name)
            if real_folder(child) and child.lstat().st_mode & PRIVATE != PRIVATE:
                child.chmod(child.lstat().st_mode | PRIVATE)
        for name in files:
            child = Path(folder, name)
            mode = child.lstat().st_mode
            if stat.S_ISREG(mode) and not mode & stat.S_IRUSR:
                child.chmod(stat.S_IMODE(mode) | stat.S_IRUSR)


def only_plain(path: Path) -> bool:
    """True where a folder holds files and folders alone: no link, pipe, socket or device at any depth."""
    if not real_folder(path):
        return False
    for folder, names, files in os.walk(path):
        if any(not real_folder(Path(folder, name)) for name in names):
            return False
        if any(not stat.S_ISREG(Path(folder, name).lstat().st_mode) for name in files):
            return False
    return True


def read_inside(root: Path, relative: str, limit: int) -> bytes | None:
    """The content of a plain file below ``root``, reached through real folders only; None where there is none.

    :raises UnreadableFile: the path leaves the folder, passes a link, or is no plain file of at most ``limit`` bytes.
    """
    parts = relative.split("/")
    if "\0" in relative or any(part in ("", ".", "..") for part in parts):
        raise UnreadableFile(f"{relative[:200]!r} is no path inside the workspace.")
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


def _entries(path: Path) -> Iterator[Path]:
    yield from [Path(entry.path) for entry in os.scandir(path)]


def _free(path: Path, number: int) -> Path:
    while exists(path / f".up-{number}"):
        number += 1
    return path / f".up-{number}"
