"""What a forge elsewhere has, as a bare repository of ours shows it, and the one way in which we change it there.

Must hold: a reading method looks at the forge first, so that what it says was so after it was asked. A change is one
push that the forge's git takes whole or not at all, and only from the values that the caller names: it compares them
itself, in its own transaction. Our copy is never a source of facts without a look.

On failure: ``AuthorityUnreachable`` where the forge could not be read, ``PushRefused`` where it did not take a change;
any other failed push may have landed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.domain.errors import AuthorityUnreachable, GitError, OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.forges.git_access import PROTOCOLS, SETTINGS, GitAccess
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.git import Git, git_error
from orchestrator.runtime.git_bare import make_bare
from orchestrator.runtime.git_fetch import Fetcher
from orchestrator.runtime.git_refs import RefChange, References, RefsRefused
from orchestrator.runtime.git_transfer import sweep, transfer
from orchestrator.runtime.shared_step import SharedStep

HEADS = "refs/heads/"
OURS = "refs/orch/"
CONFIG = (
    b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
    b"[receive]\n\tautogc = false\n[gc]\n\tauto = 0\n"
)
READ_TIMEOUT_S = 60.0
PUSH_TIMEOUT_S = 300.0
_REFUSED = ("[rejected]", "[remote rejected]")
_RENAMED = ("error: 301", "error: 302", "error: 307", "error: 308")
_SHUT_OUT = ("Authentication failed", "error: 401", "error: 403", "could not read Username")


class PushRefused(RefsRefused):
    """The forge did not take a push; ``refs`` says of each reference why. Nothing was changed."""

    def __init__(self, url: str, refs: Sequence[str], because: GitError) -> None:
        said = f"{url} did not take {'; '.join(refs)}."
        super().__init__(said, stderr=because.stderr, returncode=because.returncode)
        self.refs = tuple(refs)


class Mirror:
    """One repository at a forge. Safe for many threads and processes."""

    def __init__(self, git: Git, path: Path, access: GitAccess, *, clock: Clock, entropy: Entropy) -> None:
        self.git = git
        self.path = path
        self.access = access
        self._clock = clock
        self._entropy = entropy
        self._refs = References(git, path, clock, entropy)
        self._fetcher = Fetcher(self._refs, clock, entropy)
        self._looks = SharedStep(self._fetch)

    def open_or_create(self, default_branch: str) -> "Mirror":
        """Make our copy where there is none.

        :raises GitError: git failed.
        :raises OSError: the state folder is full or read-only.
        """
        make_bare(self.git, self.path, CONFIG)
        self.git.run(["symbolic-ref", "HEAD", HEADS + default_branch], git_dir=self.path)
        sweep(self.path)
        return self

    def borrow(self, objects: Path) -> None:
        """Use the objects of another copy on this machine.

        :raises OSError: the state folder is full or read-only.
        """
        (self.path / "objects" / "info").mkdir(exist_ok=True)
        (self.path / "objects" / "info" / "alternates").write_text(f"{objects.resolve()}\n", encoding="utf-8")

    # -- reading -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Bring our copy up to what the forge has now; one look serves all threads that ask meanwhile.

        :raises AuthorityUnreachable: the forge cannot be read.
        """
        self._looks.run()

    def read(self, ref: str) -> Sha | None:
        """A reference as it was at the last look."""
        with self.asking():
            return self._refs.read(ref)

    def under(self, prefix: str) -> Mapping[str, Sha]:
        """References below a prefix as they were at the last look."""
        with self.asking():
            return self._refs.under(prefix)

    def tip(self, ref: str) -> Sha | None:
        """A reference as the forge has it now, whether or not its objects are here.

        :raises AuthorityUnreachable: the forge cannot be read.
        """
        args = ["ls-remote", "-q", "--refs", "--", self.access.url, ref]
        with self.asking():
            shown = self._remote(args, timeout=READ_TIMEOUT_S)
        lines = (line.split("\t") for line in shown.decode("utf-8", "replace").splitlines())
        return next((Sha(found[0]) for found in lines if found[1:] == [ref]), None)

    def has(self, sha: Sha) -> bool:
        """Whether a commit is here."""
        found = self.git.run(["cat-file", "-e", f"{sha}^{{commit}}"], git_dir=self.path, check=False)
        return found.returncode == 0

    def is_ancestor(self, ancestor: Sha, descendant: Sha) -> bool:
        """Of two commits that are here."""
        with self.asking():
            done = self.git.run(
                ["merge-base", "--is-ancestor", ancestor, descendant], git_dir=self.path, check=False
            )
            if done.returncode not in (0, 1):
                raise git_error("git merge-base", done)
        return done.returncode == 0

    def note_at(self, sha: Sha) -> bytes:
        """What a note of ours says."""
        with self.asking():
            told = self.git.run(["log", "-1", "--no-show-signature", "--format=%s", sha], git_dir=self.path)
        return told.stdout

    @contextmanager
    def asking(self) -> Iterator[None]:
        """What cannot be read is unknown, which is not the same as absent (law 4)."""
        try:
            yield
        except GitError as error:
            raise AuthorityUnreachable(
                f"{self.access.url} cannot be read: {error.message}", hint=_hint(error)
            ) from error

    # -- changing ----------------------------------------------------------------------------------------------

    def take_in(self, source: Path, sha: Sha) -> None:
        """Have a commit, and all it needs, out of another git folder, ready to be pushed.

        :raises GitError: its history is not complete or not well-formed.
        """
        transfer(self.git, source / "objects", self.path, [sha])

    def note(self, text: bytes) -> Sha:
        """A commit without files that says one line. No two are the same, so that whoever has moved a reference to one
        has moved it indeed: the forge's git compares what it pointed at, and "unchanged" could not be compared."""
        tree = self.git.text(["hash-object", "-w", "-t", "tree", "--stdin"], git_dir=self.path, input=b"")
        message = text.strip() + b"\n\n" + self._entropy.token().encode("ascii") + b"\n"
        return Sha(
            self.git.text(["commit-tree", "--no-gpg-sign", tree], git_dir=self.path, input=message)
        )  # fmt: skip

    def change(self, *changes: RefChange) -> None:
        """Move references at the forge, all of them or none, each from its old value (None: absent).

        :raises PushRefused: one is at another value, or the forge refuses; nothing was changed by this call.
        :raises GitError: the push failed otherwise, and says nothing about its outcome.
        """
        leases = [f"--force-with-lease={change.ref}:{change.old or ''}" for change in changes]
        # No `+`: it would win over the lease.
        specs = [f"{change.new or ''}:{change.ref}" for change in changes]
        args = ["push", "--porcelain", "--atomic", "--no-verify", "--no-follow-tags", *leases]
        try:
            self._remote([*args, "--", self.access.url, *specs], timeout=PUSH_TIMEOUT_S)
        except PushRefused:
            raise
        except GitError as error:
            error.hint = error.hint or _hint(error)
            raise

    def _fetch(self) -> None:
        with self.asking():
            self._fetcher.fetch(
                self.access.url,
                {HEADS: HEADS, OURS: OURS},
                env=self.access.environment(),
                settings=SETTINGS,
            )

    def _remote(self, args: Sequence[str], *, timeout: float) -> bytes:
        done = self.git.run(
            args,
            git_dir=self.path,
            env=self.access.environment(),
            settings=SETTINGS,
            protocols=PROTOCOLS,
            check=False,
            timeout=timeout,
        )
        if done.returncode != 0:
            error = git_error(f"git {args[0]}", done)
            refused = _refused(done.stdout.decode("utf-8", "replace"))
            if refused:
                raise PushRefused(self.access.url, refused, error)
            raise error
        return done.stdout


def _refused(told: str) -> list[str]:
    """What git says of each reference that was not taken."""
    lines = (line.split("\t") for line in told.splitlines() if line.startswith("!"))
    return [
        f"{found[1].partition(':')[2]} {found[2]}"[:300]
        for found in lines
        if len(found) > 2 and found[2].startswith(_REFUSED)
    ]


def _hint(error: OutsideError) -> str:
    said = f"{error.message} {getattr(error, 'stderr', '')}"
    if any(word in said for word in _RENAMED):
        return "It answers from another address: was the repository renamed? `orch repo move` takes its new name."
    if any(word in said for word in _SHUT_OUT):
        return "Is the token still valid, and may it write to the repository?"
    return error.hint
