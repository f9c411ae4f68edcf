"""Throw-away checkouts of one exact commit, for checks and builds.

Must hold: the files are those of the commit and nothing else. No filter, no large-file download and no submodule is run
or fetched. The checkout's own ``.git`` holds that one commit as a shallow, standalone repository: ``git rev-parse
HEAD`` and ``git status`` work in it, and nothing in it leads back to the clone.

The folder is removed at the end, whatever the commands in it have left there.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha
from orchestrator.runtime.git import Git
from orchestrator.workspace.folders import remove_tree
from orchestrator.workspace.git_info import write_info

CHECKOUT_TIMEOUT_S = 300.0
WORKERS = 4  # making files is waiting for the disk; git starts them for a hundred files and more
STANDALONE_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"


@contextmanager
def checked_out(git: Git, clone: Path, sha: Sha, target: Path) -> Iterator[Path]:
    """``sha`` at ``target`` (which must not exist) for the length of the block.

    :raises GitError: there is no such commit, the target exists, or git failed.
    """
    if target.exists() or target.is_symlink():
        raise GitError(f"{target} is in the way of a clean checkout.", hint="Remove it.")
    target.mkdir(mode=0o700, parents=True)
    try:
        standalone(git, clone, sha, target / ".git")
        # From here on only what was just written counts, attributes too.
        fill(git, target / ".git", sha, target, target / ".git" / "index")
        yield target
    finally:
        remove_tree(target)


def fill(git: Git, clone: Path, sha: Sha, work_tree: Path, index: Path, *, held: Sequence[int] = ()) -> None:
    """Write the files of a commit into an empty folder and remember them in ``index``.

    ``held`` are descriptors of locks that git shall hold on to as long as it lives.

    :raises GitError: git failed.
    """
    env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(work_tree)}
    for args in (["read-tree", sha], ["checkout-index", "-a", "-f", "-q", "-u"]):
        git.run(
            args,
            git_dir=clone,
            cwd=work_tree,
            env=env,
            timeout=CHECKOUT_TIMEOUT_S,
            settings=[f"checkout.workers={WORKERS}"],
            pass_fds=held,
        )


def standalone(git: Git, clone: Path, sha: Sha, git_dir: Path) -> None:
    """A git folder that holds this one commit with its files, and no history.

    :raises GitError: git failed.
    """
    skeleton(git_dir, sha.encode("ascii") + b"\n", STANDALONE_CONFIG)
    (git_dir / "shallow").write_bytes(sha.encode("ascii") + b"\n")
    pack = str(git_dir / "objects" / "pack" / "pack")
    # No search for better deltas: the folder lives for minutes.
    git.run(
        ["pack-objects", "-q", "--revs", "--window=0", "--no-use-bitmap-index", pack],
        git_dir=clone,
        input=f"--shallow {sha}\n{sha}\n".encode("ascii"),
        timeout=CHECKOUT_TIMEOUT_S,
    )


def skeleton(git_dir: Path, head: bytes, config: bytes) -> None:
    """The files and folders by which git knows a git folder; no templates, no hooks."""
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (git_dir / folder).mkdir(parents=True)
    (git_dir / "HEAD").write_bytes(head)
    (git_dir / "config").write_bytes(config)
    write_info(git_dir)
