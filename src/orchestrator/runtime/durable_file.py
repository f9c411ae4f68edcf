"""Files that other processes rely on: written whole or not at all, private to their owner.

``write_durably`` replaces, ``publish`` creates exclusively and so decides a race: of all who publish under
one name exactly one gets True, in whatever process or host with the same file system. Both survive a power
cut once they have returned.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700
RESERVE_BYTES = 64 * 1024


def write_durably(path: Path, data: bytes, *, aside: Path | None = None) -> None:
    """Replace ``path`` atomically. ``aside`` may name a file reserved with :func:`reserve`, for a full disk.

    :raises OSError: the disk is full, read-only or gone; ``path`` is as it was.
    """
    temporary = aside if aside is not None else _aside(path)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        _write_all(handle, data)
        os.ftruncate(handle, len(data))
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(temporary, path)
    sync_folder(path.parent)


def publish(path: Path, data: bytes) -> bool:
    """Create ``path`` with this content, unless it exists: True iff it was created by this very call.

    Written aside and published with link(2), so that nobody ever sees half of it.

    :raises OSError: the disk is full, read-only or gone.
    """
    temporary = _aside(path)
    temporary.unlink(missing_ok=True)
    write_durably(temporary, data, aside=temporary.with_suffix(".part"))
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def reserve(path: Path, size: int = RESERVE_BYTES) -> None:
    """Take the room for a later :func:`write_durably` now.

    :raises OSError: there is no room.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.posix_fallocate(handle, 0, size)
    finally:
        os.close(handle)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """:func:`write_durably` for a JSON object."""
    write_durably(path, json.dumps(value, ensure_ascii=False, indent=1).encode())


def read_json(path: Path) -> dict[str, object] | None:
    """The object in a file; None where there is no file or it holds no JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
