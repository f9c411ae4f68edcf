"""What an artefact contains: copied in faithfully, digested the same way on every machine.

The digest covers, in the order of their names as bytes, every folder, file and symbolic link: relative path, whether it
may be executed, and the bytes. Times, owners and the other mode bits are not content. Whatever could differ between
reading and deploying (links that leave the artefact, pipes, devices) is refused instead of guessed at.

A stored object has one entry: ``tree/`` for a folder, ``file/<its name>`` for a single file.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Digest
from orchestrator.runtime.files import PRIVATE_FOLDER, sync_folder

ENTRY_LIMIT = 200_000  # files, folders and links of one artefact
SIZE_LIMIT = 16 * 1024**3  # bytes of one artefact
CHUNK = 1024 * 1024

TREE = "tree"
FILE = "file"
FORMAT = b"orchestrator artefact 1\n"

READ_ONLY = 0o444
READ_ONLY_PROGRAM = 0o555
EXECUTABLE = 0o100


class ArtifactRefused(OutsideError):
    """The build left something that cannot be stored and deployed faithfully."""


class Kind(StrEnum):
    """What an entry is; the letter is part of the digest."""

    FOLDER = "d"
    FILE = "f"
    PROGRAM = "x"
    LINK = "l"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry below a root. ``relative`` has no leading slash; ``size`` is 0 for all but files."""

    relative: bytes
    kind: Kind
    size: int

    def below(self, root: Path) -> Path:
        """Its place under another root."""
        return root / os.fsdecode(self.relative)


def copy_in(source: Path, target: Path) -> None:
    """Copy an artefact into the empty folder ``target``: durable, every file read-only.

    Folders stay writable, so that their owner can remove a state folder by ordinary means; a digest is checked anyway.

    :raises ArtifactRefused: it holds what cannot be stored faithfully, or is too large.
    :raises OSError: it cannot be read, or the target not written.
    """
    try:
        state = source.lstat()
    except FileNotFoundError as error:
        raise ArtifactRefused(
            f"There is no artefact at {source}.", hint="Did the build write it there?"
        ) from error
    if stat.S_ISDIR(state.st_mode):
        top = target / TREE
        top.mkdir(mode=PRIVATE_FOLDER)
        _copy_tree(source, top)
    elif stat.S_ISREG(state.st_mode):
        top = target / FILE
        top.mkdir(mode=PRIVATE_FOLDER)
        _copy_file(source, top / source.name, bool(state.st_mode & EXECUTABLE))
    else:
        raise ArtifactRefused(f"The artefact {source} is neither a file nor a folder.")
    _sync_folders(top)
    sync_folder(target)


def digest_of(folder: Path) -> Digest:
    """The digest of everything below a folder.

    :raises FileNotFoundError: there is no such folder, or it changed while it was read.
    :raises ArtifactRefused: it holds what no artefact may hold.
    :raises OSError: it cannot be read.
    """
    total = hashlib.sha256(FORMAT)
    for entry in entries(folder):
        place = entry.below(folder)
        if entry.kind is Kind.LINK:
            content = hashlib.sha256(os.fsencode(os.readlink(place))).digest()
        elif entry.kind is Kind.FOLDER:
            content = b""
        else:
            content = _digest_file(place)
        total.update(entry.kind.value.encode())
        total.update(len(entry.relative).to_bytes(8, "big") + entry.relative)
        total.update(len(content).to_bytes(8, "big") + content)
    return Digest(f"sha256:{total.hexdigest()}")


def entries(root: Path) -> Iterator[Entry]:
    """Everything below a folder, a folder before what it holds, in one order everywhere.

    :raises ArtifactRefused: an entry is no file, folder or inner link, or there are too many.
    """
    count = size = 0
    real_root = os.fsencode(os.path.realpath(root))
    waiting = [b""]
    while waiting:
        relative = waiting.pop()
        if relative:
            entry = _entry(root, real_root, relative)
            count, size = count + 1, size + entry.size
            if count > ENTRY_LIMIT or size > SIZE_LIMIT:
                raise ArtifactRefused(
                    f"The artefact {root} has more than {ENTRY_LIMIT} entries or {SIZE_LIMIT} bytes.",
                    hint="Let the build leave only what is deployed.",
                )
            yield entry
            if entry.kind is not Kind.FOLDER:
                continue
        names = sorted(os.listdir(os.path.join(os.fsencode(root), relative)), reverse=True)
        waiting.extend(os.path.join(relative, name) for name in names)


def sole_entry(folder: Path) -> Path:
    """The artefact inside a stored object.

    :raises FileNotFoundError: the object is not there or not whole.
    """
    tree = folder / TREE
    if tree.is_dir():
        return tree
    for file in (folder / FILE).iterdir():
        return file
    raise FileNotFoundError(2, "the stored object is empty", str(folder))


def _entry(root: Path, real_root: bytes, relative: bytes) -> Entry:
    place = os.path.join(os.fsencode(root), relative)
    state = os.lstat(place)
    shown = os.fsdecode(relative)
    if stat.S_ISDIR(state.st_mode):
        return Entry(relative, Kind.FOLDER, 0)
    if stat.S_ISREG(state.st_mode):
        kind = Kind.PROGRAM if state.st_mode & EXECUTABLE else Kind.FILE
        return Entry(relative, kind, state.st_size)
    if not stat.S_ISLNK(state.st_mode):
        raise ArtifactRefused(f"The artefact holds {shown!r}, which is no file, folder or link.")
    target = os.readlink(place)
    lexical = os.path.normpath(os.path.join(os.path.dirname(relative), target))
    real = os.path.realpath(place)
    if (
        os.path.isabs(target)
        or lexical.split(b"/")[0] == b".."
        or not (real == real_root or real.startswith(real_root + b"/"))
    ):
        raise ArtifactRefused(
            f"The artefact's link {shown!r} leads out of it, to {os.fsdecode(target)!r}.",
            hint="Let the build copy what the link names.",
        )
    return Entry(relative, Kind.LINK, 0)


def _copy_tree(source: Path, target: Path) -> None:
    for entry in entries(source):
        origin, copy = entry.below(source), entry.below(target)
        if entry.kind is Kind.FOLDER:
            copy.mkdir(mode=PRIVATE_FOLDER)
        elif entry.kind is Kind.LINK:
            os.symlink(os.readlink(origin), copy)  # pathlib would tidy the target up
        else:
            _copy_file(origin, copy, entry.kind is Kind.PROGRAM)


def _copy_file(source: Path, target: Path, executable: bool) -> None:
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as origin, target.open("xb") as copy:
        shutil.copyfileobj(origin, copy, CHUNK)
        copy.flush()
        os.fchmod(copy.fileno(), READ_ONLY_PROGRAM if executable else READ_ONLY)
        os.fsync(copy.fileno())


def _sync_folders(top: Path) -> None:
    for place, _, _ in os.walk(top, topdown=False):
        sync_folder(Path(place))


def _digest_file(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as source:
        return hashlib.file_digest(source, "sha256").digest()
