"""Repositories, at local forges and at servers elsewhere: registered, and opened when first asked for.

What must hold: a repository whose forge cannot be opened, or is slow to open, holds up no other.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.db import repositories
from orchestrator.db.database import Database
from orchestrator.domain.errors import AuthorityUnreachable, ConfigError, RequestRefused
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.domain.task import Task
from orchestrator.forges.forge import Forge
from orchestrator.forges.git_access import SETTINGS, GitAccess
from orchestrator.forges.local import LocalForge
from orchestrator.forges.local_create import create_local_forge
from orchestrator.forges.others import Others
from orchestrator.forges.remote_forge import RemoteForge
from orchestrator.forges.remote_open import RemoteForges
from orchestrator.places import Folders, Place
from orchestrator.rules.names import usable_prefix, usable_repository_name
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.git import Git
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.folders import remove_tree
from orchestrator.workspace.worktree import Workspaces

LOCAL, GITEA, GITHUB = "local", "gitea", "github"  # kinds of forges, as the database has them


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A repository at a server: the kind of forge, and its ``owner/name`` there."""

    forge: str
    full_name: str


@dataclass(frozen=True, slots=True)
class _Opened:
    location: str
    place: Place


class Repositories:
    """All repositories of one installation; see :class:`~orchestrator.places.Places`."""

    def __init__(
        self,
        database: Database,
        folders: Folders,
        git: Git,
        *,
        servers: Iterable[RemoteForges],
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._database = database
        self._servers = {server.kind: server for server in servers}
        self._folders = folders
        self._git = git
        self._clock = clock
        self._entropy = entropy
        self._open: dict[str, _Opened] = {}
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # who opens it

    def of(self, repo: str) -> Place:
        """The place of a registered repository.

        :raises NotFound: it is not registered.
        :raises AuthorityUnreachable: its forge or our clone of it cannot be read.
        """
        opened = self._open.get(repo)
        if opened is not None:
            return opened.place
        with self._database.read() as tx:
            repositories.get(tx, repo)
        with self._turns[repo]:
            if repo not in self._open:
                with self._database.read() as tx:  # it may have been moved while others opened it
                    known = repositories.get(tx, repo)
                self._open[repo] = _Opened(known.location, self._opened(known))
            return self._open[repo].place

    def let_go(self) -> int:
        """Let go of what lies elsewhere since it was opened, for somebody may have moved it; how many that were."""
        with self._database.read() as tx:
            known = {one.name: one.location for one in repositories.all_repositories(tx)}
        moved = [name for name, one in list(self._open.items()) if known.get(RepoName(name)) != one.location]
        for name in moved:
            with self._turns[name]:
                self._open.pop(name, None)
        return len(moved)

    def pull_request(self, task: Task) -> str | None:
        """Where people see a task's pull request; None where it has none, or its forge has no pages.

        :raises NotFound: its repository is not registered.
        """
        with self._database.read() as tx:
            known = repositories.get(tx, task.repo)
        page = {GITEA: "pulls", GITHUB: "pull"}.get(known.forge)
        if task.pr_number is None or page is None:
            return None
        return f"{known.location}/{page}/{task.pr_number}"

    def register(self, source: Path, *, name: str, prefix: str) -> repositories.Repository:
        """Make a repository's local forge from a checkout (which is not touched) and register it.

        :raises ConfigError: ``source`` is no git repository with a commit, or name or prefix cannot be used.
        :raises RequestRefused: the prefix is taken by another repository.
        """
        known = self._known(name, prefix)
        if known is not None:
            return self._connected(known)
        path = self._folders.home / "forges" / f"{name}.git"
        if (path / "HEAD").is_file() and not self._same_history(path, source):
            raise ConfigError(
                f"{path} was left by another repository than {source}; nothing was registered.",
                hint="Move it away if nobody needs it, or choose another name.",
            )
        create_local_forge(
            self._git, path, RepoName(name), source=source, clock=self._clock, entropy=self._entropy
        )
        return self._added(repositories.Repository(RepoName(name), LOCAL, str(path), prefix))

    def register_elsewhere(self, at: Elsewhere, *, name: str, prefix: str) -> repositories.Repository:
        """Register a repository at the configured server of its kind.

        It is read once, so that whoever looks at our copy of it finds something.

        :raises ConfigError: it cannot be worked on, or name or prefix cannot be used.
        :raises RequestRefused: the prefix or the repository is taken.
        :raises AuthorityUnreachable: the server cannot be asked.
        """
        known = self._known(name, prefix)
        if known is not None:
            return self._connected(known)
        server = self._servers[at.forge]
        location = server.location(at.full_name)
        with self._database.read() as tx:
            same = repositories.by_address(tx, at.forge, [location])
        if same is not None:
            raise RequestRefused(f"{location} is registered as {same.name} already.")
        forge = server.open(RepoName(name), location, self._folders.mirror(name))
        forge.git.mirror.look()
        if forge.tip(forge.default_branch) is None:
            raise ConfigError(
                f"{location} has no commit on {forge.default_branch} yet; nothing was registered.",
                hint="Push one.",
            )
        return self._added(repositories.Repository(RepoName(name), at.forge, location, prefix))

    def elsewhere(self) -> Iterator[tuple[repositories.Repository, RemoteForges, str]]:
        """All that lie at a configured server and were not disconnected, with what they were called there when they
        were registered."""
        with self._database.read() as tx:
            known = repositories.all_repositories(tx)
        for one in known:
            if one.left_at is not None:
                continue
            server = self._servers.get(one.forge)
            full_name = server.name_at(one.location) if server is not None else None
            if server is not None and full_name is not None:
                yield one, server, full_name

    @contextmanager
    def under(self, known: repositories.Repository, full_name: str) -> Iterator[RemoteForge]:
        """A registered repository's forge under another name, for the length of the block; its own copy is left alone.

        :raises ConfigError: it has a local forge, or cannot be worked on there.
        :raises AuthorityUnreachable: the server cannot be asked.
        """
        server = self._servers.get(known.forge)
        if server is None:
            raise ConfigError(
                f"{known.name} has a local forge, {known.location}, which has no other place; nothing was changed."
            )
        location = server.location(full_name)
        copy = self._folders.mirror(f"{known.name}.{self._entropy.token(4)}")
        try:
            objects = self._folders.mirror(known.name) / "objects"
            yield server.open(known.name, location, copy, objects=objects if objects.is_dir() else None)
        finally:
            remove_tree(copy)

    def last_seen(self, known: repositories.Repository, branch: str) -> Sha | None:
        """Where a branch was when it was last read, by our own copy; None where that does not say."""
        copy = self._folders.mirror(known.name)
        if not copy.is_dir():
            return None
        asked = ["rev-parse", "-q", "--verify", f"refs/heads/{branch}^{{commit}}"]
        found = self._git.run(asked, git_dir=copy, check=False)
        return Sha(found.stdout.decode("ascii").strip()) if found.returncode == 0 else None

    def _known(self, name: str, prefix: str) -> repositories.Repository | None:
        """The repository of this name; None where name and prefix are free.

        :raises ConfigError: they cannot be used.
        :raises RequestRefused: the prefix is taken.
        """
        _check(name, prefix)
        with self._database.read() as tx:
            taken = {known.name: known for known in repositories.all_repositories(tx)}
        if name in taken:
            return taken[RepoName(name)]
        if any(known.prefix == prefix for known in taken.values()):
            raise RequestRefused(f"The prefix {prefix} numbers another repository's tasks already.")
        return None

    def _connected(self, known: repositories.Repository) -> repositories.Repository:
        """One that is registered; it is taken from again where it was disconnected."""
        with self._database.write() as tx:
            repositories.come_back(tx, known.name)
            return repositories.get(tx, known.name)

    def _added(self, new: repositories.Repository) -> repositories.Repository:
        with self._database.write() as tx:
            if not repositories.add(tx, new):
                raise ConfigError(f"The repository {new.name!r} was registered by somebody else meanwhile.")
        return new

    def _same_history(self, forge: Path, source: Path) -> bool:
        """Whether a forge that is there already, but not registered, was made of this checkout: a registration that was
        interrupted leaves one."""
        begins = ["rev-list", "--max-parents=0", "HEAD", "--"]
        there = self._git.run(begins, git_dir=forge, check=False).stdout.split()
        here = self._git.run(begins, cwd=source, check=False).stdout.split() if os.path.isdir(source) else []
        return bool(there) and set(there) == set(here)

    def _opened(self, known: repositories.Repository) -> Place:
        try:
            return self._place(known)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise AuthorityUnreachable(
                f"The repository {known.name} cannot be opened: its forge {known.location} or our clone of it: "
                f"{reason}. Its tasks wait.",
                hint="Bring the folder back, or correct its rights; the tasks then go on by themselves.",
            ) from error

    def _place(self, known: repositories.Repository) -> Place:
        root = self._folders.home / "repos" / known.name
        forge: Forge
        access: GitAccess | None = None
        others: Others | None = None
        if server := self._servers.get(known.forge):
            forge = remote = server.open(known.name, known.location, self._folders.mirror(known.name))
            access, others = remote.git.mirror.access, remote.others
        else:
            forge = self._local(known)
        clone = Clone(
            self._git,
            root / "clone.git",
            forge.fetch_url(),
            forge.default_branch,
            clock=self._clock,
            entropy=self._entropy,
            fetch_env=access.environment if access else dict,
            fetch_settings=SETTINGS if access else (),
        )
        workspaces = Workspaces(clone, root, self._clock)
        return Place(known.name, forge, clone.open_or_create(), workspaces, others)

    def _local(self, known: repositories.Repository) -> LocalForge:
        path = Path(known.location)
        branch = (path / "HEAD").read_text(encoding="utf-8").strip().removeprefix("ref: refs/heads/")
        return LocalForge(self._git, path, known.name, branch, clock=self._clock, entropy=self._entropy)


def _check(name: str, prefix: str) -> None:
    """Whoever asks: folders are called by the name, and refs by the prefix."""
    if not usable_repository_name(name):
        raise ConfigError(
            f"The name {ascii(name[:60])} is no usable name; nothing was registered.",
            hint="At most 61 small letters, digits, dots and dashes; a letter or digit first.",
        )
    if not usable_prefix(prefix):
        raise ConfigError(
            f"The prefix {ascii(prefix[:60])} is no usable prefix; nothing was registered.",
            hint="A capital letter, then at most 15 capital letters or digits.",
        )
