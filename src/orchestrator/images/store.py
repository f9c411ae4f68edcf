"""Artefacts addressed by what they contain; tags say which candidate built them.

A digest names bytes, so what was tested is what is deployed. A tag ``<sha>-e<token>`` is created once and never moves:
a late push carries another token and is another tag (DESIGN §6, row image). Objects are copied in, durable
and with read-only files, before the tag that names them exists; a crash leaves at most an object without a tag, which
pruning removes.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Protocol

from orchestrator.domain.errors import AuthorityUnreachable, ConfigError, OutsideError
from orchestrator.domain.ids import Digest
from orchestrator.images.content import (
    TREE,
    ArtifactRefused,
    copy_in,
    digest_of,
    sole_entry,
)
from orchestrator.runtime.files import (
    UnreadableFile,
    make_private_folder,
    publish_exclusive,
    read_bounded,
    sync_folder,
)

TAG = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?-e[A-Za-z0-9._-]{1,80}")
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
TAG_LIMIT = 256  # bytes of a tag file; a digest and a line end


class TagTaken(OutsideError):
    """The tag names another digest. Tags never move; the settled digest is what counts."""


class ArtifactGone(OutsideError):
    """The store is there and does not have the artefact: waiting brings nothing. ``place`` is where it would lie."""

    def __init__(self, digest: Digest, place: Path) -> None:
        super().__init__(
            f"The artefact {digest} is not in the image store any more ({place.parent}).",
            hint="Put the store's folder back from a backup, or let a later change be deployed.",
        )
        self.place = place


class ImageStore(Protocol):
    """Keeps artefacts."""

    def publish(self, source: Path, tag: str) -> Digest:
        """Store a file or folder and name it. Repeating with the same content is harmless.

        :raises TagTaken: the tag exists and names other content.
        :raises ArtifactRefused: the source holds what cannot be stored faithfully.
        :raises AuthorityUnreachable: the store cannot be read or written.
        """
        ...

    def resolve(self, tag: str) -> Digest | None:
        """The digest a tag names; None where the tag does not exist.

        :raises AuthorityUnreachable: the store cannot be read.
        """
        ...

    def has(self, digest: Digest) -> bool:
        """Whether the content is there and still is what the digest says (it is hashed again).

        :raises AuthorityUnreachable: the store cannot be read.
        """
        ...

    def path(self, digest: Digest) -> Path:
        """Where the artefact lies: the folder, or the file under its own name. To be read, never changed.

        :raises ArtifactGone: the store is there, and has it not, or not whole.
        :raises AuthorityUnreachable: the store cannot be read, or is not there.
        """
        ...

    def prune(self, keep: Collection[Digest]) -> int:
        """Remove every object but those to keep, with their tags; returns how many."""
        ...


def image_tag(sha: str, token: str) -> str:
    """The tag of one candidate's build."""
    return f"{sha}-e{token}"


class LocalImageStore:
    """A folder: ``objects/<hex>/``, ``tags/<tag>``, and ``incoming/`` for what is being copied."""

    def __init__(self, root: Path, *, there: Callable[[], None] = lambda: None) -> None:
        """``there`` raises where ``root`` does not lie in the state folder that it should."""
        self._there = there
        self._root = root
        self._objects = root / "objects"
        self._tags = root / "tags"
        self._incoming = root / "incoming"

    def publish(self, source: Path, tag: str) -> Digest:
        """Copy in, hash the copy, give it its name, then its tag; see :class:`ImageStore`."""
        name = self._tag_file(tag)
        with self._reachable(), self._lock(fcntl.LOCK_SH):
            aside = Path(tempfile.mkdtemp(prefix="push-", dir=self._incoming))
            try:
                copy_in(source, aside)
                digest = digest_of(aside)
                self._adopt(aside, digest)
            finally:
                _remove(aside)
            if not publish_exclusive(name, f"{digest}\n".encode()):
                other = self.resolve(tag)
                if other != digest:
                    raise TagTaken(
                        f"The image tag {tag} names {other}, not {digest}; nothing was overwritten.",
                        hint="The stored image counts; deploy that digest.",
                    )
        return digest

    def resolve(self, tag: str) -> Digest | None:
        """Read the tag; see :class:`ImageStore`."""
        name = self._tag_file(tag)
        with self._reachable():
            try:
                text = read_bounded(name, TAG_LIMIT).decode("ascii", errors="replace").strip()
            except FileNotFoundError:
                return None
        if not DIGEST.fullmatch(text):
            raise AuthorityUnreachable(
                f"The image tag {name} does not hold a digest.", hint="Look at it by hand."
            )
        return Digest(text)

    def has(self, digest: Digest) -> bool:
        """Hash it again; see :class:`ImageStore`."""
        folder = self._object(digest)
        with self._reachable():
            try:
                return digest_of(folder) == digest
            except (FileNotFoundError, ArtifactRefused):
                return False

    def path(self, digest: Digest) -> Path:
        """Where it lies; see :class:`ImageStore`."""
        folder = self._object(digest)
        with self._reachable():
            try:
                return sole_entry(folder)
            except FileNotFoundError:
                self._there()
                # A folder without objects is no store yet: something may have to be mounted there.
                if os.path.lexists(self._root) and not self._objects.is_dir():
                    raise
        raise ArtifactGone(digest, folder / TREE)

    def prune(self, keep: Collection[Digest]) -> int:
        """Remove what is not to be kept; see :class:`ImageStore`. Nobody publishes meanwhile."""
        kept = {self._object(digest).name for digest in keep}
        removed = 0
        with self._reachable(), self._lock(fcntl.LOCK_EX):
            for name in sorted(self._tags.iterdir()):
                target = self.resolve(name.name) if TAG.fullmatch(name.name) else None
                if target is None or self._object(target).name not in kept:
                    name.unlink()
            sync_folder(self._tags)  # a tag never outlives its object
            for folder in sorted(self._objects.iterdir()):
                if folder.name not in kept:
                    _remove(folder)
                    removed += 1
            for left in sorted(self._incoming.iterdir()):
                _remove(left)
        return removed

    def _adopt(self, aside: Path, digest: Digest) -> None:
        """Give the copy its final name; an object already there is kept if sound and replaced if damaged."""
        final = self._object(digest)
        for _ in range(2):
            try:
                aside.rename(final)
            except OSError:
                if not final.exists():
                    raise
                if self.has(digest):
                    return
                final.rename(self._incoming / f"damaged-{aside.name}")
            else:
                sync_folder(self._objects)
                return
        raise AuthorityUnreachable(f"The image {digest} cannot be put in its place.", hint="Try again.")

    def _tag_file(self, tag: str) -> Path:
        if not TAG.fullmatch(tag):
            raise ConfigError(f"{tag!r} is no image tag.", hint="A tag is <full sha>-e<token>.")
        return self._tags / tag

    def _object(self, digest: Digest) -> Path:
        match = DIGEST.fullmatch(digest)
        if match is None:
            raise ConfigError(f"{digest!r} is no digest.", hint="A digest is sha256:<64 hex digits>.")
        return self._objects / match[1]

    @contextlib.contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        """Publishers share, pruning is alone. The kernel frees the lock of a process that dies."""
        for folder in (self._objects, self._tags, self._incoming):
            make_private_folder(folder)
        handle = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, UnreadableFile) as error:
            raise AuthorityUnreachable(
                f"The image store {self._root} cannot be used: {error}.",
                hint="Check that the disk is there, has room and may be written.",
            ) from error


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
