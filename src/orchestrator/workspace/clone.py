"""The orchestrator's own bare clone of a repository: what the forge has, and everything we were given to keep.

Must hold: no agent's git ever works in this folder, and its configuration, attributes and excludes are exactly the ones
written here (they are put right before each use). Objects that came in are never thrown away (no garbage collection).
References of ours:
``refs/forge/heads/*`` what the forge showed at the last fetch, ``refs/orch/work/<work item>`` the head last taken over
from a workspace, ``refs/orch/rescue/<work item>/<n>`` what would else have been lost.

On failure a ``GitError`` is raised and the clone is as before; a half-made clone has another name and is made anew.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.rules.names import work_item_ref
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.files import replace_durably
from orchestrator.runtime.git import Git
from orchestrator.runtime.git_bare import make_bare
from orchestrator.runtime.git_fetch import Fetcher
from orchestrator.runtime.git_refs import RefChange, References, RefsRefused
from orchestrator.runtime.git_transfer import sweep, transfer
from orchestrator.runtime.shared_step import SharedStep
from orchestrator.workspace.checkout import checked_out
from orchestrator.workspace.commits import encode_path
from orchestrator.workspace.git_info import INFO
from orchestrator.workspace.history import History

CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
FORGE_HEADS = "refs/forge/heads/"
RESCUE = "refs/orch/rescue/"
WORK = "refs/orch/work/"
WORK_TREE_TIMEOUT_S = 300.0
REMEMBERED = 10_000  # commits that need not be looked for again


class Clone(History):
    """One repository's clone. Safe to use from many threads and processes."""

    def __init__(
        self,
        git: Git,
        path: Path,
        url: str,
        default_branch: str,
        *,
        clock: Clock,
        entropy: Entropy,
        fetch_env: Callable[[], Mapping[str, str]] = dict,
        fetch_settings: Sequence[str] = (),
    ) -> None:
        """``fetch_env`` gives the variables (such as GIT_ASKPASS) that a fetch from a remote forge needs."""
        super().__init__(git, path)
        self.url = url
        self.default_branch = default_branch
        self.clock = clock
        self.entropy = entropy
        self.refs = References(git, path, clock, entropy)
        self._fetch_env = fetch_env
        self._fetch_settings = tuple(fetch_settings)
        self._fetcher = Fetcher(self.refs, clock, entropy)
        self._fetches = SharedStep(self._fetch)
        self._here: set[Sha] = set()  # commits that were seen here

    def open_or_create(self) -> "Clone":
        """Make the clone where there is none; repeating is harmless. Fetching is a step of its own.

        :raises GitError: git failed.
        :raises OSError: the state folder is full or read-only.
        """
        make_bare(self.git, self.path, CONFIG)
        self.before_use()
        sweep(self.path)
        return self

    def fetch(self) -> None:
        """Bring branches and tags up to what the forge has now; one run serves all threads that ask meanwhile.

        :raises GitError: the forge cannot be reached or the fetch failed.
        :raises AuthorityUnreachable: a stranger's lock stays in the clone.
        """
        self._fetches.run()

    def want(self, sha: Sha) -> None:
        """See to it that a commit is here, if the forge has it: another process of ours may have pushed it.

        :raises GitError: as :meth:`fetch`.
        :raises AuthorityUnreachable: as :meth:`fetch`.
        """
        if sha in self._here:
            return
        if not self.has(sha):
            self.fetch()
            if not self.has(sha):
                return
        if len(self._here) >= REMEMBERED:
            self._here.clear()
        self._here.add(sha)  # objects are never thrown away

    def tip(self, branch: str) -> Sha | None:
        """A branch's tip as the forge had it at the last fetch, None where there was none."""
        return self.refs.read(FORGE_HEADS + branch)

    def commit_files(self, parent: Sha, files: Mapping[str, bytes | None], message: str) -> Sha:
        """A commit on top of ``parent`` in which these files have this content (None: are gone). No checkout needed.

        :raises GitError: a path is not acceptable, or git failed.
        """
        blobs = {path: self._blob(data) for path, data in files.items() if data is not None}
        lines = list[bytes]()
        for path in files:
            checked = encode_path(check_path(path))
            if path in blobs:
                lines.append(b"100644 %s\t%s\0" % (blobs[path].encode("ascii"), checked))
            else:
                lines.append(b"0 %s\t%s\0" % (b"0" * len(parent), checked))
        with self.temporary_index() as index:
            self.run_index(["read-tree", parent], index)
            self.run_index(["update-index", "-z", "--index-info"], index, input=b"".join(lines))
            tree = Sha(self.run_index(["write-tree"], index).decode("ascii").strip())
        return self.commit_tree(tree, [parent], message)

    def commit_tree(self, tree: Sha, parents: Sequence[Sha], message: str) -> Sha:
        """A commit object under the orchestrator's identity; nothing points at it yet."""
        args = [
            "commit-tree",
            "--no-gpg-sign",
            *(word for parent in parents for word in ("-p", parent)),
            tree,
        ]
        # Lone surrogates come from undecodable bytes and are not worth failing for.
        return Sha(self._run(args, input=message.encode("utf-8", "replace")).decode("ascii").strip())

    def receive(self, objects: Path, wanted: Sequence[Sha], *, strict: bool = True) -> None:
        """Take commits and all they need out of another object folder; see :func:`transfer`.

        :raises GitError: they are not complete or not well-formed.
        """
        self.before_use()
        transfer(self.git, objects, self.path, wanted, strict=strict)

    def rescue(self, work_item: WorkItem, sha: Sha) -> str:
        """Keep a commit for ever under ``refs/orch/rescue/<work item>/<n>``; its reference. Safe to repeat.

        :raises GitError: the commit is not here, or the reference cannot be written.
        """
        prefix = f"{RESCUE}{work_item_ref(work_item)}/"
        while True:
            kept = self.refs.under(prefix)
            known = next((ref for ref, value in kept.items() if value == sha), None)
            if known is not None:
                return known
            number = 1 + max((int(ref.removeprefix(prefix)) for ref in kept), default=0)
            try:
                self.refs.change(RefChange(f"{prefix}{number}", None, sha))
            except RefsRefused:
                if f"{prefix}{number}" not in self.refs.under(prefix):
                    raise  # not a lost race
            else:
                return f"{prefix}{number}"

    def named(self) -> set[Sha]:
        """What references name: here, complete, and never thrown away."""
        return set(self.refs.under("refs/").values())

    def rescued(self, work_item: WorkItem) -> Mapping[str, Sha]:
        """Everything kept for a work item."""
        return self.refs.under(f"{RESCUE}{work_item_ref(work_item)}/")

    def kept(self, work_item: WorkItem) -> Sha | None:
        """The head that was last taken over from the work item's workspace."""
        return self.refs.read(f"{WORK}{work_item_ref(work_item)}")

    def keep(self, work_item: WorkItem, head: Sha) -> None:
        """Hold on to a head taken over from a workspace, pushed or not; an earlier one off its line is rescued.

        :raises GitError: the commit is not here, or the reference cannot be written.
        """
        earlier = self.kept(work_item)
        if earlier == head:
            return
        if earlier is not None and not self.is_ancestor(earlier, head):
            self.rescue(work_item, earlier)
        self.refs.change(RefChange(f"{WORK}{work_item_ref(work_item)}", earlier, head))

    @contextmanager
    def export(self, sha: Sha, target: Path) -> Iterator[Path]:
        """A clean checkout of exactly ``sha`` at ``target`` for the length of the block; see :mod:`checkout`.

        :raises GitError: there is no such commit, or git failed.
        """
        self.before_use()
        with checked_out(self.git, self.path, sha, target) as path:
            yield path

    @contextmanager
    def temporary_index(self) -> Iterator[Path]:
        """A path for an index of one's own, gone after the block."""
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.path) as folder:
            yield Path(folder) / "index"

    def run_index(
        self,
        args: Sequence[str],
        index: Path,
        *,
        work_tree: Path | None = None,
        objects: Path | None = None,
        input: bytes | None = None,
    ) -> bytes:
        """A plumbing command on an index, optionally with a work tree and a further object folder to look into.

        :raises GitError: git failed.
        """
        env = {"GIT_INDEX_FILE": str(index)}
        if work_tree is not None:
            env["GIT_WORK_TREE"] = str(work_tree)
        if objects is not None:
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(objects)
        self.before_use()
        return self.git.run(
            args, git_dir=self.path, cwd=work_tree, env=env, input=input, timeout=WORK_TREE_TIMEOUT_S
        ).stdout

    def before_use(self) -> None:
        """Put the configuration right: it is ours alone, whoever may have written to it."""
        info = self.path / "info"
        if info.is_symlink():
            info.unlink()
        for name, content in {"config": CONFIG, **INFO}.items():
            _put_right(self.path / name, content)

    def _fetch(self) -> None:
        self.before_use()
        self._fetcher.fetch(
            self.url,
            {"refs/heads/": FORGE_HEADS, "refs/tags/": "refs/tags/"},
            env=self._fetch_env(),
            settings=self._fetch_settings,
        )

    def _blob(self, data: bytes) -> str:
        args = ["hash-object", "-w", "--no-filters", "--stdin"]
        return self._run(args, input=data).decode("ascii").strip()


def _put_right(path: Path, content: bytes) -> None:
    with suppress(OSError):
        if not path.is_symlink() and path.read_bytes() == content:
            return
    if path.is_symlink() or not path.is_file():
        path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    replace_durably(path, content)


def check_path(path: str) -> str:
    """The path, if it may be written into a tree: relative, plain, and nothing of git's own.

    :raises GitError: it may not.
    """
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise GitError(f"{path[:200]!r} is no path that may be written.", hint="Use a plain relative path.")
    return path
