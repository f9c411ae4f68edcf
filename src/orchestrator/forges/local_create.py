"""Making a local forge: a bare repository with a person's default branch and tags.

Must hold: the person's checkout is only read, by one look at its branch and tags and by copying objects. A half-made
repository never has the final name; making one that exists opens it.
"""

import shutil
import tempfile
from pathlib import Path

from orchestrator.domain.errors import ConfigError, GitError
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.forges.local import HEADS, LocalForge
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.files import make_private_folder
from orchestrator.runtime.git import Git
from orchestrator.runtime.git_refs import RefChange, References
from orchestrator.runtime.git_transfer import sweep, transfer

# People may push to it as to any other; what the orchestrator keeps under refs/orch is neither shown nor writable.
CONFIG = (
    b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
    b"[receive]\n\tdenyNonFastForwards = true\n\tautogc = false\n[gc]\n\tauto = 0\n"
    b"[transfer]\n\thideRefs = refs/orch\n"
)
FALLBACK_BRANCH = "main"


def create_local_forge(
    git: Git,
    path: Path,
    repo: RepoName,
    *,
    source: Path | None = None,
    default_branch: str | None = None,
    clock: Clock,
    entropy: Entropy,
) -> LocalForge:
    """Make the forge at ``path`` out of ``source`` (None: empty), or open the one that is there.

    ``default_branch`` is by default the branch that ``source`` has checked out.

    :raises ConfigError: ``source`` is no repository, has no commit on that branch, or lacks part of its history; or
        something else is at ``path``.
    :raises OutsideError: git or the disk failed.
    """
    if (path / "HEAD").is_file():
        sweep(path)
        return LocalForge(git, path, repo, default_branch or _head(path), clock=clock, entropy=entropy)
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} is in the way: it is no bare git repository.", hint="Move it away.")
    refs, objects, branch = (
        ({}, None, default_branch or FALLBACK_BRANCH)
        if source is None
        else _looked_at(git, source, default_branch)
    )
    make_private_folder(path.parent)
    aside = Path(tempfile.mkdtemp(prefix="forge-", dir=path.parent))
    try:
        git.run(["init", "-q", "--bare", "--template=", "--", str(aside)], cwd=path.parent)
        (aside / "config").write_bytes(CONFIG)
        (aside / "HEAD").write_text(f"ref: {HEADS}{branch}\n", encoding="utf-8")
        if objects is not None:
            transfer(git, objects, aside, refs.values(), strict=False)
            changes = [RefChange(ref, None, sha) for ref, sha in refs.items()]
            References(git, aside, clock, entropy).change(*changes)
        aside.rename(path)
    except OSError as error:
        if not (path / "HEAD").is_file():  # else another process was faster
            raise ConfigError(
                f"{path} cannot be made: {error.strerror}.", hint="Is the disk full or read-only?"
            ) from error
    except GitError as error:
        error.hint = error.hint or f"Run `git fsck` in {source}; a partial clone has to be completed first."
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return LocalForge(git, path, repo, branch, clock=clock, entropy=entropy)


def _looked_at(git: Git, source: Path, default_branch: str | None) -> tuple[dict[str, Sha], Path, str]:
    """The references to take over, the folder of the objects, and the default branch."""
    try:
        there = source.is_dir()
    except OSError as error:  # a name too long, a folder that we may not look into
        raise ConfigError(f"{str(source)[:200]} cannot be looked at: {error.strerror}.") from error
    if not there:
        raise ConfigError(f"{source} is no folder.", hint="Name the folder of a git repository.")
    top = source.resolve()
    env = {"GIT_CEILING_DIRECTORIES": str(top.parent)}
    found = git.run(
        ["rev-parse", "--path-format=absolute", "--git-common-dir", "--git-path", "objects"],
        cwd=top,
        env=env,
        check=False,
    )
    if found.returncode != 0:
        raise ConfigError(f"{source} is no git repository.", hint="Run `git init` and commit there first.")
    common, objects = (
        Path(line) for line in found.stdout.decode("utf-8", "surrogateescape").splitlines()[:2]
    )
    if (common / "shallow").exists():
        raise ConfigError(
            f"{source} has only part of its history.", hint="Run `git fetch --unshallow` there."
        )
    head = git.run(["symbolic-ref", "-q", "HEAD"], cwd=top, env=env, check=False).stdout.decode(
        "utf-8", "replace"
    )
    branch = default_branch or head.strip().removeprefix(HEADS)
    if not branch:
        raise ConfigError(
            f"{source} has no branch checked out.", hint="Check out its default branch, or name it."
        )
    listed = git.run(
        ["for-each-ref", "--format=%(objectname) %(refname)", HEADS + branch, "refs/tags"], cwd=top, env=env
    ).stdout.decode("utf-8", "surrogateescape")
    refs = {ref: Sha(sha) for sha, ref in (line.split(" ", 1) for line in listed.splitlines())}
    refs = {ref: sha for ref, sha in refs.items() if ref == HEADS + branch or ref.startswith("refs/tags/")}
    if HEADS + branch not in refs:
        raise ConfigError(
            f"The branch {branch} of {source} has no commit yet.",
            hint="Commit something, or name another branch.",
        )
    return refs, objects, branch


def _head(path: Path) -> str:
    return (path / "HEAD").read_text(encoding="utf-8").strip().removeprefix(f"ref: {HEADS}")
