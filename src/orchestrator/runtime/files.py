"""Small files that must survive a crash, or must exist only once.

What is published is complete: it is written aside, fsynced, and only then given its name. A reader never meets half a
file of ours, so a torn or empty one was not written here. Symbolic links are refused, never followed: a file of the
state folder that turned into a link is somebody else's doing.
"""

import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.domain.errors import OutsideError

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


class UnreadableFile(OutsideError):
    """A file exists but is no plain file of the expected size: what it says must not be believed."""


def publish_exclusive(path: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> bool:
    """Create ``path`` with ``data``, whole and durable; False where the name is taken (the file is then left alone).

    Of any number of callers exactly one gets True. When either answer is returned the name survives a power failure.

    :raises OSError: the folder is missing, read-only or full, or its file system has no hard links.
    """
    aside = _write_aside(path, data, mode)
    try:
        os.link(aside, path, follow_symlinks=False)
    except FileExistsError:
        won = False
    else:
        won = True
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return won


def replace_durably(path: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Give ``path`` new content in one step: after a crash it holds the old or the new, never a mixture.

    :raises UnreadableFile: the name is a symbolic link or no plain file.
    :raises OSError: the folder is missing, read-only or full.
    """
    _refuse_special(path)
    aside = _write_aside(path, data, mode)
    try:
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_bounded(path: Path, limit: int) -> bytes:
    """The whole content of a plain file of at most ``limit`` bytes.

    :raises FileNotFoundError: there is no such file.
    :raises UnreadableFile: it is a symbolic link, no plain file, larger than ``limit``, or not readable.
    """
    try:
        # Non-blocking, so that a planted pipe cannot hold the reader.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableFile(
            f"{path} cannot be read: {error.strerror}.", hint="Look at it by hand."
        ) from error
    with os.fdopen(_plain(handle, path), "rb") as source:
        data = source.read(limit + 1)
    if len(data) > limit:
        raise UnreadableFile(f"{path} is larger than {limit} bytes.", hint="Look at it by hand.")
    return data


def read_tail(path: Path, limit: int) -> bytes:
    """The last ``limit`` bytes of a plain file; empty where there is none or it cannot be read. For messages only."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        source = os.fdopen(_plain(handle, path), "rb")
    except (OSError, UnreadableFile):
        return b""
    with source:
        source.seek(max(0, os.fstat(handle).st_size - limit))
        return source.read(limit)


def trim_log(path: Path, limit: int, keep: int) -> bool:
    """Cut a log that has grown beyond ``limit`` bytes down to its last ``keep``; True where that was needed.

    Writers that append go on undisturbed. What they write between the read and the cut is lost: a log is no record.

    :raises OSError: the file cannot be opened or written.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "r+b", buffering=0) as log:
        size = os.fstat(handle).st_size
        if size <= limit:
            return False
        log.seek(size - keep)
        tail = log.read(keep)
        log.truncate(0)
        log.write(b"[%d bytes of output dropped here]\n" % (size - len(tail)) + tail)
    return True


def make_private_folder(path: Path) -> None:
    """Create a folder of mode 0700, and the missing ones above it, durably; an existing one is left as it is.

    :raises OSError: it cannot be created, or the name belongs to something else.
    """
    if path.is_dir():
        return
    make_private_folder(path.parent)
    path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    sync_folder(path.parent)


def uid_of_new(folder: Path) -> int:
    """The user to whom a file belongs that is made there now, as the file system tells it.

    :raises OSError: the folder is missing or cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as made_now:
        return os.fstat(made_now.fileno()).st_uid


def untouched_for(folder: Path, patterns: Sequence[str], seconds: float) -> list[Path]:
    """What lies in a folder and has not been written to for so long, by the file system's own time: where our clock has
    jumped, nothing gets older by that.

    :raises OSError: the folder cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as made_now:
        oldest = os.fstat(made_now.fileno()).st_mtime - seconds
    found = []
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        with suppress(FileNotFoundError):  # its owner has removed it
            if path.lstat().st_mtime < oldest:
                found.append(path)
    return found


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable.

    :raises OSError: it cannot be opened or synced.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_aside(path: Path, data: bytes, mode: int) -> Path:
    """A complete, fsynced file beside the final name."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    aside = Path(name)
    try:
        with open(handle, "wb") as target:
            target.write(data)
            target.flush()
            os.fchmod(target.fileno(), mode)
            os.fsync(target.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside


def _plain(handle: int, path: Path) -> int:
    """The same handle if it is a plain file's; else it is closed."""
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise UnreadableFile(f"{path} is no plain file.", hint="Look at it by hand.")


def _refuse_special(path: Path) -> None:
    try:
        state = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(state.st_mode):
        raise UnreadableFile(f"{path} is no plain file; it was not replaced.", hint="Look at it by hand.")
