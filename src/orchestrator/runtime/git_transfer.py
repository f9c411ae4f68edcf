"""Objects from one object store into another, without asking the other repository to do anything.

No ``upload-pack`` runs in the source and its configuration is never read: git works in the *target's* folder and merely
looks into the source's object folder. What arrives is hashed anew, so that a pack or index that lies is found out, and
is complete before anything may name it: a commit whose history is not all there is refused.

On failure nothing has become reachable in the target; a pack left aside is removed.
"""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha
from orchestrator.runtime.files import sync_folder, untouched_for
from orchestrator.runtime.git import Git

TRANSFER_TIMEOUT_S = 600.0
LEFTOVER_S = 24 * 3600.0  # nothing that is still at work is this old
LEFTOVERS = ("incoming-*", "index-*")


def transfer(
    git: Git, source_objects: Path, target: Path, wanted: Iterable[Sha], *, strict: bool = True
) -> None:
    """Copy ``wanted`` and everything they need, from the object folder into the git folder ``target``.

    ``strict`` refuses malformed objects (paths such as ``.git``, broken trees); leave it off for history that a
    person's own repository already has.

    :raises GitError: an object is missing, malformed or not what its name says.
    """
    missing = [sha for sha in dict.fromkeys(wanted) if not is_complete(git, target, sha)]
    if not missing:
        return
    aside = Path(tempfile.mkdtemp(prefix="incoming-", dir=target))
    try:
        pack = _pack(git, source_objects, target, missing, aside)
        if pack is not None:
            _adopt(git, pack, target, strict)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    for sha in missing:
        if not is_complete(git, target, sha):
            raise GitError(f"The history of {sha} is not complete: objects are missing in {source_objects}.")


def is_complete(git: Git, target: Path, sha: Sha) -> bool:
    """Whether the object and all it refers to are in ``target``; what references reach is taken as complete."""
    walked = git.run(
        ["rev-list", "--objects", "--quiet", sha, "--not", "--all"],
        git_dir=target,
        check=False,
        timeout=TRANSFER_TIMEOUT_S,
    )
    return walked.returncode == 0


def sweep(target: Path) -> None:
    """Remove what processes that were killed have left aside in a git folder, once it is older than a day.

    :raises OSError: the folder cannot be written.
    """
    for folder in untouched_for(target, LEFTOVERS, LEFTOVER_S):
        shutil.rmtree(folder, ignore_errors=True)


def _pack(git: Git, source_objects: Path, target: Path, wanted: list[Sha], aside: Path) -> Path | None:
    known = git.text(["for-each-ref", "--format=%(objectname)"], git_dir=target).splitlines()
    revisions = [*wanted, "--not", *dict.fromkeys(known), ""]
    git.run(
        ["pack-objects", "-q", "--revs", "--no-use-bitmap-index", "--delta-base-offset", str(aside / "pack")],
        git_dir=target,
        input="\n".join(revisions).encode(),
        env={"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(source_objects)},
        timeout=TRANSFER_TIMEOUT_S,
    )
    return next(iter(aside.glob("pack-*.pack")), None)


def _adopt(git: Git, pack: Path, target: Path, strict: bool) -> None:
    """Index the pack from its content alone and move it in; the index comes last, for it makes the pack visible."""
    for old in pack.parent.glob("pack-*.*"):
        if old != pack:
            old.unlink()
    index = pack.with_suffix(".idx")
    git.run(
        ["index-pack", *(["--strict"] if strict else []), "-o", str(index), str(pack)],
        git_dir=target,
        timeout=TRANSFER_TIMEOUT_S,
    )
    folder = target / "objects" / "pack"
    folder.mkdir(parents=True, exist_ok=True)
    pack.replace(folder / pack.name)
    sync_folder(folder)
    index.replace(folder / index.name)
    sync_folder(folder)


def _quoted(path: Path) -> str:
    """A path for git's colon-separated list; quoted as a C string, so that a colon in it does not split it."""
    text = str(path)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
