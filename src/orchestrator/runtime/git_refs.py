"""The references of one bare repository: read, and changed by compare-and-swap in one transaction.

Must hold: a change lands whole or not at all and only from the values the caller names. A git killed in the middle
leaves ``*.lock`` files that would refuse every later change. They are removed only on proof: every writer of ours
holds a shared flock, inherited by its git, and has noted beforehand which references it is about to lock. Who gets the
flock exclusively knows that all of these have ended, and removes what their notes account for. A lock that no note
accounts for is a stranger's: it is waited for, never removed.

On failure: :class:`RefsRefused` where a value was another one, ``AuthorityUnreachable`` where a stranger's lock stays.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.errors import AuthorityUnreachable, GitError
from orchestrator.domain.ids import Sha
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.files import sync_folder
from orchestrator.runtime.folder_lock import locked
from orchestrator.runtime.git import Git, git_error
from orchestrator.runtime.process import Completed

LOCK_FILE = "orch.lock"
NOTES = "orch/writers"
LOCK_WAIT_S = 20.0  # for a stranger's lock; a person's push holds one for milliseconds
EMPTY_LOCK_S = (
    1.0  # git writes into a lock right after creating it; one that stays empty is nobody's any more
)
RETRY_S = 0.05
ANY = "*"

_LOCKED = ("File exists", "Unable to create")


class RefsRefused(GitError):
    """A reference was not at the value that the change starts from; nothing was changed."""


@dataclass(frozen=True, slots=True)
class RefChange:
    """One step of a transaction: from ``old`` (None: absent) to ``new`` (None: absent); equal values only verify."""

    ref: str
    old: Sha | None
    new: Sha | None


class References:
    """Reads and writes the references under one git folder. Safe to use from many threads and processes."""

    def __init__(
        self, git: Git, git_dir: Path, clock: Clock, entropy: Entropy, *, wait_s: float = LOCK_WAIT_S
    ) -> None:
        self._git = git
        self._dir = git_dir
        self._clock = clock
        self._entropy = entropy
        self._wait_s = wait_s

    def read(self, ref: str) -> Sha | None:
        """What a full reference name points at; None where there is none.

        :raises GitError: the repository or the reference cannot be read: a damaged one is not an absent one.
        """
        return self.read_together(ref)[ref]

    def read_together(self, *refs: str) -> Mapping[str, Sha | None]:
        """What each of some full reference names points at, asked at once; see :meth:`read`."""
        found = self.under(*refs)
        for ref in refs:
            if ref not in found and (self._dir / ref).is_file():
                raise GitError(
                    f"The reference {ref} of {self._dir} is damaged.",
                    hint="Look at the file; `git fsck` tells more.",
                )
        return {ref: found.get(ref) for ref in refs}

    def under(self, *prefixes: str) -> Mapping[str, Sha]:
        """All references equal to or below one of ``prefixes`` with their values.

        :raises GitError: the repository cannot be read.
        """
        below = [prefix.rstrip("/") for prefix in prefixes]
        listed = self._git.text(
            ["for-each-ref", "--format=%(objectname) %(refname)", "--", *below], git_dir=self._dir
        )
        pairs = (line.split(" ", 1) for line in listed.splitlines())
        return {ref: Sha(sha) for sha, ref in pairs}

    def change(self, *changes: RefChange) -> None:
        """Apply all changes in one transaction, or none.

        :raises RefsRefused: a reference is at another value.
        :raises AuthorityUnreachable: a lock that is not ours does not go away.
        :raises GitError: git failed in another way.
        """
        steps = ["start", *(_step(change) for change in changes), "prepare", "commit", ""]
        covered = {change.ref: change.new or "" for change in changes}
        done = self.writing(["update-ref", "--stdin"], covered, input="\n".join(steps).encode())
        if done.returncode != 0:
            error = git_error("git update-ref", done)
            raise RefsRefused(error.message, stderr=error.stderr, returncode=error.returncode)
        self._sync(covered)

    def writing(
        self,
        args: Sequence[str],
        covered: Mapping[str, str],
        *,
        input: bytes | None = None,
        protocols: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
        timeout: float = 120.0,
    ) -> Completed:
        """Run a git command that writes references, repeated while locks are in its way.

        ``covered`` says what it may lock: reference → new value, or a prefix ending in ``/`` → :data:`ANY`.

        :raises AuthorityUnreachable: a lock stays in the way, or the repository cannot be written.
        :raises GitError: git could not be run, or was killed.
        """
        deadline = self._clock.boottime() + self._wait_s
        while True:
            try:
                with self._noted(covered) as handle:
                    done = self._git.run(
                        args,
                        git_dir=self._dir,
                        input=input,
                        check=False,
                        protocols=protocols,
                        env=env,
                        settings=settings,
                        timeout=timeout,
                        pass_fds=[handle],
                    )
                    if done.returncode < 0:
                        raise git_error(f"git {args[0]}", done)
            except OSError as error:
                raise _unwritable(self._dir, error) from error
            said = done.stderr.decode("utf-8", "replace")
            if done.returncode == 0 or not all(word in said for word in _LOCKED):
                return done
            self.clear_dead_locks()
            if self._clock.boottime() >= deadline:
                raise AuthorityUnreachable(
                    f"{self._dir} is locked by another program: {git_error('git', done).message}.",
                    hint="If no git is at work there, remove the .lock file that is named; the task then goes on.",
                )
            self._clock.wait(threading.Event(), self._entropy.jitter(RETRY_S))

    def clear_dead_locks(self) -> int:
        """Remove the locks that dead writers of ours have left; how many there were. Live writers are waited for."""
        with locked(self._dir / LOCK_FILE, self._clock, wait_s=self._wait_s) as handle:
            if handle is None:
                return 0  # a writer of ours lives: its locks are its own
            notes = sorted((self._dir / NOTES).glob("*.note"))
            removed = sum(self._clear(lock, notes) for lock in self._locks()) if notes else 0
            for note in notes:
                note.unlink(missing_ok=True)
            return removed

    @contextmanager
    def _noted(self, covered: Mapping[str, str]) -> Iterator[int]:
        """Hold the shared flock with a note of what is about to be locked; the note stays where git was killed."""
        with locked(self._dir / LOCK_FILE, self._clock, shared=True, wait_s=self._wait_s) as handle:
            if handle is None:
                raise AuthorityUnreachable(f"{self._dir} stays locked by another process of ours.")
            folder = self._dir / NOTES
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            note = folder / f"{self._entropy.token()}.note"
            note.write_text("".join(f"{ref} {new}\n" for ref, new in covered.items()), encoding="utf-8")
            yield handle  # not in a `finally`: a killed git's note is what accounts for its locks
            note.unlink(missing_ok=True)

    def _sync(self, refs: Iterable[str]) -> None:
        """Make the moved names durable, before anybody relies on them: git syncs files but not their folders."""
        for folder in {(self._dir / ref).parent for ref in refs}:
            with suppress(FileNotFoundError):  # removed together with the last reference in it
                sync_folder(folder)

    def _locks(self) -> Iterator[Path]:
        for name in ("HEAD.lock", "packed-refs.lock", "packed-refs.new", "shallow.lock"):
            if (self._dir / name).exists():
                yield self._dir / name
        yield from (self._dir / "refs").rglob("*.lock")

    def _clear(self, lock: Path, notes: Sequence[Path]) -> bool:
        """Remove one lock if a note accounts for it."""
        name = lock.relative_to(self._dir).as_posix().removesuffix(".lock")
        values = set[str]()
        for note in notes:
            for line in note.read_text(encoding="utf-8").splitlines():
                ref, _, new = line.partition(" ")
                if (
                    ref == name
                    or (ref.endswith("/") and name.startswith(ref))
                    or not name.startswith("refs/")
                ):
                    values.add(new)
        if not values or not self._abandoned(lock, values):
            return False
        lock.unlink(missing_ok=True)
        return True

    def _abandoned(self, lock: Path, values: set[str]) -> bool:
        """Whether the lock's content is what our writer would have left: its new value, or nothing yet."""
        try:
            held, state = lock.read_text(encoding="ascii", errors="replace").strip(), lock.stat()
        except FileNotFoundError:
            return False
        if held:
            return held in values or ANY in values
        self._clock.wait(threading.Event(), EMPTY_LOCK_S)
        try:
            later = lock.stat()
        except FileNotFoundError:
            return False
        return (later.st_ino, later.st_size, later.st_mtime_ns) == (state.st_ino, 0, state.st_mtime_ns)


def _unwritable(git_dir: Path, error: OSError) -> AuthorityUnreachable:
    return AuthorityUnreachable(
        f"{git_dir} cannot be written: {error.strerror} ({error.filename}).",
        hint="Is the disk full, or the folder read-only or moved?",
    )


def _step(change: RefChange) -> str:
    if any(ord(letter) < 33 for letter in change.ref):
        raise GitError(f"{change.ref!r} is no name of a reference.")
    zero = "0" * len(change.new or change.old or "0" * 40)
    if change.old == change.new:
        return f"verify {change.ref} {change.old or zero}"
    if change.new is None:
        return f"delete {change.ref} {change.old}"
    return f"update {change.ref} {change.new} {change.old or zero}"
